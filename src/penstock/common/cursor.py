"""Cursor: a position that is valid at every door, opaque text for clients.

The text is URL-safe: a version byte and, for each log, its id, epoch and offset. Everything up to and
including the offset has been read.
"""

from base64 import urlsafe_b64decode
from binascii import Error, b2a_base64
from struct import Struct as Layout

from msgspec import Struct

from penstock.errors import InvalidCursor


class Position(Struct, frozen=True):
    """A place in one log: everything up to and including `offset` has been seen."""

    log_id: str
    epoch: int
    offset: int


_VERSION = 1
_HEAD = bytes((_VERSION,))
_ENTRY = Layout(">8sIQ")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Cursor(Struct, frozen=True):
    """Position of a reader in every log it reads; one log on a single node."""

    positions: tuple[Position, ...]

    def encode(self) -> str:
        """The text a client keeps."""
        packed = _HEAD
        for position in self.positions:  # one, nearly always: cheaper than a generator to join
            packed += _ENTRY.pack(bytes.fromhex(position.log_id), position.epoch, position.offset)
        return _text_of(packed)

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """Read what a client kept.

        Raises:
            InvalidCursor: it is not a cursor, or one of a version we do not know.
        """
        try:
            packed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except (Error, ValueError, UnicodeEncodeError):
            raise InvalidCursor("not a cursor") from None
        if len(packed) < 1 + _ENTRY.size or (len(packed) - 1) % _ENTRY.size:
            raise InvalidCursor("not a cursor")
        if text.rstrip("=") != _text_of(packed):
            raise InvalidCursor("not a cursor")  # characters that base64 would overlook
        if packed[0] != _VERSION:
            raise InvalidCursor("not a cursor of this version")
        entries = _ENTRY.iter_unpack(packed[1:])
        return cls(tuple(Position(log_id.hex(), epoch, offset) for log_id, epoch, offset in entries))

    def position_in(self, log_id: str) -> Position | None:
        """The position in one log, if the cursor has one."""
        return next((position for position in self.positions if position.log_id == log_id), None)


def _text_of(packed: bytes) -> str:
    """Base64 as addresses take it, and not filled up; the library's own way takes thrice as long."""
    return b2a_base64(packed, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()
