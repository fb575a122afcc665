"""Who is slow, since when, and until when that is remembered."""

import pytest

from penstock.core.diagnostics.slow_consumers import SlowClient
from penstock.core.settings import CoreSettings, OutboxSettings, SessionSettings, SlowSettings
from penstock.model import Door, Policy
from tests.support.broker import Client, Stage
from tests.support.disk import Disk


def stage_of(messages: int = 3, **slow: float) -> Stage:
    return Stage(
        CoreSettings(outbox=OutboxSettings(messages=messages), slow=SlowSettings(**slow))  # type: ignore[arg-type]
    )


def reader_of(stage: Stage, client_id: str = "r", policy: Policy = Policy.DROP_OLDEST) -> Client:
    reader = stage.client(client_id)
    reader.subscribe("a", policy=policy)
    return reader


def publish(stage: Stage, count: int = 1) -> None:
    sender = stage.client("s")
    for _ in range(count):
        sender.publish("a", b"12345")
    stage.settle()


def only(stage: Stage) -> SlowClient:
    (client,) = stage.broker.slow_consumers.clients()
    return client


def test_who_waits_for_less_than_a_second_is_not_slow() -> None:
    stage = stage_of()
    reader = reader_of(stage)
    reader.pause()
    publish(stage)
    stage.advance(0.9)
    assert stage.broker.slow_consumers.clients() == []
    reader.unpause()
    stage.advance(5.0)
    assert (stage.broker.slow_consumers.clients(), stage.broker.slow_consumers.watched) == ([], {})


def test_who_waits_for_a_second_is_slow() -> None:
    stage = stage_of()
    reader = reader_of(stage)
    reader.pause()
    publish(stage, 2)
    before = stage.clock.wall_us()
    stage.advance(1.0)
    assert only(stage) == SlowClient(
        client_id="r",
        door=Door.MQTT,
        is_slow=True,
        is_connected=True,
        recovered=False,
        waiting_messages=2,
        waiting_bytes=10,
        oldest_age_s=1.0,
        dropped=0,
        policy=Policy.DROP_OLDEST,
        first_slow_at=before + 1_000_000,
        last_slow_at=before + 1_000_000,
    )
    assert (stage.broker.slow_consumers.count, stage.broker.slow_consumers.total) == (1, 1)
    stage.advance(2.0)
    assert (only(stage).first_slow_at, only(stage).last_slow_at) == (before + 1_000_000, before + 3_000_000)
    assert only(stage).oldest_age_s == 3.0


def test_a_full_socket_alone_makes_nobody_slow() -> None:
    stage = stage_of()
    reader_of(stage).pause()
    stage.advance(10.0)
    assert stage.broker.slow_consumers.clients() == []


def test_who_catches_up_between_two_looks_begins_anew() -> None:
    stage = stage_of()
    reader = reader_of(stage)
    for _ in range(4):
        reader.pause()
        publish(stage)
        stage.advance(0.6)
        reader.unpause()
    assert stage.broker.slow_consumers.clients() == []


def test_who_loses_something_is_slow_at_once() -> None:
    stage = stage_of(messages=3)
    reader_of(stage).pause()
    publish(stage, 5)
    assert (only(stage).dropped, only(stage).waiting_messages) == (2, 3)
    publish(stage)
    assert only(stage).dropped == 3


@pytest.mark.parametrize("policy", [Policy.DROP_OLDEST, Policy.DROP_NEWEST])
def test_the_policy_is_told(policy: Policy) -> None:
    stage = stage_of(messages=1)
    reader_of(stage, policy=policy).pause()
    publish(stage, 2)
    assert only(stage).policy is policy


def test_who_is_closed_for_being_slow_is_told_of() -> None:
    stage = stage_of(messages=1)
    reader = reader_of(stage, policy=Policy.DISCONNECT)
    reader.pause()
    publish(stage, 2)
    assert (only(stage).policy, stage.broker.slow_consumers.total) == (Policy.DISCONNECT, 1)
    assert (only(stage).is_slow, only(stage).is_connected, only(stage).recovered) == (False, False, False)


def test_who_is_closed_and_owed_the_rest_is_told_of_too() -> None:
    stage = stage_of(messages=1)
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1, policy=Policy.DISCONNECT)
    reader.pause()
    for _ in range(2):
        stage.client("s").publish("a", b"1", qos=1)
    stage.settle()
    assert (only(stage).policy, only(stage).dropped) == (Policy.DISCONNECT, 0)
    assert (only(stage).is_slow, only(stage).is_connected, only(stage).recovered) == (False, False, False)


def test_who_caught_up_has_recovered_and_is_remembered_for_a_while() -> None:
    stage = stage_of(keep_s=600.0)
    reader = reader_of(stage)
    reader.pause()
    publish(stage, 2)
    stage.advance(1.0)
    reader.unpause()
    assert (only(stage).is_slow, only(stage).recovered, only(stage).is_connected) == (False, True, True)
    assert (only(stage).waiting_messages, only(stage).oldest_age_s) == (0, 0.0)
    assert stage.broker.slow_consumers.count == 0
    stage.advance(599.0)
    assert only(stage).recovered
    stage.advance(1.0)
    assert stage.broker.slow_consumers.clients() == []


