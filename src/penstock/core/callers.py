"""Publishers that have no connection of their own: requests of HTTP and gRPC.

Whoever calls publishes as a session that nobody can subscribe with, find or take over: one for each identity
at a door, so that its rights are decided once and not with every request. A caller that is held back under
`block` waits as others do: its requests get no answer until it is free. Nobody else waits with it.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec import Struct

from penstock.core.clock import Scheduler
from penstock.core.identity import Identity
from penstock.core.sessions import Session
from penstock.model import Door, Run

CALLERS = 1_000
"""How many callers are remembered; the one who was not here for longest is decided anew when it returns."""
NOTES = 10_000
"""How many stretches of offsets are remembered with their publisher, at least: far more than a turn has."""
_first_of = attrgetter("first")


class Note(Struct):
    """Who published some offsets."""

    first: int
    last: int
    publisher: Session


class CallerSink:
    """What a caller has in place of a connection: nothing is sent to it, but it can be made to wait."""

    __slots__ = ("_scheduler", "waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.waiting: list[Callable[[], None]] = []

    def hold(self, *, is_unacknowledged: bool) -> None:
        """From now on its requests wait."""

    def release(self) -> None:
        """Let the requests go on, in their order."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            self._scheduler.call_soon(callback)

    def write(self, data: bytes) -> None:
        """Nobody listens here."""

    def close(self, reason: str) -> None:
        """There is no connection to end."""


class Callers:
    """The callers of all doors, and who published what lately."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._known: OrderedDict[tuple[Door, Identity], Session] = OrderedDict()
        self._notes: list[Note] = []  # by offset

    def of(self, identity: Identity, door: Door) -> Session:
        """The session in whose name somebody publishes."""
        key = (door, identity)
        session = self._known.get(key)
        if session is None:
            session = self._known[key] = Session(identity, door)
            session.sink = CallerSink(self._scheduler)
            if len(self._known) > CALLERS:
                _, gone = self._known.popitem(last=False)  # if it is held, it is released all the same
                gone.topics.clear()
        else:
            self._known.move_to_end(key)
        return session

    def sessions(self) -> Iterable[Session]:
        """Everyone who is remembered."""
        return self._known.values()

    def when_free(self, session: Session, callback: Callable[[], None]) -> None:
        """Call back when a caller need not wait: at once, or when whoever holds it back lets go."""
        if session.held_by is not None and isinstance(session.sink, CallerSink):
            session.sink.waiting.append(callback)
        else:
            callback()

    def free_all(self) -> None:
        """Let everyone go on: the server is about to stop, and nobody need wait for that."""
        for session in self._known.values():
            assert isinstance(session.sink, CallerSink)
            session.sink.release()

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
