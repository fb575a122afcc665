"""Publishers that have no connection of their own: requests of HTTP and gRPC.

Whoever calls publishes as a session that nobody can subscribe with, find or take over: one for each identity
at a door, so that its rights are decided once and not with every request, or one for each lane where a door
has several. A caller that is held back under `block` waits as others do: its requests are neither published
nor answered until it is free. Nobody else waits with it.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec import Struct

from penstock.core.clock import Scheduler
from penstock.core.identity import Identity
from penstock.core.sessions import Session
from penstock.model import Door, Run

CALLERS = 10_000
"""How many callers are remembered, besides those who wait; the one who was not here for longest is decided
anew when it returns."""
LOOKED_AT = 10
"""How many of them are looked at when another one comes and there are too many."""
NOTES = 10_000
"""How many stretches of offsets are remembered with their publisher, at least: far more than a turn has."""
_first_of = attrgetter("first")


class Note(Struct):
    """Who published some offsets."""

    first: int
    last: int
    publisher: Session


class CallerSink:
    """What a caller has in place of a connection: nothing is sent to it, but it can be made to wait.

    Its requests go on one after the other: what the first of them publishes may hold it back again, and then
    the others still wait.
    """

    __slots__ = ("_is_going_on", "_scheduler", "answers", "is_held", "waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_going_on = False
        self.is_held = False
        self.answers: deque[Callable[[], None]] = deque()
        self.waiting: deque[Callable[[], None]] = deque()

    @property
    def is_busy(self) -> bool:
        """Somebody waits here, or whoever comes now would."""
        return self.is_held or self._is_going_on

    def hold(self, *, is_unacknowledged: bool) -> None:
        """From now on its requests wait."""
        self.is_held = True

    def release(self) -> None:
        """Let the requests go on, in their order."""
        self.is_held = False
        if not self._is_going_on:
            self._is_going_on = True
            self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Call back one of those who wait, and look again in the next turn."""
        queue = self.answers or self.waiting
        if self.is_held or not queue:
            self._is_going_on = False
            return
        try:
            queue.popleft()()
        finally:  # what it published has asked for its flush by now, so that comes before us
            self._scheduler.call_soon(self._go_on)

    def write(self, data: bytes) -> None:
        """Nobody listens here."""

    def close(self, reason: str) -> None:
        """There is no connection to end."""


class Callers:
    """The callers of all doors, and who published what lately."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._known: OrderedDict[tuple[Door, Identity, str], Session] = OrderedDict()
        self._notes: list[Note] = []  # by offset

    def of(self, identity: Identity, door: Door, lane: str = "") -> Session:
        """The session in whose name somebody publishes; who is held back in a lane goes on in the others."""
        key = (door, identity, lane)
        session = self._known.get(key)
        if session is None:
            self._make_room()
            session = self._known[key] = Session(identity, door)
            session.sink = CallerSink(self._scheduler)
        else:
            self._known.move_to_end(key)
        return session

    def _make_room(self) -> None:
        """Forget who was not here for longest, if there are too many; but nobody who waits."""
        for _ in range(LOOKED_AT):
            if len(self._known) < CALLERS:
                break
            key, session = self._known.popitem(last=False)
            if _sink_of(session).is_busy:
                self._known[key] = session  # as if it had just come
            else:
                session.topics.clear()

    def sessions(self) -> Iterable[Session]:
        """Everyone who is remembered."""
        return self._known.values()

    def is_free(self, session: Session) -> bool:
        """Whether a caller may publish now: it is not held back, and no other request of it waits."""
        return not _sink_of(session).is_busy

    def when_free(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when it is a caller's turn to publish: at once, unless it is held back or others wait."""
        sink = _sink_of(session)
        if sink.is_busy:
            sink.waiting.append(callback)
        else:
            callback()

    def when_let_go(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when a caller may be told that it has published: at once, unless it is held back."""
        sink = _sink_of(session)
        if sink.is_held or sink.answers:
            sink.answers.append(callback)
        else:
            callback()

    # Who published what

    def note(self, first: int, last: int, publisher: Session) -> None:
        """Remember who published these offsets, which come after all that were noted before."""
        notes = self._notes
        if notes and notes[-1].publisher is publisher and notes[-1].last == first - 1:
            notes[-1].last = last
            return
        notes.append(Note(first, last, publisher))
        if len(notes) >= 2 * NOTES:
            del notes[:NOTES]

    def publisher_of(self, run: Run) -> Session | None:
        """Who published a message, if that was noted and not long ago."""
        place = bisect_right(self._notes, run.offset, key=_first_of) - 1
        return self._notes[place].publisher if place >= 0 and run.offset <= self._notes[place].last else None


def _sink_of(caller: Session) -> CallerSink:
    assert isinstance(caller.sink, CallerSink)
    return caller.sink
