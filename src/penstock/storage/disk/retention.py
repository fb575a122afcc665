"""Retention: removes the oldest pieces by age and size.

Never removes what a hold keeps. Removes messages of offline queues only when more than `owed_bytes` are kept
for these alone. Always keeps the newest piece, which has the end of the log. The index is trimmed first, so
that readers see the change, then the store: after a kill in between the next start finds the rest again. The
last sequence of a topic outlives its messages.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from itertools import pairwise

from msgspec import MsgspecError, Struct

from penstock.core.settings import LogSettings
from penstock.storage.disk.holds import Holds
from penstock.storage.disk.pieces.frames import Extent, decode_extents, decode_frame
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
    FIRST_OFFSET_KEY,
    INDEX,
    LOG,
    ROWS,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_key,
    pack_place,
    sequence_key,
)
from penstock.storage.disk.rocksdb.store import Changes, Store

_SEALED = (LOG, INDEX, TOPICS)
_FAMILIES = (ROWS, *_SEALED)
_PORTION_MESSAGES = 5_000
_PORTION_BYTES = 4 << 20
_KEYS_AT_ONCE = 1_000  # a write delays the loop
_LOOK_AHEAD = 4
_LAST_SEQUENCE = (1 << 64) - 1


class TrimReason(StrEnum):
    """Reason for which a piece was removed."""

    AGE = "age"
    BYTES = "bytes"
    OWED_LIMIT = "owed-limit"
    """An offline queue had messages of it, but `owed_bytes` was exceeded."""


class Trimmed(Struct, frozen=True):
    """Report of removed messages."""

    first: int
    last: int
    """First and last offset."""
    messages: int
    bytes: int
    """As stored."""
    why: dict[TrimReason, int]
    """Number of messages by reason."""

    @property
    def offsets(self) -> int:
        """Number of offsets from first to last, stored or not."""
        return self.last - self.first + 1

    def facts(self) -> dict[str, object]:
        """Fields for one log line."""
        why = ", ".join(f"{messages} by {reason}" for reason, messages in self.why.items() if messages)
        return {
            "first": self.first,
            "last": self.last,
            "messages": self.messages,
            "bytes": self.bytes,
            "why": why,
        }


Departure = tuple[Piece, TrimReason]


class Retention:
    """Keeps the log within its limits. Not thread-safe: one `trim` at a time."""

    def __init__(
        self,
        store: Store,
        index: Index,
        settings: LogSettings,
        holds: Holds,
        *,
        quiet: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Removes nothing before `trim`.

        Args:
            quiet: context in which nothing is sealed. Otherwise a new batch could bring removed frames back,
                or be removed with them.
        """
        self._store = store
        self._index = index
        self.settings = settings
        self._holds = holds
        self._quiet = quiet
        self._leaving: list[Departure] = []  # removed from the index, perhaps not yet from the store

    def trim(self, wall_us: int, owed_from: int | None) -> Trimmed | None:
        """Apply the limits; return a report, or None if nothing was removed.

        If the store fails, the next call removes and reports the same messages.

        Args:
            owed_from: the lowest offset in any offline queue, if there is one.

        Raises:
            StorageUnavailable: the store failed.
        """
        with self._quiet():
            self._leaving += self._take(wall_us, owed_from)
            if not self._leaving:
                return None
            trimmed = _report(self._leaving)
            pieces = [piece for piece, _ in self._leaving]
            with self._giving_space_back(pieces):
                self._remove(pieces)
            self._leaving = []
        return trimmed

    def _take(self, wall_us: int, owed_from: int | None) -> list[Departure]:
        with self._holds.unchanged() as held:
            leaving = choose(self._pieces(), self._index.bytes, self.settings, wall_us, held, owed_from)
            if leaving:
                self._index.trim(leaving[-1][0].last + 1)
        return leaving

    def _pieces(self) -> Iterator[Piece]:
        place = 0
        while pieces := self._index.after(place):
            yield from pieces
            place = pieces[-1].last

    @contextmanager
    def _giving_space_back(self, pieces: Sequence[Piece]) -> Iterator[None]:
        """Free the disk space of pieces that are removed in this context."""
        kinds = {piece.is_sealed for piece in pieces}
        families = [*([ROWS] if False in kinds else ()), *(_SEALED if True in kinds else ())]
        # Flush first: a table with both old and new entries would be compacted with everything between.
        for family in families:
            self._store.flush(family)
        yield
        for family in families:
            self._store.compact(family, offset_key(pieces[-1].last + 1))

    def _remove(self, pieces: Sequence[Piece]) -> None:
        topics = _Topics(self._store, [*pieces, *self._index.after(pieces[-1].last, _LOOK_AHEAD)])
        starts = dict.fromkeys(_FAMILIES, 0)  # from 0: damaged entries may precede the first piece
        for portion in _portions(pieces):
            places = topics.places_of(portion)
            changes = Changes()
            for topic, place in places.items():
                if place.value is not None:
                    changes.put(SEQUENCES, sequence_key(topic, place.sequence), place.value)
            stop = portion[-1].last + 1
            # Frames may be in a longer batch, stored by a write that reported a failure: keep that.
            for family in _FAMILIES if portion[0].is_sealed else (ROWS,):
                changes.delete_range(family, offset_key(starts[family]), offset_key(stop))
                starts[family] = stop
            changes.put(STATE, FIRST_OFFSET_KEY, offset_key(stop))
            self._store.write(changes, sync=False)
            self._forget(places, topics.after(portion))

    def _forget(self, places: dict[str, "_Place"], later: Sequence[dict[str, Extent]]) -> None:
        """Remove the sequence keys of removed messages, except the last one of each topic."""
        changes = Changes()
        for topic, place in places.items():
            is_later = any(topic in topics for topics in later)  # cheaper than a lookup in the store
            for key in self._superseded(topic, place.sequence, is_later):
                changes.delete(SEQUENCES, key)
            if len(changes) >= _KEYS_AT_ONCE:
                self._store.write(changes, sync=False)
                changes = Changes()
        if len(changes):
            self._store.write(changes, sync=False)

    def _superseded(self, topic: str, sequence: int, is_later: bool) -> list[bytes]:
        key = sequence_key(topic, sequence)
        try:
            if not is_later:
                newest = self._store.last_before(SEQUENCES, sequence_key(topic, _LAST_SEQUENCE))
                is_later = newest is not None and newest[0] > key
            # Only the last key of a topic is kept, so there is at most one before it.
            return [key] if is_later else list(self._store.scan_keys(SEQUENCES, sequence_key(topic, 0), key))
        except DamagedData:
            return []


