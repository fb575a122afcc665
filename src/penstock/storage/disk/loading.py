"""Brings pieces of the log from the store, several at once, and keeps what was read of late.

A piece that was sealed since the index was asked is found as the batch it has become. One that is damaged
comes as contents of which nothing can be made.
"""

from collections.abc import Iterator, Sequence

from msgspec import MsgspecError

from penstock.storage.disk.contents import Contents, Recent, Rows
from penstock.storage.disk.frames import decode_summary
from penstock.storage.disk.index import Piece
from penstock.storage.disk.layout import INDEX, LOG, ROWS, offset_key
from penstock.storage.disk.store import DamagedData, Store
from penstock.storage.disk.walking import Walk

_DAMAGED = b""
"""Stands for a value that cannot be read; nothing can be made of it."""


class Loader:
    """The contents of pieces.

    Args:
        recent_bytes: how much of what was read is kept.
    """

    def __init__(self, store: Store, recent_bytes: int) -> None:
        self._store = store
        self._recent = Recent(recent_bytes)

    def keep(self, piece: Piece, contents: Contents) -> None:
        """Somebody will be back for more of a piece."""
        self._recent.put((piece.first, piece.last), contents)

    def open(self, walk: Walk, group: Sequence[Piece]) -> Iterator[tuple[Piece, Contents]]:
        """The contents of pieces, up to one that has been replaced or removed since."""
        found = self._load(group)
        for piece in group:
            contents = found.get(piece)
            if not piece.count:
                walk.advance(piece, piece.last)
            elif contents is not None:
                yield piece, contents
            elif (batch := self._sealed_since(piece)) is not None:
                yield batch, self._load([batch])[batch] or _contents(batch, _DAMAGED)
                return
            elif walk.has_changed(piece):
                return
            else:
                yield piece, _contents(piece, _DAMAGED)

    def _load(self, group: Sequence[Piece]) -> dict[Piece, Contents | None]:
        """The contents of pieces of the same kind; None for those that are not there."""
        found: dict[Piece, Contents | None] = {
            piece: self._recent.get((piece.first, piece.last)) for piece in group if piece.count
        }
        wanted = [piece for piece, contents in found.items() if contents is None]
        keys = [offset_key(piece.first) for piece in wanted]
        try:
            values = self._store.get(LOG if group[0].is_sealed else ROWS, keys) if keys else []
        except DamagedData as error:
            values = [error.found.get(key, _DAMAGED) for key in keys]
        for piece, data in zip(wanted, values, strict=True):
            found[piece] = None if data is None else _contents(piece, data)
        return found

    def _sealed_since(self, frame: Piece) -> Piece | None:
        """The batch that a frame has become, of which the index may not know yet."""
        try:
            entry = None if frame.is_sealed else self._store.last_before(INDEX, offset_key(frame.first))
            summary = None if entry is None else decode_summary(entry[1])
        except (DamagedData, MsgspecError):
            return None
        if summary is None or summary.last < frame.first:
            return None
        return Piece.of_summary(summary)


def _contents(piece: Piece, data: bytes) -> Contents:
    if not piece.is_sealed:
        return Rows(data)
    from penstock.storage.disk.batches import Batch  # noqa: PLC0415 - who reads only rows does without

    return Batch(piece, data)


def alike(pieces: Sequence[Piece], room_bytes: int) -> list[Piece]:
    """The first pieces that can be read at once: of one kind, and not many more than there is room for."""
    group: list[Piece] = []
    for piece in pieces:
        if group and (room_bytes <= 0 or piece.is_sealed != group[0].is_sealed):
            break
        group.append(piece)
        room_bytes -= piece.bytes
    return group
