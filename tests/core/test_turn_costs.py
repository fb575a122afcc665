"""Cost of a turn: work that one client causes does not stop the loop for others.

Each test measures the processor time of the longest turn, at a size at which the whole work takes many
times the limit. The aim is 20 ms; the limit here leaves room for slow machines. A story with a longer turn
is told again: a machine that is slow for a moment is slow once, work that is not cut is slow each time.
"""

import functools
import gc
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.runtime.deadlines import Timeouts
from penstock.core.settings import CoreSettings, OutboxSettings, RingSettings
from penstock.model import Policy, Reason, Will
from tests.support.broker import Client, Stage
from tests.support.clock import CpuClock, ManualScheduler

LIMIT_S = 0.06
TRIES = 3
TOPICS = [f"t/{number}" for number in range(50)]
QUEUED = 3_000


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """Leave out the garbage collector, which runs when the tests before have left much behind."""
    gc.disable()
    yield
    gc.enable()


def make_stage(settings: CoreSettings | None = None) -> Stage:
    return Stage(settings, clock=CpuClock())


class TurnTooLong(AssertionError):
    """The longest turn took more than its limit."""


def measured(story: Callable[[], None]) -> Callable[[], None]:
    """Tell a story up to three times, until no turn of it takes too long."""

    @functools.wraps(story)
    def tell() -> None:
        for left in reversed(range(TRIES)):
            try:
                return story()
            except TurnTooLong as slow:
                print(slow)
                if not left:
                    raise
        return None

    return tell


def settle(stage: Stage) -> None:
    """Turn until nothing waits, whatever it takes."""
    stage.scheduler.longest_turn()


def check_turns(scheduler: ManualScheduler) -> None:
    """Turn until nothing waits; no turn may take more than the limit."""
    longest = scheduler.longest_turn()
    if longest >= LIMIT_S:
        raise TurnTooLong(f"a turn took {longest * 1000:.1f} ms of CPU, limit {LIMIT_S * 1000:.0f}")


def publish_many(stage: Stage, publisher: Client, count: int, *, qos: int = 0, ttl: float = 0.0) -> None:
    """Publish to alternating topics, some messages in each turn."""
    for number in range(count):
        publisher.publish(TOPICS[number % len(TOPICS)], b"%08d" % number, qos=qos, ttl=ttl)
        if number % 100 == 99:
            settle(stage)
    settle(stage)


# Queues that are given up