def choose(
    pieces: Iterable[Piece],
    total_bytes: int,
    settings: LogSettings,
    wall_us: int,
    held: int | None,
    owed_from: int | None,
) -> list[Departure]:
    """The oldest pieces to remove, each with the reason.

    Args:
        held: everything after this offset is kept by a hold.
        owed_from: the lowest offset in any offline queue.
    """
    leaving: list[Departure] = []
    for piece, following in pairwise(pieces):  # never the newest piece
        # A piece ends before the next one begins, unless the clock was set back.
        ended_at = max(piece.began_at, following.began_at)
        is_old = 0 < settings.retention_s * 1_000_000 <= wall_us - ended_at
        is_over = 0 < settings.retention_bytes < total_bytes
        is_held = held is not None and piece.last > held
        if is_held or not (is_old or is_over):
            break
        leaving.append((piece, TrimReason.AGE if is_old else TrimReason.BYTES))
        total_bytes -= piece.bytes
    return leaving if owed_from is None else _without_owed(leaving, owed_from, settings.owed_bytes)


def _without_owed(leaving: list[Departure], owed_from: int, limit_bytes: int) -> list[Departure]:
    """Keep the newest pieces of offline queues, up to `limit_bytes`."""
    stop = len(leaving)
    for piece, _ in reversed(leaving):
        limit_bytes -= piece.bytes
        if piece.last < owed_from or limit_bytes < 0:
            break
        stop -= 1
    return [
        (piece, why if piece.last < owed_from else TrimReason.OWED_LIMIT) for piece, why in leaving[:stop]
    ]


def _report(leaving: Sequence[Departure]) -> Trimmed:
    pieces = [piece for piece, _ in leaving]
    why: dict[TrimReason, int] = {}
    for piece, reason in leaving:
        why[reason] = why.get(reason, 0) + piece.count
    messages, size = sum(piece.count for piece in pieces), sum(piece.bytes for piece in pieces)
    return Trimmed(pieces[0].first, pieces[-1].last, messages, size, why)


def _portions(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Groups to remove in one write: one batch, or several frames."""
    portion: list[Piece] = []
    messages = size = 0
    for piece in pieces:
        messages += piece.count
        size += piece.bytes
        is_enough = piece.is_sealed or messages > _PORTION_MESSAGES or size > _PORTION_BYTES
        if portion and (is_enough or portion[0].is_sealed):
            yield portion
            portion = []
            messages, size = piece.count, piece.bytes
        portion.append(piece)
    if portion:
        yield portion


class _Place(Struct, frozen=True):
    """Position of the last sequences of a topic among some pieces."""

    sequence: int
    """Sequence of the key."""
    value: bytes | None
    """Value for the key; None if it was stored when the piece was sealed."""


class _Topics:
    """Topics of the pieces that are removed, and of the next few."""

    def __init__(self, store: Store, pieces: Sequence[Piece]) -> None:
        self._store = store
        self._sealed = [piece for piece in pieces if piece.is_sealed]
        self._extents: dict[int, dict[str, Extent]] = {}

    def places_of(self, portion: Sequence[Piece]) -> dict[str, _Place]:
        """Last position of each topic of a portion."""
        if portion[0].is_sealed:
            return {topic: _Place(extent.first, None) for topic, extent in self._of(portion[0]).items()}
        places: dict[str, _Place] = {}
        for data in _read(self._store, ROWS, portion):
            try:
                frame = decode_frame(data)
            except MsgspecError:
                continue
            for run in frame.runs:
                value = pack_place(frame.first, run.last_sequence)
                places[run.topic] = _Place(run.sequence, value)
        return places

    def after(self, portion: Sequence[Piece]) -> list[dict[str, Extent]]:
        """Topics of the next few batches."""
        while self._sealed and self._sealed[0].first <= portion[-1].last:
            self._extents.pop(self._sealed.pop(0).first, None)
        return [self._of(piece) for piece in self._sealed[:_LOOK_AHEAD]]

    def _of(self, piece: Piece) -> dict[str, Extent]:
        if piece.first not in self._extents:
            data = next(_read(self._store, TOPICS, [piece]), b"")
            try:
                self._extents[piece.first] = decode_extents(data)
            except MsgspecError:
                self._extents[piece.first] = {}
        return self._extents[piece.first]


def _read(store: Store, family: str, pieces: Sequence[Piece]) -> Iterator[bytes]:
    """The readable values of some pieces."""
    keys = [offset_key(piece.first) for piece in pieces]
    try:
        values = store.get(family, keys)
    except DamagedData as error:
        values = [error.found.get(key) for key in keys]
    return (value for value in values if value is not None)
