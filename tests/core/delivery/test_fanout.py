"""Slow subscribers: outboxes, policies, windows, expiry; and that nothing is ever lost silently."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.delivery.drain import CHUNK_BYTES, TURN_BYTES
from penstock.core.delivery.outbox import Outbox
from penstock.core.publishing.outcome import Outcome
from penstock.core.settings import CoreSettings, OutboxSettings, SessionSettings, TopicRule
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Policy
from penstock.runs import Run
from tests.support.broker import Client, Stage
from tests.support.encodings import PlainEncoding
from tests.support.examples import examples


def numbers(first: int, last: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(first, last + 1)]


def publish_all(sender: Client, payloads: list[bytes], topic: str = "a", qos: int = 0) -> None:
    for payload in payloads:
        sender.publish(topic, payload, qos=qos)


def small_stage(messages: int = 3, **settings: object) -> Stage:
    return Stage(CoreSettings(outbox=OutboxSettings(messages=messages, **settings)))  # type: ignore[arg-type]


# Waiting


@pytest.mark.parametrize("qos", [0, 1])
def test_a_paused_subscriber_gets_everything_in_order_when_it_reads_again(qos: int) -> None:
    stage = Stage()
    sender, reader, other = stage.client("s"), stage.client("r"), stage.client("o")
    for client in (reader, other):
        client.subscribe("#", qos)
    reader.pause()
    publish_all(sender, numbers(1, 5), qos=qos)
    publish_all(sender, numbers(6, 9), topic="b", qos=qos)
    stage.settle()
    assert reader.take() == []
    assert other.take_payloads() == numbers(1, 9)
    reader.unpause()
    assert reader.take_payloads() == numbers(1, 9)


def test_who_caught_up_is_on_the_fast_path_again() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    publish_all(sender, numbers(1, 2))
    stage.settle()
    assert not reader.session.is_flowing
    reader.unpause()
    assert reader.session.is_flowing
    publish_all(sender, numbers(3, 4))
    stage.settle()
    assert reader.take_payloads() == numbers(1, 4)
    assert len(reader.connection.writes) == 2


def test_messages_published_while_it_catches_up_stay_behind_those_that_wait() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", room_bytes=100)
    reader.subscribe("a")
    reader.pause()
    publish_all(sender, [b"x" * CHUNK_BYTES + payload for payload in numbers(1, 3)])
    stage.settle()
    reader.unpause()  # takes one chunk and is full again
    publish_all(sender, numbers(4, 5))
    stage.settle()
    while reader.session.is_paused:
        reader.unpause()
        stage.settle()
    assert [payload[-3:] for payload in reader.take_payloads()] == numbers(1, 5)


def test_a_large_outbox_drains_over_several_turns_so_that_others_have_theirs() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    payload = b"x" * 60_000
    count = 3 * TURN_BYTES // len(payload)
    publish_all(sender, [payload] * count)
    stage.settle()
    reader.unpause()
    first = len(reader.take())
    assert 0 < first < count
    stage.scheduler.turn()
    second = len(reader.take())
    assert 0 < second < count
    stage.settle()
    assert first + second + len(reader.take()) == count


def test_a_socket_that_fills_up_during_a_drain_stops_it() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", room_bytes=10)
    reader.subscribe("a")
    reader.pause()
    publish_all(sender, [b"x" * CHUNK_BYTES] * 5)
    stage.settle()
    for expected in (1, 1, 1, 1, 1, 0):
        reader.unpause()
        stage.settle()
        assert len(reader.take()) == expected


# The four policies


def test_drop_newest_keeps_what_came_first() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.DROP_NEWEST)
    reader.pause()
    publish_all(sender, numbers(1, 5))
    stage.settle()
    assert stage.losses("r") == [("a", 4, 5, "outbox-full")]
    reader.unpause()
    assert reader.take_payloads() == numbers(1, 3)


def test_drop_oldest_keeps_what_came_last() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.DROP_OLDEST)
    reader.pause()
    publish_all(sender, numbers(1, 5))
    stage.settle()
    assert stage.losses("r") == [("a", 1, 2, "outbox-full")]
    reader.unpause()
    assert reader.take_payloads() == numbers(3, 5)


@pytest.mark.parametrize(
    ("policy", "kept", "lost"),
    [(Policy.DROP_NEWEST, numbers(1, 3), (4, 6)), (Policy.DROP_OLDEST, numbers(4, 6), (1, 3))],
)
def test_a_run_is_dropped_in_part_with_its_exact_range(
    policy: Policy, kept: list[bytes], lost: tuple[int, int]
) -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=policy)
    reader.pause()
    sender.publish("a", *numbers(1, 4))
    sender.publish("a", *numbers(5, 6))
    stage.settle()
    assert stage.losses("r") == [("a", *lost, "outbox-full")]
    reader.unpause()
    assert reader.take_payloads() == kept


def test_a_message_that_fits_is_taken_behind_larger_ones_that_did_not() -> None:
    stage = small_stage(messages=1_000, bytes=20)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    payloads = [b"a" * 8, b"b" * 9, b"c" * 9, b"d", b"e" * 10, b"f" * 9, b"g", b"hh", b"iii", b"j", b"k"]
    publish_all(sender, payloads)
    stage.settle()
    reader.unpause()
    assert reader.take_payloads() == [b"a" * 8, b"b" * 9, b"d", b"g", b"j"]
    assert stage.broker.ledger.counts == {"outbox-full": 6}


def test_an_outbox_is_limited_by_bytes_too() -> None:
    stage = small_stage(messages=1_000, bytes=10)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    publish_all(sender, [b"12345", b"67890", b"x"])
    stage.settle()
    reader.unpause()
    assert reader.take_payloads() == [b"12345", b"67890"]
    assert stage.losses("r") == [("a", 3, 3, "outbox-full")]


def test_messages_without_payload_are_bounded_by_their_number() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.DROP_OLDEST)
    reader.pause()
    publish_all(sender, [b""] * 10)
    stage.settle()
    assert stage.losses("r") == [("a", 1, 7, "outbox-full")]
    reader.unpause()
    assert [d.sequence for d in reader.take()] == [8, 9, 10]


def test_a_session_that_left_before_it_was_cut_gets_live_messages_when_it_is_back() -> None:
    stage = small_stage()
    sender = stage.client("s")
    reader = stage.client("r", clean=False, expiry=60.0)
    reader.subscribe("a", 1)
    stage.settle()
    reader.drop()
    stage.broker.cut_slow(reader.session)
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    publish_all(sender, numbers(1, 3))
    stage.settle()
    assert back.take_payloads() == numbers(1, 3)


def test_disconnect_closes_a_slow_subscriber_and_records_what_it_missed() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.DISCONNECT)
    reader.pause()
    publish_all(sender, numbers(1, 3))
    stage.settle()
    connection = reader.connection
    assert not connection.closed
    publish_all(sender, numbers(4, 5))
    stage.settle()
    assert (str(connection.closed), reader.session.connection) == ("slow", None)
    assert stage.losses("r") == [("a", 1, 5, "outbox-full")]
    assert {row.policy for row in stage.broker.ledger.rows(client_id="r")} == {Policy.DISCONNECT}
    assert [row.dropped for row in stage.broker.slow_consumers.clients()] == [5]


def test_who_is_disconnected_for_being_slow_still_gets_what_its_session_keeps() -> None:
    stage = small_stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1, policy=Policy.DISCONNECT)
    reader.pause()
    publish_all(sender, numbers(1, 5), qos=1)
    stage.settle()
    assert reader.connection.closed == "slow"
    back = stage.client("r", clean=False, expiry=60.0)
    stage.settle()
    assert back.take_payloads() == numbers(1, 5)
    assert stage.broker.ledger.total == 0


@pytest.mark.parametrize("policy", [Policy.DROP_NEWEST, Policy.DROP_OLDEST])
def test_a_persistent_subscriber_is_owed_what_its_outbox_cannot_take(policy: Policy) -> None:
    stage = small_stage()
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1, policy=policy)
    reader.pause()
    publish_all(sender, numbers(1, 8), qos=1)
    stage.settle()
    reader.unpause()
    stage.settle()
    assert reader.take_payloads() == numbers(1, 8)
    assert stage.broker.ledger.total == 0


def test_a_small_message_does_not_overtake_a_large_one_that_is_owed() -> None:
    stage = small_stage(messages=100, bytes=10)
    sender = stage.client("s")
    reader = stage.client("r", expiry=60.0)
    reader.subscribe("a", 1)
    reader.pause()
    publish_all(sender, [b"12345"], qos=1)
    stage.settle()  # now it has an outbox
    publish_all(sender, [b"far too large", b"x", b"y"], qos=1)
    sender.publish("a", b"z")
    stage.settle()
    reader.unpause()
    stage.settle()
    assert reader.take_payloads() == [b"12345", b"far too large", b"x", b"y", b"z"]


def test_the_ledger_tells_policy_and_setting_of_a_drop() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.DROP_OLDEST)
    reader.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    (row,) = stage.broker.ledger.rows(client_id="r")
    assert (row.policy, row.setting, row.count) == (Policy.DROP_OLDEST, "outbox", 1)
    assert row.first_at == stage.clock.wall_us()


def test_the_outcome_of_a_run_is_known_after_the_flush() -> None:
    stage = small_stage()
    sender, newest, blocker = stage.client("s"), stage.client("n"), stage.client("b")
    newest.subscribe("a", policy=Policy.DROP_NEWEST)
    blocker.subscribe("a", policy=Policy.BLOCK)
    newest.pause()
    blocker.pause()
    taken = sender.publish("a", *numbers(1, 2)).run
    partly = sender.publish("a", *numbers(3, 4)).run
    refused = sender.publish("a", *numbers(5, 6)).run
    stage.settle()
    assert stage.node.queues.outcomes.of(taken) == Outcome(0, 0)
    assert stage.node.queues.outcomes.of(partly) == Outcome(1, 1)
    assert stage.node.queues.outcomes.of(refused) == Outcome(1, 1)


def test_the_outcome_of_one_turn_says_nothing_of_the_next() -> None:
    stage = small_stage(messages=1)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    publish_all(sender, numbers(1, 1))
    dropped = sender.publish("a", b"002").run
    stage.settle()
    assert stage.node.queues.outcomes.of(dropped) == Outcome(1, 0)
    sender.publish("a", b"003")
    stage.settle()
    assert stage.node.queues.outcomes.of(dropped) == Outcome(0, 0)


# Block


@pytest.mark.parametrize(("qos", "is_unacknowledged"), [(0, True), (1, False)])
def test_block_holds_the_publisher_until_there_is_room(qos: int, is_unacknowledged: bool) -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    publish_all(sender, numbers(1, 3), qos=qos)
    stage.settle()
    assert not sender.connection.is_blocked
    publish_all(sender, numbers(4, 5), qos=qos)
    stage.settle()
    assert sender.connection.is_blocked
    assert set(sender.connection.blocks) == {is_unacknowledged}
    reader.unpause()
    assert (sender.connection.is_blocked, sender.connection.unblocks) == (False, 1)
    assert reader.take_payloads() == numbers(1, 5)
    assert stage.broker.ledger.total == 0


def test_after_the_block_timeout_the_oldest_are_dropped_and_the_publisher_goes_on() -> None:
    stage = small_stage(block_timeout_ms=2_000)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    publish_all(sender, numbers(1, 5))
    stage.settle()
    stage.scheduler.advance(1.9)
    assert sender.connection.is_blocked
    stage.scheduler.advance(0.2)
    assert not sender.connection.is_blocked
    assert stage.losses("r") == [("a", 1, 2, "block-timeout")]
    reader.unpause()
    assert reader.take_payloads() == numbers(3, 5)


def test_each_blockade_has_its_full_time() -> None:
    stage = small_stage(block_timeout_ms=2_000)
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    stage.scheduler.advance(1.5)
    reader.unpause()
    reader.pause()
    publish_all(sender, numbers(5, 8))
    stage.settle()
    stage.scheduler.advance(1.5)  # the first timer would have rung
    assert sender.connection.is_blocked
    stage.scheduler.advance(0.5)
    assert not sender.connection.is_blocked


def test_a_session_never_blocks_itself() -> None:
    stage = small_stage()
    client = stage.client("c")
    client.subscribe("a", policy=Policy.BLOCK)
    client.pause()
    publish_all(client, numbers(1, 5))
    stage.settle()
    assert client.connection.blocks == []
    assert stage.losses("c") == [("a", 1, 2, "outbox-full")]


def test_the_server_is_never_held() -> None:
    stage = small_stage(messages=1)
    reader = stage.client("r")
    reader.subscribe("$SYS/x", policy=Policy.BLOCK)
    reader.pause()
    for payload in numbers(1, 3):
        stage.broker.publish_server("$SYS/x", payload)
    stage.settle()
    reader.unpause()
    assert reader.take_payloads() == numbers(3, 3)


def test_a_publisher_is_held_once_for_the_slowest() -> None:
    stage = small_stage()
    sender, one, two = stage.client("s"), stage.client("one"), stage.client("two")
    for reader in (one, two):
        reader.subscribe("a", policy=Policy.BLOCK)
        reader.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    one.unpause()
    assert sender.connection.is_blocked
    two.unpause()
    assert (sender.connection.is_blocked, sender.connection.unblocks) == (False, 1)
    assert stage.broker.backpressure.blocked_total == 1


def test_every_publisher_of_a_full_outbox_is_held_and_released() -> None:
    stage = small_stage()
    senders, reader = [stage.client(f"s{number}") for number in range(3)], stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    publish_all(senders[0], numbers(1, 3))
    for sender in senders[1:]:
        publish_all(sender, numbers(4, 4))
    stage.settle()
    assert [sender.connection.is_blocked for sender in senders] == [False, True, True]
    reader.unpause()
    assert [sender.connection.is_blocked for sender in senders] == [False, False, False]


@pytest.mark.parametrize("leave", [Client.drop, Client.disconnect])
def test_a_slow_subscriber_that_leaves_lets_the_publisher_go(leave: Callable[[Client], None]) -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    leave(reader)
    assert not sender.connection.is_blocked
    assert stage.scheduler.timers == 0


def test_a_held_publisher_that_comes_back_is_free() -> None:
    stage = small_stage()
    sender, reader = stage.client("s", expiry=60.0), stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    publish_all(sender, numbers(1, 4))
    stage.settle()
    sender.drop()
    back = stage.client("s", clean=False, expiry=60.0)
    reader.unpause()
    assert (back.connection.blocks, back.connection.unblocks, sender.connection.unblocks) == ([], 0, 0)


def test_expiry_makes_room_and_lets_the_publisher_go() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    for payload in numbers(1, 4):
        sender.publish("a", payload, ttl=1.0)
    stage.settle()
    assert sender.connection.is_blocked
    stage.advance(1.0)
    assert not sender.connection.is_blocked
    assert stage.losses("r") == [("a", 1, 4, "expired")]


# The window


def test_a_full_window_waits_for_acknowledgements() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=2)
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 5), qos=1)
    stage.settle()
    first = reader.take()
    assert [d.payload for d in first] == numbers(1, 2)
    reader.acknowledge(first[0].number)
    stage.settle()
    assert reader.take_and_acknowledge() == numbers(3, 3)
    stage.settle()
    assert reader.take_payloads() == numbers(4, 4)
    reader.acknowledge(first[1].number)
    stage.settle()
    assert reader.take_payloads() == numbers(5, 5)


def test_what_leaves_later_in_a_turn_does_not_overtake_what_the_window_stopped() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=2)
    reader.subscribe("#", 1)
    reader.pause()
    publish_all(sender, numbers(0, 0))
    stage.settle()
    reader.unpause()  # it has an outbox now, an empty one
    reader.take()
    publish_all(sender, numbers(1, 3), qos=1)
    sender.publish("b", b"b")
    sender.publish("a", b"004", qos=1)
    sender.publish("a", b"005")
    stage.settle()
    got: list[bytes] = []
    while taken := reader.take_and_acknowledge():
        got += taken
        stage.settle()
    assert got == [*numbers(1, 3), b"b", *numbers(4, 5)]


def test_qos_0_stays_in_its_place_between_numbered_messages() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=1)
    reader.subscribe("a", 1)
    for number in range(1, 7):
        sender.publish("a", f"{number:03}".encode(), qos=number % 2)
    stage.settle()
    got: list[bytes] = []
    while taken := reader.take_and_acknowledge():
        got += taken
        stage.settle()
    assert got == numbers(1, 6)


def test_a_run_larger_than_the_window_leaves_in_parts() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=3)
    reader.subscribe("a", 1)
    sender.publish("a", *numbers(1, 7), qos=1)
    stage.settle()
    sizes: list[int] = []
    got: list[bytes] = []
    while taken := reader.take_and_acknowledge():
        sizes.append(len(taken))
        got += taken
        stage.settle()
    assert (sizes, got) == ([3, 3, 1], numbers(1, 7))


def test_one_who_does_not_acknowledge_costs_the_others_nothing() -> None:
    stage = Stage()
    sender, lazy, quick = stage.client("s"), stage.client("lazy", window=1), stage.client("quick")
    lazy.subscribe("a", 1)
    quick.subscribe("a", 1)
    publish_all(sender, numbers(1, 50), qos=1)
    stage.settle()
    assert quick.take_payloads() == numbers(1, 50)
    assert lazy.take_payloads() == numbers(1, 1)


def test_an_unknown_delivery_number_is_told_from_a_known_one() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    assert not reader.acknowledge(1)
    assert not reader.refuse(1)
    reader.subscribe("a", 1)
    sender.publish("a", b"x", qos=1)
    stage.settle()
    (delivered,) = reader.take()
    assert reader.acknowledge(delivered.number)
    assert not reader.acknowledge(delivered.number)


def test_a_refused_delivery_makes_room_and_is_recorded() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=1)
    reader.subscribe("a", 1)
    publish_all(sender, numbers(1, 2), qos=1)
    stage.settle()
    (delivered,) = reader.take()
    assert reader.refuse(delivered.number)
    stage.settle()
    assert reader.take_payloads() == numbers(2, 2)
    assert stage.losses("r") == [("a", 1, 1, "refused")]


# Expiry


def test_what_expired_while_it_waited_is_recorded_when_its_turn_comes() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    sender.publish("a", b"short", ttl=1.0)
    sender.publish("a", b"long", ttl=10.0)
    stage.settle()
    stage.scheduler.advance(2.0)  # nobody reaped
    reader.unpause()
    assert [(d.payload, d.left) for d in reader.take()] == [(b"long", 8)]
    assert stage.losses("r") == [("a", 1, 1, "expired")]


def test_the_reaper_finds_what_expired_behind_something_that_did_not() -> None:
    stage = small_stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    sender.publish("a", b"001")
    sender.publish("a", b"002", ttl=1.0)
    sender.publish("a", b"003", ttl=5.0)
    stage.settle()
    stage.advance(2.0)
    assert stage.losses("r") == [("a", 2, 2, "expired")]
    sender.publish("a", b"004")  # there is room again
    stage.settle()
    stage.advance(4.0)
    assert stage.losses("r") == [("a", 2, 3, "expired")]
    reader.unpause()
    assert reader.take_payloads() == [b"001", b"004"]


def test_what_waits_for_the_window_may_expire_too() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=1)
    reader.subscribe("a", 1)
    sender.publish("a", b"001", b"002", b"003", qos=1, ttl=5.0)
    stage.settle()
    (delivered,) = reader.take()
    stage.advance(6.0)
    assert stage.losses("r") == [("a", 2, 3, "expired")]
    assert reader.acknowledge(delivered.number)
    stage.settle()
    assert reader.take() == []


# Nothing is lost silently


class Sent(NamedTuple):
    topic: str
    sequence: int


OUTBOX, OWED = 4, 5
TOPICS = ("a", "b/c", "b/d")
READERS: dict[str, tuple[float, int, tuple[tuple[str, int, Policy], ...]]] = {
    # client id: expiry, window, subscriptions
    "fleeting": (0.0, 2, (("a", 0, Policy.DROP_OLDEST), ("b/+", 1, Policy.DROP_OLDEST))),
    "faithful": (1_000.0, 2, (("#", 1, Policy.DROP_NEWEST), ("a", 0, Policy.DROP_NEWEST))),
    "strict": (1_000.0, 3, (("b/#", 1, Policy.BLOCK), ("a", 1, Policy.DISCONNECT))),
}


class Delivering(RuleBasedStateMachine):
    """A few clients do what clients do; whatever they do, every message can be accounted for."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(
            CoreSettings(
                outbox=OutboxSettings(messages=OUTBOX, block_timeout_ms=1_000),
                sessions=SessionSettings(owed_messages=OWED),
            )
        )
        self.sender = self.stage.client("sender")
        self.readers: dict[str, Client] = {}
        self.got: dict[str, list[Sent]] = {name: [] for name in READERS}
        self.wanted: dict[str, list[Sent]] = {name: [] for name in READERS}
        self.unacknowledged: dict[str, list[int]] = {name: [] for name in READERS}
        for name in READERS:
            self._connect(name, clean=True)

    def _connect(self, name: str, *, clean: bool) -> None:
        expiry, window, subscriptions = READERS[name]
        if name in self.readers:
            self._read(name)
        client = self.stage.client(name, clean=clean, expiry=expiry, window=window)
        self.readers[name] = client
        if clean or not client.is_known:
            self.unacknowledged[name].clear()
            for filter, qos, policy in subscriptions:
                client.subscribe(filter, qos, policy=policy)

    def _read(self, name: str) -> None:
        for delivered in self.readers[name].take():
            if not delivered.is_again:
                self.got[name].append(Sent(delivered.topic, delivered.sequence))
                if delivered.number:
                    self.unacknowledged[name].append(delivered.number)

    def _is_subscribed(self, name: str, topic: str) -> bool:
        session = self.stage.broker.sessions.get(name)
        return session is not None and (topic in session.subscriptions or _is_wild(name, topic))

    @rule(name=st.sampled_from(sorted(READERS)), clean=st.booleans())
    def connect(self, name: str, clean: bool) -> None:
        self._connect(name, clean=clean)

    @rule(name=st.sampled_from(sorted(READERS)))
    def drop(self, name: str) -> None:
        self._read(name)
        self.readers[name].drop()
        if name not in self.stage.broker.sessions:
            self.unacknowledged[name].clear()

    @rule(
        topic=st.sampled_from(TOPICS),
        count=st.integers(1, 4),
        qos=st.integers(0, 1),
        ttl=st.sampled_from([0.0, 0.0, 3.0]),
    )
    def publish(self, topic: str, count: int, qos: int, ttl: float) -> None:
        run = self.sender.publish(topic, *[b"x"] * count, qos=qos, ttl=ttl).run
        for name in READERS:
            if self._is_subscribed(name, topic):
                self.wanted[name] += [Sent(topic, run.sequence + index) for index in range(count)]

    @rule(name=st.sampled_from(sorted(READERS)))
    def pause(self, name: str) -> None:
        if self.readers[name].session.connection is self.readers[name].connection:
            self.readers[name].pause()

    @rule(name=st.sampled_from(sorted(READERS)))
    def unpause(self, name: str) -> None:
        if self.readers[name].session.connection is self.readers[name].connection:
            self.readers[name].unpause()

    @precondition(lambda self: any(self.unacknowledged.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name, waiting in self.unacknowledged.items() if waiting]))
        if self.readers[name].session.connection is self.readers[name].connection:
            number = self.unacknowledged[name].pop(0)
            assert self.readers[name].acknowledge(number)

    @rule()
    def turn(self) -> None:
        self.stage.scheduler.turn()

    @rule(seconds=st.sampled_from([0.5, 1.5, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.advance(seconds)

    @invariant()
    def everyone_reads(self) -> None:
        for name in self.readers:
            self._read(name)

    @invariant()
    def nothing_arrives_twice_or_out_of_order(self) -> None:
        for got in self.got.values():
            for topic in TOPICS:
                sequences = [sent.sequence for sent in got if sent.topic == topic]
                assert sequences == sorted(set(sequences))

    def teardown(self) -> None:
        self.stage.settle()
        for name, client in self.readers.items():
            self._read(name)
            accounted = set(self.got[name]) | self._waiting(client) | self._recorded(name)
            missing = set(self.wanted[name]) - accounted
            assert not missing, (name, sorted(missing))
            assert set(self.got[name]) <= set(self.wanted[name])
            assert not set(self.got[name]) & self._recorded(name, is_final=True)

    def _waiting(self, client: Client) -> set[Sent]:
        """What its session still gets, as its queues say."""
        session = self.stage.broker.sessions.get(client.client_id)
        found: set[Sent] = set()
        for queue in (session.outbox, session.offline_queue) if session is not None else ():
            for run, _ in queue._entries if queue is not None else ():
                found |= {Sent(run.topic, run.sequence + index) for index in range(run.count)}
        return found

    def _recorded(self, name: str, *, is_final: bool = False) -> set[Sent]:
        """What the ledger says it did not get; an end may also take what was not acknowledged yet."""
        rows = self.stage.broker.ledger.rows(client_id=name)
        return {
            Sent(row.topic, sequence)
            for row in rows
            if not (is_final and str(row.reason) == "session-ended")
            for sequence in range(row.first, row.last + 1)
        }


class Sharing(RuleBasedStateMachine):
    """A shared group whose members come and go: each message is someone's, and nobody's twice for long."""

    FILTER = "$share/g/#"
    MEMBERS = st.sampled_from(("one", "two", "fleeting"))

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(
            CoreSettings(outbox=OutboxSettings(messages=OUTBOX), sessions=SessionSettings(owed_messages=OWED))
        )
        self.sender = self.stage.client("sender")
        self.members: dict[str, Client] = {}
        self.wanted: set[Sent] = set()
        self.got: set[Sent] = set()
        self.done: set[Sent] = set()
        self.open: dict[str, dict[int, Sent]] = {"one": {}, "two": {}, "fleeting": {}}

    def _read(self, name: str) -> None:
        for delivered in self.members[name].take():
            sent = Sent(delivered.topic, delivered.sequence)
            assert sent not in self.done, "it was acknowledged already"
            assert sent not in self.got or delivered.number, "at most once means once"
            self.got.add(sent)
            if delivered.number:
                self.open[name][delivered.number] = sent

    @rule(name=MEMBERS, window=st.integers(1, 3), clean=st.booleans())
    def connect(self, name: str, window: int, clean: bool) -> None:
        if name in self.members:
            self._read(name)
        self.open[name].clear()
        expiry = 0.0 if name == "fleeting" else 20.0
        client = self.members[name] = self.stage.client(name, clean=clean, expiry=expiry, window=window)
        if not client.is_known:
            client.subscribe(self.FILTER, 1)

    @rule(name=MEMBERS)
    def drop(self, name: str) -> None:
        if name in self.members:
            self._read(name)
            self.members[name].drop()
            self.open[name].clear()

    @rule(name=MEMBERS)
    def unsubscribe(self, name: str) -> None:
        if name in self.members and self.members[name].session.connection is not None:
            self.members[name].unsubscribe(self.FILTER)

    @rule(name=MEMBERS)
    def subscribe(self, name: str) -> None:
        if name in self.members and self.members[name].session.connection is not None:
            self.members[name].subscribe(self.FILTER, 1)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 3), qos=st.integers(0, 1))
    def publish(self, topic: str, count: int, qos: int) -> None:
        receipt = self.sender.publish(topic, *[b"x"] * count, qos=qos)
        if receipt.is_matched:
            self.wanted |= {Sent(topic, receipt.run.sequence + index) for index in range(count)}

    @rule(name=MEMBERS, is_paused=st.booleans())
    def fill_or_empty_the_socket(self, name: str, is_paused: bool) -> None:
        client = self.members.get(name)
        if client is not None and client.session.connection is client.connection:
            (client.pause if is_paused else client.unpause)()

    @rule(name=MEMBERS, is_refused=st.sampled_from((False, False, True)))
    def answer(self, name: str, is_refused: bool) -> None:
        if self.open[name]:
            number = next(iter(self.open[name]))
            self.done.add(self.open[name].pop(number))
            client = self.members[name]
            assert client.refuse(number) if is_refused else client.acknowledge(number)

    @rule()
    def turn(self) -> None:
        self.stage.scheduler.turn()

    @rule(seconds=st.sampled_from([1.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.advance(seconds)

    @invariant()
    def everyone_reads(self) -> None:
        for name in self.members:
            self._read(name)

    @invariant()
    def the_group_knows_who_is_connected_and_is_owed_nothing_that_someone_could_take(self) -> None:
        group = self.stage.node.router.find_group(self.FILTER)
        if isinstance(group, SharedGroup):
            assert set(group.present) == {member for member in group.members if member.connection is not None}
            able = [member for member in group.present if member.is_flowing]
            assert not (group.offline_queue and any(m.inflight is None or m.inflight.room for m in able))

    def teardown(self) -> None:
        self.stage.settle()
        self.everyone_reads()
        accounted = self.got | self._waiting() | self._recorded()
        assert self.wanted <= accounted, sorted(self.wanted - accounted)
        assert self.got <= self.wanted

    def _waiting(self) -> set[Sent]:
        group = self.stage.node.router.find_group(self.FILTER)
        queues: list[Outbox] = [group.offline_queue] if isinstance(group, SharedGroup) else []
        for session in self.stage.broker.sessions.values():
            queues += [queue for queue in (session.outbox, session.offline_queue) if queue is not None]
        return {
            Sent(run.topic, run.sequence + index)
            for queue in queues
            for run, _ in queue._entries
            for index in range(run.count)
        }

    def _recorded(self) -> set[Sent]:
        return {
            Sent(row.topic, sequence)
            for row in self.stage.broker.ledger.rows()
            for sequence in range(row.first, row.last + 1)
        }


def _is_wild(name: str, topic: str) -> bool:
    return {"fleeting": topic.startswith("b/"), "faithful": True, "strict": topic.startswith("b/")}[name]


QUICK = examples(15, stateful_step_count=30)
Delivering.TestCase.settings = Sharing.TestCase.settings = QUICK
TestNothingIsLostSilently = Delivering.TestCase
TestNothingSharedIsLostSilently = Sharing.TestCase


def test_a_rule_that_blocks_does_not_let_a_reader_of_everything_stop_publishers() -> None:
    blocking = TopicRule(filter="a", policy=Policy.BLOCK)
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2), topics=(blocking,)))
    sender, broad, narrow = stage.client("s"), stage.client("b"), stage.client("n")
    broad.subscribe("#")
    broad.pause()
    publish_all(sender, numbers(1, 3))
    stage.settle()
    assert sender.session.blocked_by is None
    assert stage.losses("b") == [("a", 1, 1, "outbox-full")]
    narrow.subscribe("a")
    narrow.pause()
    publish_all(sender, numbers(4, 6))
    stage.settle()
    assert sender.session.blocked_by == {narrow.session}


# What a review found


def test_an_acknowledgement_wakes_a_subscriber_whose_waiting_messages_all_expired() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=1)
    reader.subscribe("a", 1)
    sender.publish("a", b"1", qos=1)
    sender.publish("a", b"2", qos=1, ttl=1.0)
    stage.settle()
    stage.advance(2)
    (first,) = reader.take()
    reader.acknowledge(first.number)
    stage.settle()
    sender.publish("a", b"3", qos=1)
    sender.publish("a", b"4")
    stage.settle()
    assert reader.take_payloads() == [b"3", b"4"]


