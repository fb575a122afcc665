"""Retention holds: named positions after which messages are kept for a reader.

A hold has an owner and lapses unless it is renewed or moved, so that a lost reader does not keep the log
forever. Number per owner and lapse time are limited. Lapse uses the monotonic clock: a change of the system
time ends no hold. The wall time in a record is for display, and for the next start. All methods are called on
the loop, except `lowest` and `unchanged`, which retention calls in its thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.ports.archive import Hold
from penstock.core.ports.state import StateStore
from penstock.core.ports.turn import Sequencer
from penstock.core.runtime.clock import Clock
from penstock.core.settings import LogSettings
from penstock.errors import InvalidCursor, InvalidHold, NotAuthorized, QuotaExceeded, UnknownHold
from penstock.storage.disk.pieces.index import Index

HOLDS = "holds"
"""Table of the records, by the name of the hold."""
LONGEST_NAME = 200
SHORTEST_LAPSE_S = 1.0


class HoldRecord(Struct, frozen=True, array_like=True):
    """Stored form of a hold."""

    owner: str
    offset: int
    lapse_s: float
    lapses_at: int
    """Microseconds of wall time, at the last renewal."""
    filters: tuple[str, ...] = ()


class _Held(Struct):
    """A hold with its deadline on the monotonic clock."""

    record: HoldRecord
    deadline: float


class Holds:
    """All holds of a log. Lapsed ones keep nothing, and are removed by `drop_lapsed`."""

    def __init__(
        self, state: StateStore, sequencer: Sequencer, clock: Clock, index: Index, settings: LogSettings
    ) -> None:
        self._sequencer = sequencer
        self._clock = clock
        self._index = index
        self.configure(settings)
        self._lock = RLock()
        self._held = {name: self._restore(record) for name, record in state.scan(HOLDS)}

    def configure(self, settings: LogSettings) -> None:
        """Apply changed limits to new holds; existing holds stay."""
        self._limit = settings.max_holds
        self._limit_per_owner = settings.max_holds_per_owner
        self._longest_lapse_s = settings.max_hold_lapse_s

    def create(
        self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...] = ()
    ) -> Hold:
        """Keep everything after an offset; replaces a hold of this name and owner.

        Raises:
            InvalidHold: the name or the lapse time breaks a rule.
            NotAuthorized: another owner has a hold of this name.
            InvalidCursor: messages after the offset have been removed.
            QuotaExceeded: there are too many holds, or too many of this owner.
        """
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise InvalidHold(f"the name of a hold has 1 to {LONGEST_NAME} printable characters")
        if not SHORTEST_LAPSE_S <= lapse_s <= self._longest_lapse_s:
            span = f"{SHORTEST_LAPSE_S:.0f} to {self._longest_lapse_s:.0f} seconds"
            raise InvalidHold(f"a hold lapses after {span}")
        with self._lock:
            held = self._held.get(name)
            if held is not None and not self._has_lapsed(held):
                self._check_owner(name, held, owner)
            else:
                self._check_room(owner)
            return self._keep(name, owner, offset, lapse_s, filters)

    def find(self, name: str, owner: str) -> Hold:
        """A hold of this owner.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it belongs to another owner.
        """
        with self._lock:
            return self._describe(name, self._find(name, owner))

    def renew(self, name: str, owner: str) -> Hold:
        """Restart the lapse time of a hold.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it belongs to another owner.
        """
        with self._lock:
            record = self._find(name, owner).record
            return self._put(name, owner, record.offset, record.lapse_s, record.filters)

    def move(self, name: str, owner: str, offset: int) -> Hold:
        """Move a hold to another offset, and renew it.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it belongs to another owner.
            InvalidCursor: messages after the offset have been removed.
        """
        with self._lock:
            record = self._find(name, owner).record
            return self._keep(name, owner, offset, record.lapse_s, record.filters)

    def release(self, name: str, owner: str | None) -> None:
        """End a hold; with owner None, that of any owner.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it belongs to another owner.
        """
        with self._lock:
            self._find(name, owner)
            self._remove(name)

    def listing(self) -> list[Hold]:
        """All holds that have not lapsed, by name."""
        with self._lock:
            return [
                self._describe(name, held)
                for name, held in sorted(self._held.items())
                if not self._has_lapsed(held)
            ]

    def lowest(self) -> int | None:
        """The lowest held offset; None if there is no hold."""
        with self._lock:
            offsets = (held.record.offset for held in self._held.values() if not self._has_lapsed(held))
            return min(offsets, default=None)

    @contextmanager
    def unchanged(self) -> Iterator[int | None]:
        """Yield `lowest`; no hold is created or moved in this context."""
        with self._lock:
            yield self.lowest()

    def drop_lapsed(self) -> list[Hold]:
        """Remove lapsed holds and return them."""
        with self._lock:
            lapsed = [
                self._describe(name, held) for name, held in self._held.items() if self._has_lapsed(held)
            ]
            for hold in lapsed:
                self._remove(hold.name)
        return lapsed

    def _restore(self, record: Struct) -> _Held:
        assert isinstance(record, HoldRecord)
        now_us = self._clock.wall_us()
        lapses_at = min(
            record.lapses_at, now_us + _microseconds(record.lapse_s)
        )  # the clock may have been set back
        left_s = (lapses_at - now_us) / 1_000_000
        return _Held(replace(record, lapses_at=lapses_at), self._clock.monotonic() + left_s)

    def _check_room(self, owner: str) -> None:
        """Raise if there are too many holds, lapsed ones not counted."""
        held = [each for each in self._held.values() if not self._has_lapsed(each)]
        if len(held) >= self._limit:
            raise QuotaExceeded(f"there are {self._limit} holds already")
        if sum(each.record.owner == owner for each in held) >= self._limit_per_owner:
            raise QuotaExceeded(f"this owner has {self._limit_per_owner} holds already")

    def _find(self, name: str, owner: str | None) -> _Held:
        held = self._held.get(name)
        if held is None or self._has_lapsed(held):
            raise UnknownHold(f"there is no hold {name!r}")
        if owner is not None:
            self._check_owner(name, held, owner)
        return held

    def _check_owner(self, name: str, held: _Held, owner: str) -> None:
        if held.record.owner != owner:
            raise NotAuthorized(f"the hold {name!r} belongs to another owner")

    def _keep(self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...]) -> Hold:
        first = self._index.first_offset
        if offset < first - 1:
            raise InvalidCursor(
                f"messages after offset {offset} have been removed; the log begins at {first}"
            )
        return self._put(name, owner, offset, lapse_s, filters)

    def _put(self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...]) -> Hold:
        lapse_s = min(lapse_s, self._longest_lapse_s)  # the limit may have been lowered
        lapses_at = self._clock.wall_us() + _microseconds(lapse_s)
        record = HoldRecord(owner, offset, lapse_s, lapses_at, filters)
        self._sequencer.turn.put(HOLDS, name, record)
        self._held[name] = held = _Held(record, self._clock.monotonic() + lapse_s)
        return self._describe(name, held)

    def _remove(self, name: str) -> None:
        self._sequencer.turn.delete(HOLDS, name)
        del self._held[name]

    def _has_lapsed(self, held: _Held) -> bool:
        return self._clock.monotonic() >= held.deadline

    def _describe(self, name: str, held: _Held) -> Hold:
        record = held.record
        return Hold(name, record.owner, record.offset, record.lapse_s, record.lapses_at, record.filters)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
