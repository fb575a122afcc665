"""Sessions that say how many messages they take: never one more, nothing lost, nothing overtaken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.settings import CoreSettings, OutboxSettings, RingSettings
from penstock.model import Policy
from tests.core.replay.followers import Joiner, numbers, publish
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.examples import examples


def counting(stage: Stage, client_id: str = "r", credit: int = 0, room_bytes: int | None = None) -> Client:
    """A client that counts from the beginning."""
    client = stage.client(client_id, room_bytes=room_bytes)
    stage.broker.grant(client.session, credit)
    return client


def small_stage(messages: int = 100) -> Stage:
    return Stage(CoreSettings(outbox=OutboxSettings(messages=messages)))


def test_no_more_leaves_than_was_granted() -> None:
    stage = small_stage()
    reader, sender = counting(stage, credit=2), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    assert (reader.take_payloads(), reader.session.credit) == (numbers(1, 2), 0)
    stage.broker.grant(reader.session, 2)
    assert (reader.take_payloads(), reader.session.credit) == (numbers(3, 4), 0)
    stage.broker.grant(reader.session, 9)
    assert (reader.take_payloads(), reader.session.credit) == (numbers(5, 5), 8)


def test_a_run_of_many_messages_is_cut() -> None:
    stage = small_stage()
    reader, sender = counting(stage, credit=4), stage.client("s")
    reader.subscribe("a")
    sender.publish("a", *numbers(1, 3))
    sender.publish("a", *numbers(4, 6))
    stage.settle()
    assert reader.take_payloads() == numbers(1, 4)
    stage.broker.grant(reader.session, 1)
    assert reader.take_payloads() == numbers(5, 5)


def test_what_there_is_credit_for_leaves_in_one_write_with_the_flush() -> None:
    stage = small_stage(messages=3)
    reader, sender = counting(stage, credit=100), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 20))
    stage.broker.deliver_now()
    assert [data.count(b"\n") for data in reader.connection.writes] == [20], "limits are for what waits"


def test_limits_are_for_what_there_is_no_credit_for() -> None:
    stage = small_stage(messages=2)
    reader, sender = counting(stage, credit=1), stage.client("s")
    reader.subscribe("a", policy=Policy.DROP_OLDEST)
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    stage.broker.grant(reader.session, 9)
    assert reader.take_payloads() == [*numbers(1, 1), *numbers(4, 5)]
    assert stage.losses("r") == [("a", 2, 3, "outbox-full")]


def test_who_has_credit_is_not_slow() -> None:
    stage = small_stage()
    reader, sender = counting(stage, credit=5), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    assert reader.session not in stage.broker.slow_consumers.watched
    publish(sender, "a", numbers(6, 6))
    stage.settle()
    assert reader.session in stage.broker.slow_consumers.watched
    stage.broker.grant(reader.session, 1)
    assert reader.session not in stage.broker.slow_consumers.watched


def test_a_publisher_waits_under_block_until_there_is_credit() -> None:
    stage = small_stage(messages=1)
    reader, sender = counting(stage), stage.client("s")
    reader.subscribe("a", policy=Policy.BLOCK)
    publish(sender, "a", numbers(1, 2))
    stage.settle()
    assert sender.connection.is_blocked
    stage.broker.grant(reader.session, 1)
    assert not sender.connection.is_blocked


def test_retained_values_are_counted_as_well() -> None:
    stage = small_stage()
    sender = stage.client("s")
    for name in ("a/1", "a/2", "a/3"):
        sender.publish(name, b"value", retain=True)
    reader = counting(stage, credit=2)
    reader.subscribe("a/#")
    stage.settle()
    assert len(reader.take()) == 2
    stage.broker.grant(reader.session, 1)
    stage.settle()
    assert len(reader.take()) == 1


def test_what_has_expired_costs_nothing() -> None:
    stage = small_stage()
    reader, sender = counting(stage), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 1), ttl=1.0)
    publish(sender, "a", numbers(2, 2))
    stage.settle()
    stage.scheduler.advance(2.0)
    stage.broker.grant(reader.session, 1)
    assert reader.take_payloads() == numbers(2, 2)


def test_members_of_a_shared_group_get_what_they_take() -> None:
    stage = small_stage()
    one, other, sender = counting(stage, "one", 2), counting(stage, "other", 1), stage.client("s")
    for member in (one, other):
        member.subscribe("$share/g/a")
    publish(sender, "a", numbers(1, 6))
    stage.settle()
    first, second = one.take_payloads(), other.take_payloads()
    assert (len(first), len(second), sorted(first + second)) == (2, 1, numbers(1, 3))
    stage.broker.grant(other.session, 100)
    stage.settle()
    assert other.take_payloads() == numbers(4, 6)


async def test_a_past_is_sent_as_credit_is_given() -> None:
    stage = small_stage()
    sender, joiner = stage.client("s"), Joiner(stage)
    stage.broker.grant(joiner.client.session, 2)
    publish(sender, "a", numbers(1, 5))
    joiner.join("a", stage.broker.history.cursor(0))
    stage.settle()
    assert (joiner.got, joiner.statements) == (numbers(1, 2), [])
    publish(sender, "a", numbers(6, 6))
    stage.broker.grant(joiner.client.session, 3)
    stage.settle()
    assert (joiner.got, joiner.client.session.credit) == (numbers(1, 5), 0)
    stage.broker.grant(joiner.client.session, 9)
    await joiner.settle()
    assert (joiner.got, [each.is_complete for each in joiner.statements]) == (numbers(1, 6), [True])


async def test_a_past_that_waits_for_credit_is_not_dropped_for_what_is_live() -> None:
    stage = small_stage(messages=3)
    sender, joiner = stage.client("s"), Joiner(stage)
    session = joiner.client.session
    stage.broker.grant(session, 2)
    joiner.client.subscribe("live", policy=Policy.DROP_OLDEST)
    publish(sender, "a", numbers(1, 9))
    joiner.join("a", stage.broker.history.cursor(0))
    publish(sender, "live", numbers(20, 21))
    stage.settle()
    assert (joiner.got, stage.broker.position_of(session)) == (numbers(1, 2), 2)
    stage.broker.grant(session, 100)
    await joiner.settle()
    assert (sorted(joiner.got), stage.losses()) == ([*numbers(1, 9), *numbers(20, 21)], [])
    assert [(each.served, each.is_complete) for each in joiner.statements] == [(9, True)]


def test_a_join_without_a_past_needs_no_credit() -> None:
    stage = small_stage()
    sender, joiner = stage.client("s"), Joiner(stage)
    stage.broker.grant(joiner.client.session, 0)
    joiner.join("a", stage.broker.history.cursor())
    assert len(joiner.statements) == 1
    publish(sender, "a", numbers(1, 1))
    stage.settle()
    assert joiner.got == []
    stage.broker.grant(joiner.client.session, 1)
    assert joiner.got == numbers(1, 1)


MOVES = st.lists(
    st.tuples(st.sampled_from(["publish", "grant", "turn", "pause", "unpause"]), st.integers(1, 5)),
    max_size=60,
)


@examples(40)
@given(journal=MOVES, is_joined=st.booleans())
def test_whatever_happens_credit_is_exact_and_nothing_is_lost(
    journal: list[tuple[str, int]], is_joined: bool
) -> None:
    stage = Stage(CoreSettings(ring=RingSettings(messages=1_000)))
    sender, joiner = stage.client("s"), Joiner(stage, room_bytes=40)
    granted, published = 0, 0
    stage.broker.grant(joiner.client.session, 0)
    for number, (kind, count) in enumerate([("publish", 3), *journal]):
        if number == 1:
            joiner.join("a", stage.broker.history.cursor(0) if is_joined else None)
        if kind == "publish":
            sender.publish("a", *numbers(published + 1, published + count))
            published += count
        elif kind == "grant":
            stage.broker.grant(joiner.client.session, count)
            granted += count
        elif kind == "turn":
            stage.scheduler.turn()
        else:
            getattr(joiner.client, kind)()
        assert joiner.count <= granted
    stage.broker.grant(joiner.client.session, 1_000)
    for _ in range(published + 5):
        stage.settle()
        joiner.client.unpause()
    first = 1 if is_joined and journal else 4
    expected = numbers(first, published) if journal else []
    assert joiner.got == expected
    assert joiner.client.session.credit == granted + 1_000 - len(expected)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_session_that_does_not_count_is_on_the_fast_path(is_stored: bool) -> None:
    stage = Stage(disk=Disk() if is_stored else None)
    reader, sender = stage.client("r"), stage.client("s")
    reader.subscribe("a")
    publish(sender, "a", numbers(1, 3))
    stage.settle()
    assert reader.session.is_flowing and reader.session.outbox is None
    assert reader.take_payloads() == numbers(1, 3)
