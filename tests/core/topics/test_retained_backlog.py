"""What a new subscription still gets: a share of work at a time, and nothing it should not."""

from collections.abc import Iterator

from penstock.core.delivery.outbox import Entry
from penstock.core.settings import CoreSettings
from penstock.core.topics.registry import Registry
from penstock.core.topics.retained import VAIN_NODES
from penstock.core.topics.retained_backlog import Backlog, take_from
from penstock.core.topics.retained_value import RetainedValue
from penstock.core.topics.topic import Topic
from penstock.model import Door
from penstock.runs import NEVER
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run

MANY_BYTES = 1_000_000
VALUE_BYTES = 32
"""What each value of `topic` weighs: its payload, and its stamps."""
FORM = PlainEncoding(qos=1, is_retained=True)


class Looking:
    """An iterator that counts how often it was asked."""

    def __init__(self, found: list[Topic | None]) -> None:
        self._found = iter(found)
        self.looks = 0

    def __iter__(self) -> Iterator[Topic | None]:
        return self

    def __next__(self) -> Topic | None:
        self.looks += 1
        return next(self._found)


def topic(name: str, offset: int = 1, *, sender: str = "s", expires_at: float = NEVER) -> Topic:
    made = Registry(CoreSettings()).make(name)
    run = make_run(name, b"12345678", offset=offset, retain=True, expires_at=expires_at)
    run.client_id = sender
    made.retained = RetainedValue.of(run, run.shape)
    return made


def backlog_of(*found: Topic | None, encoding: PlainEncoding = FORM, head: int = 100) -> Backlog:
    return Backlog(iter(found), encoding, head, "r", Door.MQTT)


def names(entries: list[Entry]) -> list[str]:
    return [run.topic for run, _ in entries]


def test_values_are_taken_up_to_the_steps_and_then_from_there_on() -> None:
    looking = Looking([topic(f"a/{number}") for number in range(7)])
    backlog = Backlog(looking, FORM, 100, "r", Door.MQTT)
    taken, left = backlog.take(MANY_BYTES, 5, 0.0)
    assert (names(taken), left, looking.looks) == ([f"a/{number}" for number in range(5)], 0, 5)
    assert not backlog.is_finished
    taken, left = backlog.take(MANY_BYTES, 5, 0.0)
    assert (names(taken), left) == (["a/5", "a/6"], 2)
    assert backlog.is_finished


def test_looking_in_vain_uses_up_the_steps_too() -> None:
    looking = Looking([None] * 1_000)
    backlog = Backlog(looking, FORM, 100, "r", Door.MQTT)
    taken, left = backlog.take(MANY_BYTES, 2 * VAIN_NODES + 1, 0.0)
    assert (taken, left <= 0, looking.looks) == ([], True, 3)
    assert not backlog.is_finished


def test_values_that_are_left_out_use_up_the_steps_too() -> None:
    looking = Looking([topic(f"a/{number}", offset=101) for number in range(1_000)])
    assert Backlog(looking, FORM, 100, "r", Door.MQTT).take(MANY_BYTES, 50, 0.0) == ([], 0)
    assert looking.looks == 50


def test_values_are_taken_up_to_about_the_bytes() -> None:
    backlog = backlog_of(*[topic(f"a/{number}") for number in range(10)])
    assert len(backlog.take(2 * VALUE_BYTES + 1, 500, 0.0)[0]) == 3
    assert len(backlog.take(1, 500, 0.0)[0]) == 1


def test_newer_deleted_and_expired_values_are_left_out() -> None:
    deleted = topic("deleted")
    deleted.retained = None
    backlog = backlog_of(
        topic("last", 100),
        topic("newer", 101),
        deleted,
        topic("expired", expires_at=50.0),
        topic("living", expires_at=50.1),
    )
    assert names(backlog.take(MANY_BYTES, 500, 50.0)[0]) == ["last", "living"]


def test_own_values_are_left_out_under_no_local_only() -> None:
    found = topic("own", sender="r"), topic("other", sender="s")
    assert names(backlog_of(*found).take(MANY_BYTES, 500, 0.0)[0]) == ["own", "other"]
    no_local = PlainEncoding(no_local=True)
    assert names(backlog_of(*found, encoding=no_local).take(MANY_BYTES, 500, 0.0)[0]) == ["other"]


def test_a_new_form_holds_for_what_was_not_taken_yet() -> None:
    backlog = backlog_of(topic("a"), topic("b"))
    assert [encoding for _, encoding in backlog.take(1, 500, 0.0)[0]] == [FORM]
    backlog.encoding = PlainEncoding(identifiers=(7,))
    assert [encoding for _, encoding in backlog.take(1, 500, 0.0)[0]] == [PlainEncoding(identifiers=(7,))]


def test_backlogs_follow_one_another_and_finished_ones_are_removed() -> None:
    backlogs = {"a": backlog_of(topic("a")), "b": backlog_of(topic("b1"), topic("b2")), "c": backlog_of()}
    entries, left = take_from(backlogs, MANY_BYTES, 3, 0.0)
    assert (names(entries), left, list(backlogs)) == (["a", "b1"], 0, ["b", "c"])
    entries, left = take_from(backlogs, MANY_BYTES, 500, 0.0)
    assert (names(entries), left, backlogs) == (["b2"], 497, {})


def test_bytes_are_counted_over_all_backlogs() -> None:
    backlogs = {name: backlog_of(topic(name)) for name in "abcdef"}
    assert names(take_from(backlogs, 2 * VALUE_BYTES + 1, 500, 0.0)[0]) == ["a", "b", "c"]
    assert names(take_from(backlogs, 2 * VALUE_BYTES + 1, 500, 0.0)[0]) == ["d", "e", "f"]


def test_backlogs_without_any_value_use_up_the_steps_too() -> None:
    backlogs = {f"a/{number}": backlog_of() for number in range(1_000)}
    assert take_from(backlogs, MANY_BYTES, 300, 0.0) == ([], 0)
    assert len(backlogs) == 700


def test_the_value_of_a_topic_that_several_filters_match_is_sent_once() -> None:
    told: set[str] = set()
    both, first, second = topic("both"), topic("first"), topic("second")
    backlogs = {
        "+": Backlog(iter((both, first)), FORM, 100, "r", Door.MQTT, sent_topics=told),
        "#": Backlog(iter((second, both)), FORM, 100, "r", Door.MQTT, sent_topics=told),
    }
    entries, _ = take_from(backlogs, MANY_BYTES, 100, 0.0)
    assert names(entries) == ["both", "first", "second"]
