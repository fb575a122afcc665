"""What was not delivered: exact counts, rows that are ranges, and an answer to "why"."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.diagnostics.ledger import MOST_NEWS, Ledger, Losses, News, Row, ranges_of
from penstock.model import Policy, Reason
from tests.support.clock import ManualClock
from tests.support.samples import make_run

REASONS = (Reason.OUTBOX_FULL, Reason.EXPIRED, Reason.NOT_CONNECTED)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(clock: ManualClock) -> Ledger:
    return Ledger(clock, 1_000)


def lose(
    ledger: Ledger,
    first: int,
    count: int = 1,
    *,
    topic: str = "a",
    client_id: str = "c",
    reason: Reason = Reason.EXPIRED,
    policy: Policy | None = None,
    setting: str = "",
) -> None:
    run = make_run(topic, *[b"x"] * count, sequence=first)
    ledger.add(run, client_id, reason, policy, setting)


def ranges(ledger: Ledger) -> list[tuple[int, int, int]]:
    return [(row.first, row.last, row.count) for row in ledger.rows()]


losses = st.tuples(
    st.sampled_from("ab"), st.sampled_from("cd"), st.sampled_from(REASONS), st.integers(1, 4), st.booleans()
)
stories = st.lists(losses, max_size=8) | st.lists(losses, min_size=15, max_size=60)


@given(stories, st.integers(1, 20))
def test_counts_stay_exact_and_rows_bounded_whatever_is_lost(
    lost: list[tuple[str, str, Reason, int, bool]], rows_limit: int
) -> None:
    ledger = Ledger(ManualClock(), rows_limit)
    sequences = {"a": 0, "b": 0}
    messages: list[tuple[str, str, Reason, int]] = []  # the model: every single message, in order
    for topic, client_id, reason, count, is_adjacent in lost:
        first = sequences[topic] + (1 if is_adjacent else 3)
        sequences[topic] = first + count - 1
        lose(ledger, first, count, topic=topic, client_id=client_id, reason=reason)
        messages += [(topic, client_id, reason, first + index) for index in range(count)]

    assert ledger.counts == Counter(reason for _, _, reason, _ in messages)
    assert ledger.total == len(messages)
    rows = list(ledger.rows())
    assert len(rows) <= rows_limit
    told = [
        (row.topic, row.client_id, row.reason, sequence)
        for row in rows
        for sequence in range(row.first, row.last + 1)
    ]
    assert len(told) == len(set(told)) == sum(row.count for row in rows)
    assert set(told) <= set(messages)
    if not ledger.rows_forgotten:
        assert set(told) == set(messages)
    for topic, client_id, reason, sequence in told:
        row = ledger.why(topic, sequence, client_id)
        assert row is not None
        assert row.reason is reason


def test_losses_that_follow_one_another_are_one_row(ledger: Ledger, clock: ManualClock) -> None:
    lose(ledger, 5, 2)
    clock.advance(1)
    lose(ledger, 7, 3)
    (row,) = ledger.rows()
    assert row == Row(
        "a", "c", Reason.EXPIRED, None, "", 5, 9, 5, clock.wall_us() - 1_000_000, clock.wall_us()
    )


def test_a_queue_that_is_given_up_from_its_end_is_one_row(ledger: Ledger) -> None:
    for first in (9, 6, 3):
        lose(ledger, first, 3)
    assert ranges(ledger) == [(3, 11, 9)]


def test_a_gap_begins_a_new_row(ledger: Ledger) -> None:
    lose(ledger, 1)
    lose(ledger, 3)
    lose(ledger, 4)
    assert ranges(ledger) == [(1, 1, 1), (3, 4, 2)]


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "b"},
        {"client_id": "d"},
        {"reason": Reason.OUTBOX_FULL},
        {"policy": Policy.BLOCK},
        {"setting": "outbox"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_losses_that_differ_are_rows_of_their_own(ledger: Ledger, other: dict[str, str]) -> None:
    lose(ledger, 1)
    lose(ledger, 2, **other)  # type: ignore[arg-type]
    assert ranges(ledger) == [(1, 1, 1), (2, 2, 1)]


def test_losses_of_several_topics_in_turn_still_make_one_row_each(ledger: Ledger) -> None:
    for sequence in range(1, 50):
        lose(ledger, sequence, topic="a")
        lose(ledger, sequence, topic="b")
    assert ranges(ledger) == [(1, 49, 49), (1, 49, 49)]


def test_the_oldest_rows_are_forgotten_and_the_counts_are_not(clock: ManualClock) -> None:
    ledger = Ledger(clock, 3)
    for sequence in range(0, 10, 2):
        lose(ledger, sequence)
    assert ranges(ledger) == [(4, 4, 1), (6, 6, 1), (8, 8, 1)]
    assert ledger.rows_forgotten == 2
    assert ledger.counts == {Reason.EXPIRED: 5}
    assert ledger.why("a", 2, "c") is None


def test_a_forgotten_row_is_not_continued_unseen(clock: ManualClock) -> None:
    ledger = Ledger(clock, 1)
    lose(ledger, 1, topic="a")
    lose(ledger, 1, topic="b")  # the row of `a` goes
    lose(ledger, 2, topic="a")
    assert [(row.topic, row.first, row.last) for row in ledger.rows()] == [("a", 2, 2)]


def test_why_answers_for_this_message_of_this_topic_and_session_only(ledger: Ledger) -> None:
    lose(ledger, 4, 3, reason=Reason.OUTBOX_FULL, policy=Policy.DROP_NEWEST, setting="outbox")
    row = ledger.why("a", 6, "c")
    assert row is not None
    assert (row.reason, row.policy, row.setting) == (Reason.OUTBOX_FULL, Policy.DROP_NEWEST, "outbox")
    assert ledger.why("a", 3, "c") is None
    assert ledger.why("a", 7, "c") is None
    assert ledger.why("b", 5, "c") is None
    assert ledger.why("a", 5, "d") is None


def test_rows_can_be_asked_for_by_topic_and_by_session(ledger: Ledger) -> None:
    for topic, client_id in (("a", "c"), ("a", "d"), ("b", "c")):
        lose(ledger, 1, topic=topic, client_id=client_id)
    assert [row.client_id for row in ledger.rows(topic="a")] == ["c", "d"]
    assert [row.topic for row in ledger.rows(client_id="c")] == ["a", "b"]
    assert len(list(ledger.rows(topic="b", client_id="d"))) == 0


def test_news_are_gathered_only_while_someone_listens_and_told_once(ledger: Ledger) -> None:
    lose(ledger, 1)
    ledger.is_watched = True
    lose(ledger, 5, 2)
    lose(ledger, 2, 2)
    lose(ledger, 9, topic="b")
    assert ledger.take_news() == [
        News("a", "c", Reason.EXPIRED, 2, 6, 4),
        News("b", "c", Reason.EXPIRED, 9, 9, 1),
    ]
    assert ledger.take_news() == []


def test_losses_of_the_servers_own_topics_are_counted_and_no_news(ledger: Ledger) -> None:
    ledger.is_watched = True
    lose(ledger, 1, topic="$penstock/drops")
    assert ledger.take_news() == []
    assert ledger.total == 1


def test_news_of_very_many_are_told_together_and_their_counts_stay_exact(ledger: Ledger) -> None:
    ledger.is_watched = True
    for number in range(MOST_NEWS):
        lose(ledger, 1, client_id=str(number))
    lose(ledger, 2, 3, client_id="one too many")
    lose(ledger, 9, 4, client_id="and another")
    lose(ledger, 2, client_id="7")  # of whom there are news already
    news = ledger.take_news()
    assert len(news) == MOST_NEWS + 1
    assert news[7] == News("a", "7", Reason.EXPIRED, 1, 2, 2)
    assert news[-1] == News("", "", Reason.EXPIRED, 0, 0, 7)


# What is worth a line in the log


def test_losses_are_told_once_with_the_latest_loser(ledger: Ledger) -> None:
    assert ledger.take_losses() is None
    lose(ledger, 1, 5, reason=Reason.OUTBOX_FULL, client_id="slow")
    lose(ledger, 9, 2, reason=Reason.OFFLINE_QUEUE_FULL, client_id="away", topic="b")
    assert ledger.take_losses() == Losses(7, "outbox-full=5 owed-full=2", "away", "b")
    assert ledger.take_losses() is None
    lose(ledger, 6, 1, reason=Reason.OUTBOX_FULL, client_id="slow")
    losses = ledger.take_losses()
    assert losses is not None
    assert (losses.count, losses.reasons) == (1, "outbox-full=1")


@pytest.mark.parametrize("reason", [Reason.NOT_CONNECTED, Reason.EXPIRED, Reason.REFUSED])
def test_what_clients_asked_for_is_no_loss(ledger: Ledger, reason: Reason) -> None:
    lose(ledger, 1, reason=reason)
    assert ledger.take_losses() is None


def test_losses_are_told_although_their_rows_are_forgotten(clock: ManualClock) -> None:
    ledger = Ledger(clock, 1)
    lose(ledger, 1, reason=Reason.OUTBOX_FULL)
    lose(ledger, 5, reason=Reason.EXPIRED, topic="b")
    assert ledger.take_losses() == Losses(1, "outbox-full=1", "c", "a")


# By number


def test_rows_before_a_number_come_newest_first_and_as_many_as_asked_for(ledger: Ledger) -> None:
    for first in (1, 3, 5, 7):
        lose(ledger, first)
    assert [number for number, _ in ledger.rows_before(None, 3)] == [4, 3, 2]
    assert [(number, row.first) for number, row in ledger.rows_before(3, 9)] == [(2, 3), (1, 1)]
    assert [number for number, _ in ledger.rows_before(99, 1)] == [4]
    assert ledger.rows_before(1, 9) == ledger.rows_before(0, 9) == ledger.rows_before(None, 0) == []


def test_numbers_go_on_when_rows_are_forgotten(clock: ManualClock) -> None:
    ledger = Ledger(clock, 2)
    assert ledger.rows_before(None, 9) == []
    for first in (1, 3, 5):
        lose(ledger, first)
    assert [(number, row.first) for number, row in ledger.rows_before(None, 9)] == [(3, 5), (2, 3)]
    ledger.resize(1)
    assert not ledger.shed()
    assert [number for number, _ in ledger.rows_before(None, 9)] == [3]
    assert ledger.rows_before(3, 9) == ledger.rows_before(2, 9) == []


def test_runs_of_alternating_topics_are_merged_into_ranges() -> None:
    runs = [make_run(topic, b"x", sequence=number) for number in (1, 2, 3) for topic in ("a", "b")]
    runs += [make_run("a", b"x", b"x", sequence=7), make_run("a", b"x", sequence=9)]
    assert ranges_of(runs) == [("a", 1, 3), ("b", 1, 3), ("a", 7, 3)]
