"""Peer links: signs of life, reconnects, settlement in order, and what a break does to each kind of run."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.cluster.actions import (
    Acknowledge,
    Action,
    Close,
    Connect,
    Fail,
    Forwarded,
    Received,
    Send,
    Take,
    Unblocked,
)
from penstock.cluster.forwards import ForwardNumbers
from penstock.cluster.link import MAX_GREETINGS, Link, LinkSettings, ProcessIdentity, Verdict
from penstock.wire.peer import PROTOCOL_VERSION, Batch, Heartbeat, Hello, Message, Seen, Settled
from tests.support.samples import make_run

HOME, AWAY = 0, 5


def hello(connection: int = 1, incarnation: int = 1, **changes: Any) -> Hello:
    return replace(Hello(PROTOCOL_VERSION, "c1", "peer", incarnation, connection), **changes)


class Driver:
    """Link with a clock, and the actions that it returned."""

    def __init__(
        self, *, is_dialler: bool = True, numbers: ForwardNumbers | None = None, **settings: Any
    ) -> None:
        self.now = 100.0
        self.numbers = numbers or ForwardNumbers()
        self.link = Link(
            ProcessIdentity("c1", "me", 1),
            "peer",
            is_dialler=is_dialler,
            numbers=self.numbers,
            random=lambda: 0.5,
            now=self.now,
            settings=LinkSettings(**settings),
        )

    def advance(self, seconds: float, step: float = 0.05) -> list[Action]:
        """Time passes in steps."""
        actions: list[Action] = []
        for _ in range(round(seconds / step)):
            self.now += step
            actions += self.link.on_time(self.now)
        return actions

    def dial(self, connection: int) -> None:
        """Time passes until this connection is dialled."""
        for _ in range(600):
            self.now += 0.01
            if Connect(connection) in self.link.on_time(self.now):
                return
        raise AssertionError(f"connection {connection} was not dialled")

    def greet(self, connection: int) -> list[Action]:
        self.link.on_connected(self.now, connection)
        return self.receive(hello(connection), connection)

    def receive(self, message: Message, connection: int = 1) -> list[Action]:
        return self.link.on_message(self.now, connection, message)

    def publish(self, *tokens: str, size: int = 1) -> list[Verdict]:
        return [
            self.link.publish(self.now, HOME, AWAY, [make_run("t", bytes(size), qos=1)], token)
            for token in tokens
        ]

    def forward(self, *numbers: int) -> list[Verdict]:
        return [
            self.link.forward(self.now, HOME, AWAY, number, [make_run("t", b"%d" % number, qos=2)])
            for number in numbers
        ]


def live(**settings: Any) -> Driver:
    """A link that has dialled, and is connected."""
    driver = Driver(**settings)
    assert driver.link.on_time(driver.now) == [Connect(1)]
    driver.greet(1)
    assert driver.link.is_live
    return driver


def sent(actions: list[Action]) -> list[Message]:
    return [action.message for action in actions if isinstance(action, Send)]


def batches(actions: list[Action]) -> list[tuple[int, bool, list[bytes]]]:
    return [
        (message.number, message.is_forward, [run.payload() for run in message.runs])
        for message in sent(actions)
        if isinstance(message, Batch)
    ]


# Connections


def test_the_dialling_side_greets_and_is_live_after_the_answer() -> None:
    driver = Driver()
    assert driver.link.on_time(driver.now) == [Connect(1)]
    assert sent(driver.link.on_connected(driver.now, 1)) == [Hello(PROTOCOL_VERSION, "c1", "me", 1, 1)]
    assert not driver.link.is_live
    driver.receive(hello())
    assert driver.link.is_live


def test_the_accepting_side_waits_for_the_greeting_and_answers_it() -> None:
    driver = Driver(is_dialler=False)
    assert driver.advance(1.0) == []
    assert driver.link.on_connected(driver.now, 7) == []
    assert driver.receive(hello(connection=3), 7) == [Send(7, Hello(PROTOCOL_VERSION, "c1", "me", 1, 3))]
    assert driver.link.is_live


@pytest.mark.parametrize("changes", [{"version": 2}, {"cluster_id": "another"}])
@pytest.mark.parametrize("is_dialler", [True, False])
def test_a_stranger_is_refused(changes: dict[str, Any], is_dialler: bool) -> None:
    driver = Driver(is_dialler=is_dialler)
    driver.link.on_time(driver.now)
    driver.link.on_connected(driver.now, 1)
    (closed, *_) = driver.receive(hello(**changes))
    assert isinstance(closed, Close) and closed.connection == 1
    assert not driver.link.is_live


def test_a_new_connection_takes_the_place_of_the_old_one() -> None:
    driver = Driver(is_dialler=False)
    driver.link.on_connected(driver.now, 1)
    driver.receive(hello(connection=1), 1)
    driver.link.on_connected(driver.now, 2)
    actions = driver.receive(hello(connection=2), 2)
    assert actions[0] == Close(1, "the peer has made a new connection")
    assert driver.receive(Seen(0, 0, 1, 1), 1) == [], "what arrives late on the old one is ignored"
    assert driver.receive(Seen(0, 0, 1, 1), 2) == [Received(Seen(0, 0, 1, 1))]


@pytest.mark.parametrize("late", [hello(connection=1), hello(connection=2), hello(9, incarnation=0)])
def test_an_older_connection_that_arrives_late_is_refused(late: Hello) -> None:
    driver = Driver(is_dialler=False)
    for handle in (1, 2):
        driver.link.on_connected(driver.now, handle)
    driver.receive(hello(connection=2), 2)
    assert driver.receive(late, 1) == [Close(1, "a newer connection is there")]
    assert driver.link.is_live


def test_a_peer_that_was_started_again_is_welcome_with_its_first_connection() -> None:
    driver = Driver(is_dialler=False)
    for handle, greeting in ((1, hello(connection=9)), (2, hello(connection=1, incarnation=2))):
        driver.link.on_connected(driver.now, handle)
        driver.receive(greeting, handle)
    assert driver.receive(Seen(0, 0, 1, 1), 2) == [Received(Seen(0, 0, 1, 1))]


def test_connections_without_a_hello_are_closed() -> None:
    driver = Driver(is_dialler=False)
    driver.link.on_connected(driver.now, 1)
    assert Close(1, "no hello") in driver.advance(2.1)
    closed = [driver.link.on_connected(driver.now, 10 + number) for number in range(MAX_GREETINGS + 1)][-1]
    assert closed == [Close(10, "too many connections without a hello")]


def test_a_peer_that_does_not_answer_the_dial_is_dialled_again() -> None:
    driver = Driver()
    driver.link.on_time(driver.now)
    actions = driver.advance(2.3)
    assert actions == [Close(1, "no hello"), Connect(2)]
    assert driver.link.on_connected(driver.now, 1) == [Close(1, "another connection was dialled since")]


def test_attempts_are_ever_further_apart() -> None:
    driver = Driver()
    dialled_at = []
    for _ in range(6_000):
        for action in driver.link.on_time(driver.now):
            assert isinstance(action, Connect)
            dialled_at.append(driver.now)
            driver.link.on_lost(driver.now, action.connection)
        driver.now += 0.01
    gaps = [after - before for before, after in pairwise(dialled_at)]
    assert 0.1 <= gaps[0] < 0.13 and 3.7 < gaps[-1] <= 5.01
    assert all(after >= before - 0.02 for before, after in pairwise(gaps))


def test_a_connection_that_lasts_resets_the_backoff() -> None:
    driver = Driver()
    for attempt in range(1, 8):
        driver.dial(attempt)
        driver.link.on_lost(driver.now, attempt)
    driver.dial(8)
    driver.greet(8)
    driver.link.on_lost(driver.now, 8)
    assert driver.advance(0.12, step=0.01) == [Connect(9)]


# Signs of life


def test_a_heartbeat_leaves_every_half_second() -> None:
    driver, beats = live(), 0
    for _ in range(10):
        driver.receive(Heartbeat())
        beats += len(sent(driver.advance(1.0)))
    assert beats in (19, 20)


def test_two_seconds_of_silence_end_the_connection_and_open_the_breaker() -> None:
    driver = live()
    driver.receive(Heartbeat())
    driver.advance(1.9)
    assert driver.link.is_live
    actions = driver.advance(0.15)
    assert Close(1, "the peer is silent") in actions
    assert not driver.link.is_live and driver.link.is_open


def test_any_message_is_a_sign_of_life() -> None:
    driver = live()
    for _ in range(10):
        driver.advance(1.5)
        driver.receive(Seen(0, 0, 1, 1))
    assert driver.link.is_live


# The breaker


def test_while_the_breaker_is_open_callers_are_refused_but_for_a_probe_each_second() -> None:
    driver = Driver(is_dialler=False)
    driver.advance(2.1)
    assert driver.link.is_open
    verdicts = []
    for _ in range(100):
        driver.advance(0.05)
        verdicts += driver.publish("x")
    assert verdicts.count(Verdict.ACCEPTED) in (4, 5)
    assert verdicts.count(Verdict.UNAVAILABLE) == 100 - verdicts.count(Verdict.ACCEPTED)


def test_a_probe_that_is_not_sent_within_a_second_fails() -> None:
    driver = Driver(is_dialler=False)
    driver.advance(3.1)
    assert driver.publish("probe") == [Verdict.ACCEPTED]
    assert driver.advance(1.1) == [Fail("probe", "the peer is not available")]


def test_five_failed_attempts_open_the_breaker_and_fail_what_waits() -> None:
    driver = Driver(silence_s=60.0)
    assert driver.publish("waits") == [Verdict.ACCEPTED]
    actions: list[Action] = []
    for attempt in range(1, 6):
        assert actions == []
        driver.dial(attempt)
        actions = driver.link.on_lost(driver.now, attempt)
    assert actions == [Fail("waits", "the peer could not be reached")]
    assert driver.link.is_open


def test_a_connection_closes_the_breaker() -> None:
    driver = Driver(is_dialler=False)
    driver.advance(2.1)
    driver.link.on_connected(driver.now, 1)
    driver.receive(hello())
    assert not driver.link.is_open
    assert driver.publish("a", "b") == [Verdict.ACCEPTED] * 2


# Publishes


def test_publishes_of_a_turn_leave_together_and_are_acknowledged_in_order() -> None:
    driver = live()
    driver.publish("a", "b", "c")
    assert batches(driver.link.flush()) == [(1, False, [b"\0"] * 3)]
    assert driver.link.flush() == []
    assert driver.receive(Settled(AWAY, HOME, False, 1, 2)) == [Acknowledge("a"), Acknowledge("b")]
    driver.publish("d")
    assert batches(driver.link.flush()) == [(4, False, [b"\0"])]
    assert driver.receive(Settled(AWAY, HOME, False, 3, 3, "too-large")) == [Acknowledge("c", "too-large")]
    assert driver.receive(Settled(AWAY, HOME, False, 4, 4)) == [Acknowledge("d")]
    assert driver.link.unsettled(AWAY) == (0, 0)


def test_publishes_fail_with_their_connection_and_are_not_acknowledged() -> None:
    driver = live()
    driver.publish("a", "b")
    driver.link.flush()
    driver.publish("not sent yet")
    actions = driver.link.on_lost(driver.now, 1)
    assert [action.token for action in actions if isinstance(action, Fail)] == ["a", "b", "not sent yet"]
    assert driver.link.unsettled(AWAY) == (0, 0)


def test_publishes_that_came_while_it_was_down_leave_with_the_next_connection() -> None:
    driver = live()
    driver.link.on_lost(driver.now, 1)
    assert driver.publish("later") == [Verdict.ACCEPTED]
    assert driver.advance(0.2) == [Connect(2)]
    assert batches(driver.greet(2)) == [(1, False, [b"\0"])]


@pytest.mark.parametrize(("first", "last"), [(2, 2), (1, 3), (5, 9)])
def test_a_settlement_of_what_was_not_sent_ends_the_connection(first: int, last: int) -> None:
    driver = live()
    driver.publish("a", "b")
    driver.link.flush()
    (closed, *failed) = driver.receive(Settled(AWAY, HOME, False, first, last))
    assert isinstance(closed, Close)
    assert [type(action) for action in failed] == [Fail, Fail]


def test_a_settlement_of_an_old_connection_is_ignored() -> None:
    driver = live()
    driver.link.on_lost(driver.now, 1)
    driver.advance(0.2)
    driver.greet(2)
    driver.publish("new")
    driver.link.flush()
    assert driver.receive(Settled(AWAY, HOME, False, 1, 1), connection=1) == []


# Windows


def test_beyond_10_000_messages_a_publish_is_blocked_until_half_is_settled() -> None:
    driver = live()
    assert set(driver.publish(*map(str, range(10_000)))) == {Verdict.ACCEPTED}
    assert driver.publish("more") == [Verdict.BLOCKED]
    assert driver.forward(1) == [Verdict.BLOCKED]
    other = driver.link.publish(driver.now, HOME, AWAY + 1, [make_run("t", b"x")], "elsewhere")
    assert other is Verdict.ACCEPTED, "each shard has a window of its own"
    driver.link.flush()
    assert Unblocked(AWAY) not in driver.receive(Settled(AWAY, HOME, False, 1, 4_999))
    assert driver.receive(Settled(AWAY, HOME, False, 5_000, 5_000))[-1] == Unblocked(AWAY)
    assert driver.publish("more") == [Verdict.ACCEPTED]


def test_beyond_8_mib_a_publish_is_blocked() -> None:
    driver = live()
    verdicts = driver.publish(*map(str, range(9)), size=1_048_576 - 100)
    assert verdicts == [Verdict.ACCEPTED] * 8 + [Verdict.BLOCKED]


def test_a_break_unblocks_what_waited_for_publishes() -> None:
    driver = live(window_messages=2)
    assert driver.publish("a", "b", "c")[-1] is Verdict.BLOCKED
    assert driver.link.on_lost(driver.now, 1)[-1] == Unblocked(AWAY)


# Forwards


def test_forwards_are_sent_again_by_number_until_they_are_confirmed() -> None:
    driver = live()
    driver.forward(7, 8, 9)
    assert batches(driver.link.flush()) == [(7, True, [b"7", b"8", b"9"])]
    assert driver.receive(Settled(AWAY, HOME, True, 7, 7)) == [Forwarded(HOME, AWAY, 7)]
    assert driver.link.on_lost(driver.now, 1) == [], "a forward does not fail"
    driver.forward(10)
    driver.advance(0.2)
    assert batches(driver.greet(2)) == [(8, True, [b"8", b"9", b"10"])]
    assert driver.receive(Settled(AWAY, HOME, True, 8, 10), 2) == [Forwarded(HOME, AWAY, 10)]
    assert driver.link.unsettled(AWAY) == (0, 0)


def test_a_refused_forward_is_reported_with_its_code() -> None:
    driver = live()
    driver.forward(1)
    driver.link.flush()
    refused = driver.receive(Settled(AWAY, HOME, True, 1, 1, "not-authorized"))
    assert refused == [Forwarded(HOME, AWAY, 1, "not-authorized")]


def test_a_confirmation_that_comes_again_is_no_news() -> None:
    driver = live()
    driver.forward(1, 2)
    driver.link.flush()
    driver.receive(Settled(AWAY, HOME, True, 1, 2))
    assert driver.receive(Settled(AWAY, HOME, True, 1, 1)) == []


def test_forwards_wait_while_the_breaker_is_open() -> None:
    driver = Driver(is_dialler=False)
    driver.advance(5.0)
    assert driver.link.is_open
    assert driver.forward(1, 2) == [Verdict.ACCEPTED] * 2
    driver.link.on_connected(driver.now, 1)
    assert batches(driver.receive(hello())) == [(1, True, [b"1", b"2"])]


# Runs from the peer


def batch(first: int, *payloads: bytes, is_forward: bool = False) -> Batch:
    return Batch(HOME, AWAY, first, is_forward, [make_run("t", payload) for payload in payloads])


def taken(actions: list[Action]) -> list[Take]:
    return [action for action in actions if isinstance(action, Take)]


def test_publishes_are_settled_after_they_were_taken() -> None:
    driver = live()
    actions = driver.receive(batch(1, b"x", b"y"))
    (take,) = taken(actions)
    assert actions == [take] and (take.first, take.last) == (1, 2)
    assert driver.link.on_taken(take) == [Send(1, Settled(HOME, AWAY, False, 1, 2))]
    (refused,) = taken(driver.receive(batch(3, b"z")))
    assert sent(driver.link.on_taken(refused, "too-large")) == [Settled(HOME, AWAY, False, 3, 3, "too-large")]


def test_publishes_of_an_old_connection_are_not_settled_on_a_new_one() -> None:
    driver = live()
    (take,) = taken(driver.receive(batch(1, b"x")))
    driver.link.on_lost(driver.now, 1)
    driver.advance(0.2)
    driver.greet(2)
    assert driver.link.on_taken(take) == []
    assert taken(driver.receive(batch(1, b"x"), 2)), "numbers begin again"


@pytest.mark.parametrize("number", [1, 4, 0])
def test_publishes_out_of_order_end_the_connection(number: int) -> None:
    driver = live()
    driver.receive(batch(1, b"x", b"y"))
    assert isinstance(driver.receive(batch(number, b"z"))[0], Close)


def test_forwards_that_were_committed_are_skipped_and_confirmed() -> None:
    driver = live(numbers=ForwardNumbers({(AWAY, HOME): 5}))
    actions = driver.receive(batch(4, b"4", b"5", b"6", is_forward=True))
    (take,) = taken(actions)
    assert sent(actions) == [Settled(HOME, AWAY, True, 4, 5)]
    assert (take.first, [run.payload() for run in take.runs]) == (6, [b"6"])
    assert sent(driver.link.on_taken(take)) == [Settled(HOME, AWAY, True, 6, 6)]


def test_forwards_that_wait_for_their_commit_are_confirmed_after_it_on_the_new_connection() -> None:
    driver = live()
    (take,) = taken(driver.receive(batch(1, b"1", b"2", is_forward=True)))
    driver.link.on_lost(driver.now, 1)
    driver.advance(0.2)
    driver.greet(2)
    assert driver.receive(batch(1, b"1", b"2", is_forward=True), 2) == [], "taken, and not committed"
    assert driver.link.on_taken(take) == [Send(2, Settled(HOME, AWAY, True, 1, 2))]


def test_a_forward_that_is_missing_ends_the_connection() -> None:
    driver = live(numbers=ForwardNumbers({(AWAY, HOME): 5}))
    (closed, *_) = driver.receive(batch(7, b"7", is_forward=True))
    assert closed == Close(1, "forward 7 of (5, 0) came after 5")


def test_after_a_rollback_forwards_are_asked_for_again() -> None:
    driver = live()
    (take,) = taken(driver.receive(batch(1, b"1", is_forward=True)))
    assert driver.link.on_rolled_back(driver.now, take)[0] == Close(1, "a commit failed")
    driver.advance(0.2)
    driver.greet(2)
    assert taken(driver.receive(batch(1, b"1", is_forward=True), 2))


def test_an_empty_batch_is_nothing() -> None:
    driver = live()
    assert driver.receive(batch(1)) == driver.receive(batch(1, is_forward=True)) == []
    assert driver.link.is_live


# Other messages


def test_other_messages_pass_while_there_is_a_connection() -> None:
    driver = live()
    assert driver.link.send(Seen(1, 2, 3, 4)) == [Send(1, Seen(1, 2, 3, 4))]
    assert driver.receive(Seen(1, 2, 3, 4)) == [Received(Seen(1, 2, 3, 4))]
    driver.link.on_lost(driver.now, 1)
    assert driver.link.send(Seen(1, 2, 3, 4)) == []