def test_who_waits_for_nothing_any_more_has_recovered() -> None:
    stage = stage_of()
    reader = reader_of(stage)
    reader.pause()
    stage.client("s").publish("a", b"1", ttl=2.0)
    stage.settle()
    stage.advance(1.0)
    assert only(stage).is_slow
    stage.advance(1.0)
    assert (only(stage).is_slow, only(stage).recovered) == (False, True)


def test_who_went_while_it_was_slow_has_not_recovered() -> None:
    stage = stage_of(keep_s=60.0)
    reader = reader_of(stage)
    reader.pause()
    publish(stage)
    stage.advance(1.0)
    reader.drop()
    assert (only(stage).is_slow, only(stage).recovered, only(stage).is_connected) == (False, False, False)
    assert stage.broker.slow_consumers.count == 0
    stage.advance(60.0)
    assert stage.broker.slow_consumers.clients() == []


def test_who_is_slow_again_keeps_its_first_time_and_what_it_lost() -> None:
    stage = stage_of(messages=1)
    reader = reader_of(stage)
    for _ in range(2):
        reader.pause()
        publish(stage, 2)
        reader.unpause()
        stage.advance(10.0)
    now = stage.clock.wall_us()
    assert (only(stage).dropped, stage.broker.slow_consumers.total) == (2, 2)
    assert (now - only(stage).first_slow_at, now - only(stage).last_slow_at) == (20_000_000, 10_000_000)


def test_what_somebody_else_lost_under_the_same_client_id_is_not_shown() -> None:
    stage = stage_of(messages=1)
    for user in ("ann", "bob"):
        reader = stage.client("r", user=user)
        reader.subscribe("a", policy=Policy.DROP_OLDEST)
        reader.pause()
        publish(stage, 3)
    assert only(stage).dropped == 2


def test_who_is_away_is_not_slow() -> None:
    stage = Stage(CoreSettings(sessions=SessionSettings(owed_messages=1)))
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.drop()
    sender = stage.client("s")
    sender.publish("a", b"1", b"2", b"3", qos=1)
    stage.settle()
    stage.advance(5.0)
    assert stage.why("a", 3, "r") == "owed-full"
    assert stage.broker.slow_consumers.clients() == []


def test_who_comes_back_and_does_not_read_what_it_is_owed_is_slow() -> None:
    stage = stage_of()
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.drop()
    stage.client("s").publish("a", b"1", b"2", qos=1)
    stage.settle()
    stage.advance(10.0)
    back = stage.client("r", clean=False, expiry=60.0, window=1)
    stage.settle()
    assert back.take_payloads() == [b"1"]
    stage.advance(1.0)
    assert (only(stage).waiting_messages, only(stage).oldest_age_s) == (1, 1.0)


def test_what_waits_in_the_log_counts() -> None:
    settings = CoreSettings(outbox=OutboxSettings(messages=1))
    stage = Stage(settings, disk=Disk())
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.pause()
    for _ in range(4):
        stage.client("s").publish("a", b"12345", qos=1)
    stage.settle()
    stage.advance(1.0)
    assert (only(stage).waiting_messages, only(stage).waiting_bytes) == (4, 20)
    assert only(stage).dropped == 0


def test_what_the_log_would_have_had_to_keep_beyond_its_limit_counts_as_dropped() -> None:
    settings = CoreSettings(outbox=OutboxSettings(messages=1), sessions=SessionSettings(owed_messages=2))
    stage = Stage(settings, disk=Disk())
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1, policy=Policy.DROP_OLDEST)
    reader.pause()
    for _ in range(5):
        stage.client("s").publish("a", b"12345", qos=1)
    stage.settle()
    assert (only(stage).dropped, only(stage).waiting_messages) == (2, 3)


def test_there_is_room_for_so_many_and_those_who_recovered_make_room() -> None:
    stage = stage_of(messages=1, max_clients=2)
    slow = stage.broker.slow_consumers
    readers = [reader_of(stage, name) for name in ("one", "two")]
    for reader in readers:
        reader.pause()
    publish(stage, 2)
    third = reader_of(stage, "three")
    third.pause()
    publish(stage, 2)
    assert [client.client_id for client in slow.clients()] == ["one", "two"]
    assert (slow.count, slow.left_out) == (3, 1), "it is counted all the same"
    for reader in (readers[0], third):
        reader.unpause()
    third.pause()
    publish(stage, 2)
    assert [client.client_id for client in slow.clients()] == ["two", "three"]


def test_only_those_are_looked_at_for_whom_something_waits() -> None:
    stage = stage_of()
    for number in range(10):
        reader_of(stage, f"r{number}")
    reader = reader_of(stage)
    reader.pause()
    publish(stage)
    assert list(stage.broker.slow_consumers.watched) == [reader.session]
