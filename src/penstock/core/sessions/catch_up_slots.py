"""Catch-ups of one session by filter, with a limit on simultaneous readers.

A reader holds a chunk in memory, so the number of readers bounds the cost of a session.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.core.runtime.clock import Scheduler
from penstock.errors import NotAuthorized, PenstockError

READERS = 4
"""Most filters of a session that are read at the same time; the others wait."""


class Joiner(Protocol):
    """Filters on their way to the head."""

    @property
    def filters(self) -> tuple[str, ...]: ...

    @property
    def position(self) -> int:
        """Everything up to this offset was sent, or is accounted for."""
        ...

    def go_on(self) -> None:
        """Send what is to be sent next, if the session takes it."""
        ...

    def leave(self, filter: str) -> None:
        """Continue without one of the filters, if another is left."""
        ...

    def stop(self) -> None: ...

    def fail(self, error: PenstockError) -> None:
        """End before the head, and say why."""
        ...


class CatchUpSlots:
    """Catch-ups of one session; a filter has one at most."""

    __slots__ = ("_joins", "_readers", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._joins: dict[str, Joiner] = {}
        self._readers: set[Joiner] = set()
        self._waiting: dict[Joiner, None] = {}  # for their turn to read

    def __len__(self) -> int:
        return len(self._joins)

    def __iter__(self) -> Iterator[str]:
        return iter(self._joins)

    def __contains__(self, filter: object) -> bool:
        return filter in self._joins

    @property
    def position(self) -> int | None:
        """Position of the slowest; None if there is none."""
        return min((join.position for join in self._each()), default=None)

    def add(self, join: Joiner) -> None:
        """One more, of filters that have none."""
        for filter in join.filters:
            self._joins[filter] = join

    def remove(self, join: Joiner) -> None:
        """It has ended; the next one may read in its place, from the next turn on."""
        self._joins = {filter: other for filter, other in self._joins.items() if other is not join}
        self._waiting.pop(join, None)
        if join in self._readers:
            self._readers.remove(join)
            if self._waiting:
                following = next(iter(self._waiting))
                del self._waiting[following]
                self._scheduler.call_soon(following.go_on)  # not now: its place may be a seam

    def may_read(self, join: Joiner) -> bool:
        """Return whether a catch-up may read now; if not, it continues when its turn comes."""
        if join not in self._readers:
            if len(self._readers) >= READERS:
                self._waiting[join] = None
                return False
            self._readers.add(join)
        return True

    def go_on(self) -> None:
        """The session takes data again."""
        for join in self._each():
            join.go_on()

    def keep_if(self, is_allowed: Callable[[str], bool]) -> None:
        """End the catch-ups of filters that are not allowed any more."""
        for join in self._each():
            forbidden = next((filter for filter in join.filters if not is_allowed(filter)), None)
            if forbidden is not None:
                join.fail(NotAuthorized(f"not allowed to subscribe to {forbidden} any more"))

    def leave(self, filter: str) -> bool:
        """Remove a filter from its catch-up. Returns False if it has none."""
        join = self._joins.pop(filter, None)
        if join is not None:
            join.leave(filter)
        return join is not None

    def stop(self) -> None:
        """The session has lost its connection."""
        self._waiting.clear()
        for join in self._each():
            join.stop()

    def _each(self) -> list[Joiner]:
        return list(dict.fromkeys(self._joins.values()))
