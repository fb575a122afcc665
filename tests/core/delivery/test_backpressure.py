"""Publishers that wait for slow subscribers: held once, released when nobody holds them any more."""

from collections.abc import Callable

import pytest

from penstock.core.delivery.backpressure import Backpressure
from penstock.core.publishing.request_senders import RequestConnection, is_request_sender
from penstock.core.sessions.session import Session
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.connection import MemoryConnection
from tests.support.samples import make_session


class Waiters:
    """A holding with a timeout of five seconds, and whom it gave up on."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.given_up: list[Session] = []
        self.caught_up: list[Callable[[], None]] = []
        self.backpressure = Backpressure(self.clock, self.scheduler, 5.0, self.give_up, self.caught_up.append)

    def give_up(self, slow: Session) -> None:
        assert self.backpressure.is_awaited(slow), "it is asked to make room before anyone is released"
        self.given_up.append(slow)


class Person:
    """A session and the connection it has."""

    def __init__(self, name: str) -> None:
        self.connection = MemoryConnection()
        self.session = make_session(name, self.connection)


@pytest.fixture
def waiters() -> Waiters:
    return Waiters()


@pytest.fixture
def publisher() -> Person:
    return Person("publisher")


@pytest.fixture
def slow() -> Person:
    return Person("slow")


def test_a_publisher_waits_until_the_slow_one_has_room(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    waiters.backpressure.block(publisher.session, slow.session, 0)
    assert publisher.connection.is_blocked
    assert waiters.backpressure.is_awaited(slow.session)
    waiters.backpressure.unblock(slow.session)
    assert not publisher.connection.is_blocked
    assert not waiters.backpressure.is_awaited(slow.session)
    assert publisher.session.blocked_by is None


@pytest.mark.parametrize(("qos", "is_unacknowledged"), [(0, True), (1, False), (2, False)])
def test_the_connection_is_told_whether_withheld_acknowledgements_are_enough(
    waiters: Waiters, publisher: Person, slow: Person, qos: int, is_unacknowledged: bool
) -> None:
    waiters.backpressure.block(publisher.session, slow.session, qos)
    assert publisher.connection.blocks == [is_unacknowledged]


def test_a_publisher_that_waits_for_several_is_held_once_and_released_by_the_last(
    waiters: Waiters, publisher: Person
) -> None:
    others = [Person(name) for name in "abc"]
    for other in others:
        waiters.backpressure.block(publisher.session, other.session, 1)
    waiters.backpressure.block(publisher.session, others[0].session, 1)
    assert waiters.backpressure.blocked_total == 1
    for other in others[:2]:
        waiters.backpressure.unblock(other.session)
        assert publisher.connection.is_blocked
    waiters.backpressure.unblock(others[2].session)
    assert publisher.connection.unblocks == 1


def test_all_who_wait_for_one_are_released_together(waiters: Waiters, slow: Person) -> None:
    publishers = [Person(name) for name in "abc"]
    for publisher in publishers:
        waiters.backpressure.block(publisher.session, slow.session, 1)
    assert waiters.backpressure.blocked_total == 3
    waiters.backpressure.unblock(slow.session)
    assert [publisher.connection.unblocks for publisher in publishers] == [1, 1, 1]


def test_after_the_timeout_the_slow_one_makes_room_and_the_publisher_goes_on(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.scheduler.advance(4.9)
    assert waiters.given_up == []
    assert publisher.connection.is_blocked
    waiters.scheduler.advance(0.1)
    assert waiters.given_up == [slow.session]
    assert not publisher.connection.is_blocked
    assert not waiters.backpressure.is_awaited(slow.session)


def test_the_timeout_counts_from_the_first_message_and_not_from_the_latest(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.scheduler.advance(3)
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.scheduler.advance(2)
    assert waiters.given_up == [slow.session]


def test_the_timeout_is_called_off_when_there_is_room_in_time(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.scheduler.advance(3)
    waiters.backpressure.unblock(slow.session)
    assert waiters.scheduler.timers == 0
    waiters.backpressure.block(publisher.session, slow.session, 1)  # a new wait has all of its time
    waiters.scheduler.advance(4.9)
    assert waiters.given_up == []


def test_a_publisher_that_has_gone_waits_for_nobody(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.backpressure.forget(publisher.session)
    publisher.session.connection = back = MemoryConnection()  # and comes again
    waiters.backpressure.unblock(slow.session)
    assert publisher.session.blocked_by is None
    assert back.unblocks == 0


def test_a_publisher_without_a_connection_is_not_told(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    publisher.session.connection = None
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.backpressure.unblock(slow.session)
    assert publisher.session.blocked_by is None
    assert (publisher.connection.blocks, publisher.connection.unblocks) == ([], 0)


def test_releasing_someone_nobody_waits_for_changes_nothing(waiters: Waiters, slow: Person) -> None:
    waiters.backpressure.unblock(slow.session)
    waiters.backpressure.forget(slow.session)
    assert not waiters.backpressure.is_awaited(slow.session)


def test_only_request_senders_are_freed_whatever_they_wait_for(waiters: Waiters, publisher: Person) -> None:
    caller, slow = make_session("caller"), [Person("one"), Person("other")]
    caller.connection = connection = RequestConnection(waiters.scheduler)
    for other in slow:
        waiters.backpressure.block(caller, other.session, 1)
        waiters.backpressure.block(publisher.session, other.session, 1)
    waiters.backpressure.unblock_where(is_request_sender)
    assert (caller.blocked_by, connection.is_blocked, waiters.backpressure.blocked) == (None, False, 1)
    assert publisher.connection.is_blocked


def test_how_long_publishers_wait_is_noted(waiters: Waiters) -> None:
    one, other, slow = Person("one"), Person("other"), Person("slow")
    waiters.backpressure.block(one.session, slow.session, 0)
    waiters.clock.advance(1.0)
    waiters.backpressure.block(other.session, slow.session, 0)
    assert waiters.backpressure.blocked == 2
    waiters.clock.advance(1.0)
    waiters.backpressure.unblock(slow.session)
    assert (waiters.backpressure.blocked, waiters.backpressure.waits.count) == (0, 2)
    assert waiters.backpressure.waits.seconds == pytest.approx(3.0)
    waiters.backpressure.block(one.session, slow.session, 0)
    waiters.clock.advance(0.5)
    waiters.backpressure.forget(one.session)
    assert waiters.backpressure.blocked == 0
    assert waiters.backpressure.waits.seconds == pytest.approx(3.5)


# A slow disk


def test_publishers_wait_for_the_log_without_a_timeout(waiters: Waiters, publisher: Person) -> None:
    other = Person("other")
    for person in (publisher, other, publisher):
        waiters.backpressure.block_for_log(person.session)
    assert publisher.connection.blocks == [True]
    assert waiters.backpressure.blocked == waiters.backpressure.blocked_total == 2
    waiters.scheduler.advance(3600)
    assert publisher.connection.is_blocked
    (caught_up,) = waiters.caught_up
    caught_up()
    assert not (publisher.connection.is_blocked or other.connection.is_blocked)
    assert waiters.backpressure.blocked == 0


def test_a_publisher_waits_for_the_slower_of_log_and_subscriber(
    waiters: Waiters, publisher: Person, slow: Person
) -> None:
    waiters.backpressure.block_for_log(publisher.session)
    waiters.backpressure.block(publisher.session, slow.session, 1)
    waiters.caught_up[0]()
    assert publisher.connection.is_blocked
    waiters.backpressure.unblock(slow.session)
    assert not publisher.connection.is_blocked
    waiters.backpressure.block_for_log(publisher.session)
    assert publisher.connection.is_blocked
    assert len(waiters.caught_up) == 2


def test_a_publisher_that_left_is_not_released(waiters: Waiters, publisher: Person) -> None:
    waiters.backpressure.block_for_log(publisher.session)
    waiters.backpressure.forget(publisher.session)
    waiters.caught_up[0]()
    assert publisher.connection.unblocks == 0
    waiters.backpressure.block_for_log(make_session("will"))  # has no connection: nothing to hold back
    assert waiters.backpressure.blocked == 0
