"""How much of a sealed piece is asked for, as far as that can be told without reading it."""

from collections.abc import Callable

from penstock.core.ports import Wanted
from penstock.model import is_public
from penstock.storage.disk.contents import Asked
from penstock.storage.disk.frames import Extent
from penstock.storage.disk.index import Piece


class Choice:
    """What one read has to do with the topics of a sealed piece, as far as that is stored beside it."""

    def __init__(
        self,
        extents_of: Callable[[Piece], dict[str, Extent] | None],
        wanted: Wanted | None,
        asked: Asked | None,
    ) -> None:
        self._extents_of = extents_of
        self._is_public = wanted is is_public
        self._asked = asked
        self._last: tuple[Piece, int | None] | None = None

    def is_all(self, piece: Piece) -> bool:
        """All of its messages are asked for."""
        return self._known(piece) == piece.count

    def is_nothing(self, piece: Piece) -> bool:
        """None of them is asked for."""
        return self._known(piece) == 0

    def count(self, piece: Piece) -> int:
        """How many are asked for; where that is not known, as many as there are."""
        known = self._known(piece)
        return piece.count if known is None else known

    def _known(self, piece: Piece) -> int | None:
        """How many of its messages are asked for, if that is known and it has any."""
        if self._asked is None or not (piece.is_sealed and piece.count):
            return None
        if self._is_public and piece.reserved is not None:
            return piece.count - piece.reserved
        if self._last is None or self._last[0] != piece:  # such questions come one after the other
            self._last = piece, self._look_up(piece, self._asked)
        return self._last[1]

    def _look_up(self, piece: Piece, asked: Asked) -> int | None:
        extents = self._extents_of(piece)
        if not extents:
            return None
        counts = [(extent.count, asked[topic]) for topic, extent in extents.items()]
        return sum(count for count, is_asked in counts if is_asked)
