"""Request senders: publishers without a connection of their own (HTTP and gRPC requests).

A request publishes as a pseudo-session without subscriptions, one per identity and door, or per lane where a
door has several. Rights are decided once per pseudo-session. Under `block` its requests wait: they are
neither published nor acknowledged until it is unblocked, and no other sender waits with it.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import attrgetter

from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import Scheduler
from penstock.core.sessions.session import Session
from penstock.model import Door
from penstock.runs import Run

CALLERS = 10_000
"""Most request senders that are kept beside waiting ones; the least recently used are dropped."""
LOOKED_AT = 10
"""Most senders that are examined to make room for a new one."""
NOTES = 10_000
"""Least number of offset ranges that are kept with their publisher: far more than a turn has."""
_first_of = attrgetter("first")


class Note:
    """Publisher of a range of offsets."""

    __slots__ = ("first", "last", "publisher")

    def __init__(self, first: int, last: int, publisher: Session) -> None:
        self.first = first
        self.last = last
        self.publisher = publisher


class RequestConnection:
    """Connection stand-in of a request sender: nothing is sent to it, but it can be blocked.

    Its requests continue one after another: the first may block the sender again, and then the others
    wait on.
    """

    __slots__ = ("_is_resuming", "_scheduler", "acknowledgements", "is_blocked", "is_withholding", "waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_resuming = False
        self.is_blocked = self.is_withholding = False
        self.acknowledgements: deque[Callable[[], None]] = deque()
        self.waiting: deque[Callable[[], None]] = deque()

    @property
    def is_busy(self) -> bool:
        """A request waits, or a new one would."""
        return self.is_blocked or self._is_resuming

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """From now on its requests wait."""
        self.is_blocked = True
        self.is_withholding = self.is_withholding or withholds_acks

    def unblock(self) -> None:
        """Continue the requests in their order."""
        self.is_blocked = self.is_withholding = False
        if not self._is_resuming:
            self._is_resuming = True
            self._scheduler.call_soon(self._resume_next)

    def _resume_next(self) -> None:
        """Call back one waiting request, and look again in the next turn."""
        queue = self.acknowledgements or self.waiting
        if self.is_blocked or not queue:
            self._is_resuming = False
            return
        try:
            queue.popleft()()
        finally:  # what it published has asked for its flush by now, so that comes before us
            self._scheduler.call_soon(self._resume_next)

    def write(self, data: bytes) -> None:
        """Ignore deliveries: a request sender has no subscriptions."""

    def close(self, reason: str) -> None:
        """There is no connection to end."""


class RequestSenders:
    """Request senders of all doors, and the publishers of recent offsets."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._known: OrderedDict[tuple[Door, Identity, str], Session] = OrderedDict()
        self._notes: list[Note] = []  # by offset

    def of(self, identity: Identity, door: Door, lane: str = "") -> Session:
        """Return the session that a request publishes as; a blocked lane does not block the others."""
        key = (door, identity, lane)
        session = self._known.get(key)
        if session is None:
            self._make_room()
            session = self._known[key] = Session(identity, door)
            session.connection = RequestConnection(self._scheduler)
        else:
            self._known.move_to_end(key)
        return session

    def _make_room(self) -> None:
        """Drop the least recently used sender if there are too many; waiting senders stay."""
        for _ in range(LOOKED_AT):
            if len(self._known) < CALLERS:
                break
            key, session = self._known.popitem(last=False)
            if _connection_of(session).is_busy:
                self._known[key] = session  # as if it had just come
            else:
                session.topics.clear()

    def sessions(self) -> Iterable[Session]:
        """Return all senders."""
        return self._known.values()

    def is_free(self, session: Session) -> bool:
        """Return whether a sender may publish now: not blocked, and no other request of it waits."""
        return not _connection_of(session).is_busy

    def when_unblocked(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when a sender may publish: at once, unless it is blocked or others wait."""
        connection = _connection_of(session)
        if connection.is_busy:
            connection.waiting.append(callback)
        else:
            callback()

    def when_acknowledgeable(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when a sender's publish may be acknowledged: at once, unless it is blocked."""
        connection = _connection_of(session)
        if connection.is_withholding or connection.acknowledgements:
            connection.acknowledgements.append(callback)
        else:
            callback()

    # Who published what

    def note(self, first: int, last: int, publisher: Session) -> None:
        """Remember the publisher of a range of offsets that follows all ranges before."""
        notes = self._notes
        if notes and notes[-1].publisher is publisher and notes[-1].last == first - 1:
            notes[-1].last = last
            return
        notes.append(Note(first, last, publisher))
        if len(notes) >= 2 * NOTES:
            del notes[:NOTES]

    def publisher_of(self, run: Run) -> Session | None:
        """Return the publisher of a recent message; None if it is not known any more."""
        place = bisect_right(self._notes, run.offset, key=_first_of) - 1
        return self._notes[place].publisher if place >= 0 and run.offset <= self._notes[place].last else None


def is_request_sender(session: Session) -> bool:
    """Return whether a session stands for requests instead of a connection."""
    return isinstance(session.connection, RequestConnection)


def _connection_of(caller: Session) -> RequestConnection:
    assert isinstance(caller.connection, RequestConnection)
    return caller.connection
