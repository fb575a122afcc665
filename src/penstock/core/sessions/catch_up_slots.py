"""Catch-ups of one session by filter, with a limit on simultaneous readers.

A reader holds a chunk in memory, so the number of readers bounds the cost of a session.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.core.runtime.clock import Scheduler
from penstock.errors import NotAuthorized, PenstockError

READERS = 4
"""Most filters of a session that are read at the same time; the others wait."""


class FilterCatchUp(Protocol):
    """Filters on their way to the head."""

    @property
    def filters(self) -> tuple[str, ...]: ...

    @property
    def position(self) -> int:
        """Everything up to this offset was sent, or is accounted for."""
        ...

    def resume(self) -> None:
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

    __slots__ = ("_catch_ups", "_readers", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._catch_ups: dict[str, FilterCatchUp] = {}
        self._readers: set[FilterCatchUp] = set()
        self._waiting: dict[FilterCatchUp, None] = {}  # for their turn to read

    def __len__(self) -> int:
        return len(self._catch_ups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catch_ups)

    def __contains__(self, filter: object) -> bool:
        return filter in self._catch_ups

    @property
    def position(self) -> int | None:
        """Position of the slowest; None if there is none."""
        return min((catch_up.position for catch_up in self._each()), default=None)

    def add(self, catch_up: FilterCatchUp) -> None:
        """One more, of filters that have none."""
        for filter in catch_up.filters:
            self._catch_ups[filter] = catch_up

    def remove(self, catch_up: FilterCatchUp) -> None:
        """It has ended; the next one may read in its place, from the next turn on."""
        self._catch_ups = {
            filter: other for filter, other in self._catch_ups.items() if other is not catch_up
        }
        self._waiting.pop(catch_up, None)
        if catch_up in self._readers:
            self._readers.remove(catch_up)
            if self._waiting:
                following = next(iter(self._waiting))
                del self._waiting[following]
                self._scheduler.call_soon(following.resume)  # not now: its place may be a seam

    def take_slot(self, catch_up: FilterCatchUp) -> bool:
        """Take a reader slot. Returns False if none is free; the catch-up continues when its turn comes."""
        if catch_up not in self._readers:
            if len(self._readers) >= READERS:
                self._waiting[catch_up] = None
                return False
            self._readers.add(catch_up)
        return True

    def resume(self) -> None:
        """The session takes data again."""
        for catch_up in self._each():
            catch_up.resume()

    def keep_if(self, is_allowed: Callable[[str], bool]) -> None:
        """End the catch-ups of filters that are not allowed any more."""
        for catch_up in self._each():
            forbidden = next((filter for filter in catch_up.filters if not is_allowed(filter)), None)
            if forbidden is not None:
                catch_up.fail(NotAuthorized(f"not allowed to subscribe to {forbidden} any more"))

    def leave(self, filter: str) -> bool:
        """Remove a filter from its catch-up. Returns False if it has none."""
        catch_up = self._catch_ups.pop(filter, None)
        if catch_up is not None:
            catch_up.leave(filter)
        return catch_up is not None

    def stop(self) -> None:
        """The session has lost its connection."""
        self._waiting.clear()
        for catch_up in self._each():
            catch_up.stop()

    def _each(self) -> list[FilterCatchUp]:
        return list(dict.fromkeys(self._catch_ups.values()))
