"""Holds: named positions by which readers keep what they have not read yet.

A hold belongs to whoever made it and lapses unless it is renewed or moved, so that a reader who never comes
back does not keep the log for ever. One owner can have only so many, and none that lasts very long. Lapse is
judged on the monotonic clock: setting the machine's time ends no hold. The wall time in a record is for
people, and for the next start. Everything is called from the loop, but for `lowest` and `unchanged`, which
retention asks from a thread of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.archive import Hold
from penstock.core.clock import Clock
from penstock.core.ports import StateStore
from penstock.core.settings import LogSettings
from penstock.errors import InvalidCursor, InvalidHold, NotAuthorized, QuotaExceeded, UnknownHold
from penstock.storage.disk.index import Index

HOLDS = "holds"
"""Where the records are, by the names of the holds."""
LONGEST_NAME = 200
SHORTEST_LAPSE_S = 1.0


class HoldRecord(Struct, frozen=True, array_like=True):
    """A hold as it is stored."""

    owner: str
    offset: int
    lapse_s: float
    lapses_at: int
    """In microseconds of wall time, as it was when the hold was renewed last."""
    filters: tuple[str, ...] = ()


class _Held(Struct):
    """A hold, and until when by the monotonic clock."""

    record: HoldRecord
    deadline: float


class Holds:
    """All holds of a log. Those that have lapsed keep nothing, and are removed by `drop_lapsed`."""

    def __init__(self, state: StateStore, clock: Clock, index: Index, settings: LogSettings) -> None:
        self._state = state
        self._clock = clock
        self._index = index
        self.configure(settings)
        self.on_change: Callable[[], None] = lambda: None  # something is to be committed
        self._lock = RLock()
        self._held = {name: self._restore(record) for name, record in state.scan(HOLDS)}

    def configure(self, settings: LogSettings) -> None:
        """Go by other limits for what comes from now on; the holds that are there stay."""
        self._limit = settings.max_holds
        self._limit_per_owner = settings.max_holds_per_owner
        self._longest_lapse_s = settings.max_hold_lapse_s

    def create(
        self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...] = ()
    ) -> Hold:
        """Keep everything after an offset; if the owner has a hold of this name already, it takes this place.

        Raises:
            InvalidHold: the name or the lapse time breaks a rule.
            NotAuthorized: someone else has a hold of this name.
            InvalidCursor: what follows the offset is not there any more.
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
            NotAuthorized: it is someone else's.
        """
        with self._lock:
            return self._describe(name, self._find(name, owner))

    def renew(self, name: str, owner: str) -> Hold:
        """Let a hold last for its whole lapse time again.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        with self._lock:
            record = self._find(name, owner).record
            return self._put(name, owner, record.offset, record.lapse_s, record.filters)

    def move(self, name: str, owner: str, offset: int) -> Hold:
        """Keep only what is after this offset from now on; that renews the hold too.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
            InvalidCursor: what follows the offset is not there any more.
        """
        with self._lock:
            record = self._find(name, owner).record
            return self._keep(name, owner, offset, record.lapse_s, record.filters)

    def release(self, name: str, owner: str | None) -> None:
        """End a hold; without an owner, whoever has it.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
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
        """The lowest offset after which something is to be kept; None if nobody holds anything."""
        with self._lock:
            offsets = (held.record.offset for held in self._held.values() if not self._has_lapsed(held))
            return min(offsets, default=None)

    @contextmanager
    def unchanged(self) -> Iterator[int | None]:
        """Answer `lowest`, and let nobody make or move a hold while what follows from it is decided."""
        with self._lock:
            yield self.lowest()

    def drop_lapsed(self) -> list[Hold]:
        """Remove the holds that have lapsed, and tell which."""
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
        lapses_at = min(record.lapses_at, now_us + _microseconds(record.lapse_s))  # it may have been set back
        left_s = (lapses_at - now_us) / 1_000_000
        return _Held(replace(record, lapses_at=lapses_at), self._clock.monotonic() + left_s)

    def _check_room(self, owner: str) -> None:
        """Refuse one hold more, if there are too many that have not lapsed."""
        theirs = sum(held.record.owner == owner for held in self._held.values())
        if len(self._held) >= self._limit or theirs >= self._limit_per_owner:
            self.drop_lapsed()
            theirs = sum(held.record.owner == owner for held in self._held.values())
        if len(self._held) >= self._limit:
            raise QuotaExceeded(f"there are {self._limit} holds already")
        if theirs >= self._limit_per_owner:
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
            raise NotAuthorized(f"the hold {name!r} belongs to someone else")

    def _keep(self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...]) -> Hold:
        first = self._index.first_offset
        if offset < first - 1:
            raise InvalidCursor(f"the log begins at offset {first}, and what follows {offset} has left it")
        return self._put(name, owner, offset, lapse_s, filters)

    def _put(self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...]) -> Hold:
        lapse_s = min(lapse_s, self._longest_lapse_s)  # which may have been longer when the hold was made
        lapses_at = self._clock.wall_us() + _microseconds(lapse_s)
        record = HoldRecord(owner, offset, lapse_s, lapses_at, filters)
        self._state.put(HOLDS, name, record)
        self.on_change()
        self._held[name] = held = _Held(record, self._clock.monotonic() + lapse_s)
        return self._describe(name, held)

    def _remove(self, name: str) -> None:
        self._state.delete(HOLDS, name)
        self.on_change()
        del self._held[name]

    def _has_lapsed(self, held: _Held) -> bool:
        return self._clock.monotonic() >= held.deadline

    def _describe(self, name: str, held: _Held) -> Hold:
        record = held.record
        return Hold(name, record.owner, record.offset, record.lapse_s, record.lapses_at, record.filters)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