@measured
def test_crowd_of_slow_readers_is_cut_in_steps_and_everything_is_recorded() -> None:
    readers_count = 40
    stage = make_stage(CoreSettings(outbox=OutboxSettings(messages=QUEUED)))
    readers = [stage.client(f"r{number}") for number in range(readers_count)]
    for reader in readers:
        reader.subscribe("t/#", policy=Policy.DISCONNECT)
        reader.pause()
    publisher = stage.client("p")
    publish_many(stage, publisher, QUEUED)
    for topic in TOPICS:
        publisher.publish(topic, b"one more")
    check_turns(stage.scheduler)
    lost = QUEUED + len(TOPICS)
    assert all(reader.connection.closed == "slow" for reader in readers)
    assert stage.broker.ledger.counts == {Reason.OUTBOX_FULL: readers_count * lost}
    assert {row.dropped for row in stage.broker.slow_consumers.clients()} == {lost}
    rows = list(stage.broker.ledger.rows(client_id="r7"))
    assert sum(row.count for row in rows) == lost
    assert all(stage.why(topic, lost // len(TOPICS), "r7") == "outbox-full" for topic in TOPICS)
    assert list(stage.broker.sessions) == ["p"]


def test_cut_reader_that_returns_before_its_losses_are_recorded_starts_anew() -> None:
    stage = make_stage(CoreSettings(outbox=OutboxSettings(messages=QUEUED)))
    readers = [stage.client(f"r{number}") for number in range(20)]
    for reader in readers:
        reader.subscribe("t/#", policy=Policy.DISCONNECT)
        reader.pause()
    publisher = stage.client("p")
    publish_many(stage, publisher, QUEUED)
    publisher.publish("t/1", b"one more")
    while readers[0].connection.closed is None:
        stage.scheduler.turn()
    back = stage.client("r0")
    assert not back.is_known
    back.subscribe("t/#")
    publisher.publish("t/2", b"news")
    settle(stage)
    assert back.take_payloads() == [b"news"]
    assert sum(row.count for row in stage.broker.ledger.rows(client_id="r0")) == QUEUED + 1


@measured
def test_many_with_long_queues_disconnect_in_steps() -> None:
    stage = make_stage()
    readers = [stage.client(f"r{number}") for number in range(20)]
    for reader in readers:
        reader.subscribe("t/#")
        reader.pause()
    publish_many(stage, stage.client("p"), QUEUED)
    for reader in readers:
        stage.scheduler.call_soon(reader.drop)
    check_turns(stage.scheduler)
    assert stage.broker.ledger.counts == {Reason.DISCONNECTED: 20 * QUEUED}


@measured
def test_many_persistent_sessions_with_long_queues_disconnect_in_steps_and_lose_nothing() -> None:
    stage = make_stage()
    readers = [stage.client(f"r{number}", clean=False, expiry=60.0) for number in range(20)]
    for reader in readers:
        reader.subscribe("t/#", qos=1)
        reader.pause()
    publish_many(stage, stage.client("p"), QUEUED, qos=1)
    for reader in readers:
        stage.scheduler.call_soon(reader.drop)
    stage.scheduler.turn()
    early = stage.client("r19", clean=False, expiry=60.0)  # perhaps before its session was detached
    check_turns(stage.scheduler)
    assert early.is_known
    assert early.take_payloads() == [b"%08d" % number for number in range(QUEUED)]
    late = stage.client("r3", clean=False, expiry=60.0)
    check_turns(stage.scheduler)
    assert late.take_payloads() == [b"%08d" % number for number in range(QUEUED)]
    assert stage.broker.ledger.counts == {}


# Subscriptions


@measured
def test_sessions_with_many_filters_end_at_once_and_leave_their_groups_in_steps() -> None:
    stage, each = make_stage(), 2_000
    sessions = [stage.client(f"c{number}") for number in range(10)]
    for client in sessions:
        for number in range(each):
            client.subscribe(
                f"{client.client_id}/{number}/+" if number % 2 else f"{client.client_id}/{number}"
            )
    others = stage.client("others")
    others.subscribe("c1/#")
    settle(stage)
    for client in sessions:
        stage.scheduler.call_soon(client.drop)
    stage.scheduler.turn()
    assert list(stage.broker.sessions) == ["others"]
    counters = stage.broker.counters
    assert counters.subscriptions_added - counters.subscriptions_removed == 1
    assert stage.broker.filter_count > 1, "there is nothing left to do in steps"
    again = stage.client("c1")
    again.subscribe("c1/7/+")
    others.publish(f"c1/{each - 1}/x", b"to the others")
    others.publish("c1/7/x", b"to both")
    check_turns(stage.scheduler)
    assert again.take_payloads() == [b"to both"]
    assert others.take_payloads() == [b"to the others", b"to both"]
    assert not any(client.take() for client in sessions)
    assert stage.broker.filter_count == 2
    assert stage.broker.subscriber_count("c2/7/x") == 0
    assert stage.broker.ledger.counts == {}


@measured
def test_audience_of_thousands_of_overlapping_filters_is_found_in_one_step() -> None:
    stage, levels = make_stage(), 12
    reader, publisher = stage.client("r"), stage.client("p")
    for choice in product("+x", repeat=levels):
        reader.subscribe("/".join(choice))
    settle(stage)

    def publish() -> None:
        publisher.publish("/".join("x" * levels), b"once")

    stage.scheduler.call_soon(publish)
    check_turns(stage.scheduler)
    assert reader.take_payloads() == [b"once"]


@measured
def test_filter_costs_the_same_however_many_a_session_has() -> None:
    stage = make_stage()
    client = stage.client("c")
    for number in range(9_000):
        client.subscribe(f"a/{number}/+")

    def change() -> None:
        for number in range(20):
            client.subscribe(f"b/{number}/+")
            client.unsubscribe(f"b/{number}/+")

    stage.scheduler.call_soon(change)
    check_turns(stage.scheduler)


# Retained values


@measured
def test_many_subscribers_of_everything_get_retained_values_in_steps_and_once() -> None:
    stage, values = make_stage(), 3_000
    publisher = stage.client("p")
    for number in range(values):
        publisher.publish(f"r/{number % 50}/{number}", b"%08d" % number, retain=True)
    settle(stage)
    readers = [stage.client(f"r{number}") for number in range(10)]

    def subscribe() -> None:
        for _ in range(20):
            for reader in readers:
                reader.subscribe("#")

    stage.scheduler.call_soon(subscribe)
    stage.scheduler.turn()
    publisher.publish("live", b"live")
    check_turns(stage.scheduler)
    for reader in readers:
        assert sorted(reader.take_payloads()) == [*(b"%08d" % number for number in range(values)), b"live"]


# Time


@measured
def test_sessions_wills_and_values_that_expire_together_end_in_steps() -> None:
    stage, count = make_stage(), 2_000
    watcher = stage.client("w")
    watcher.subscribe("will/#")
    clients = [
        stage.client(f"c{number}", expiry=2.0, will=Will(f"will/{number}", b"gone", 0, False, delay=1.0))
        for number in range(count)
    ]
    for client in clients:
        client.subscribe("a/+", qos=1)
        client.publish(f"v/{client.client_id}", b"value", retain=True, ttl=2.0)
        client.drop()
    settle(stage)
    stage.clock.advance(3.0)
    stage.scheduler.call_soon(stage.broker.reap)
    check_turns(stage.scheduler)
    assert len(watcher.take()) == count
    assert list(stage.broker.sessions) == ["w"]
    assert len(stage.broker.retained) == 0


@measured
def test_queued_messages_that_expire_together_are_removed_in_steps() -> None:
    stage = make_stage()
    readers = [stage.client(f"r{number}") for number in range(20)]
    for reader in readers:
        reader.subscribe("t/#")
        reader.pause()
    publish_many(stage, stage.client("p"), QUEUED, ttl=100.0)
    stage.clock.advance(101.0)
    stage.scheduler.call_soon(stage.broker.reap)
    check_turns(stage.scheduler)
    assert stage.broker.ledger.counts == {Reason.EXPIRED: 20 * QUEUED}


@measured
def test_unused_topics_are_forgotten_in_steps_and_no_sequence_is_given_twice() -> None:
    most = 10_000
    stage = make_stage(CoreSettings(topic=TopicLimits(max_topics=most), ring=RingSettings(messages=0)))
    publisher = stage.client("p")
    for number in range(most):
        publisher.publish(f"n/{number}", b"x")
    settle(stage)
    stage.scheduler.call_soon(stage.broker.reap)
    check_turns(stage.scheduler)
    assert len(stage.broker.topics) == 0
    assert publisher.publish("n/0", b"again").run.sequence == 2


@measured
def test_objects_that_are_due_together_are_notified_in_steps() -> None:
    clock = CpuClock()
    scheduler, seen = ManualScheduler(clock), list[int]()

    def work(number: int) -> None:
        seen.append(sum(range(2_000)) - sum(range(2_000)) + number)

    timeouts = Timeouts(clock, scheduler, work)
    for number in range(3_000):
        timeouts.add(number, clock.monotonic() + 1.0)
    clock.advance(2.0)
    check_turns(scheduler)
    assert sorted(seen) == list(range(3_000))
    assert len(timeouts) == 0