def test_messages_too_large_for_a_subscriber_do_not_take_room_in_its_window() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r", window=1)
    reader.subscribe("a", 1, limit_bytes=60)
    reader.pause()
    sender.publish("a", bytes(100), bytes(100), bytes(100), qos=1)
    sender.publish("a", b"small", qos=1)
    stage.settle()
    reader.unpause()
    stage.settle()
    assert reader.take_and_acknowledge() == [b"small"]
    stage.settle()
    assert reader.session.is_flowing
    assert stage.losses("r") == [("a", 1, 3, "packet-too-large")]


class BrokenForm(PlainEncoding, frozen=True, kw_only=True):
    """A form that cannot encode."""

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        raise RuntimeError("broken")


def test_one_class_that_cannot_be_encoded_does_not_silence_the_others() -> None:
    stage = Stage()
    sender, bad, good = stage.client("s"), stage.client("bad"), stage.client("good")
    bad.subscribe("a/#", encoding=BrokenForm())
    good.subscribe("+/b")
    for payload in (b"1", b"2"):
        sender.publish("a/b", payload)
        with pytest.raises(RuntimeError):
            stage.settle()
    assert good.take_payloads() == [b"1", b"2"]
    assert stage.losses("bad") == [("a/b", 1, 2, "failed")]
