"""Cursor: a position that is valid at every door, opaque text for clients.

The text is URL-safe. Version 1, of servers with one shard, has for each log its id, epoch and offset. Version
2, of several shards, has the id of the cluster once, a bitmap of shards, and numbers of variable length.
Everything up to and including an offset has been read.
"""

from base64 import urlsafe_b64decode
from binascii import Error, b2a_base64
from collections.abc import Iterable
from struct import Struct as Layout

from msgspec import Struct

from penstock.errors import InvalidCursor

MAX_SHARDS = 64
"""Most shards of a cluster; with more, cursors would not fit into headers and addresses."""
MAX_CHARACTERS = 1_708
"""Of the longest cursor: 64 logs in version 1."""


class Position(Struct, frozen=True, omit_defaults=True):  # stored in records, where shard 0 is not written
    """A place in one log: everything up to and including `offset` has been seen."""

    log_id: str
    """Id of the log; of a cluster's, the same for all its shards."""
    epoch: int
    offset: int
    shard: int = 0


_HEAD = b"\x01"
_SEVERAL_SHARDS = 2
_ENTRY = Layout(">8sIQ")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_ID_BYTES = 8
_PARTIAL = 0x80
"""Flag beside the number of shards: a bitmap of those with a position follows, and the second."""
_EPOCH_BITS, _OFFSET_BITS, _SECOND_BITS = 32, 64, 40


class Cursor(Struct, frozen=True):
    """Position of a reader in every log it reads; one log on a server with one shard."""

    positions: tuple[Position, ...]
    """With several shards, of one cluster and in the order of shards."""
    shards: int = 1
    """Shards of the server; with more than one the cursor is of version 2."""
    made_at: int = 0
    """Second in which it was made, where shards begin that it does not name; 0 if it names all."""

    @classmethod
    def of_shards(cls, log_id: str, shards: int, positions: Iterable[Position], made_at: int) -> "Cursor":
        """The cursor of a reader of some or all shards of a cluster, at a second of wall time.

        Raises:
            ValueError: nothing is named, or not in order, or a number does not fit.
        """
        ordered = tuple(positions)
        numbers = [position.shard for position in ordered]
        if not 1 <= shards <= MAX_SHARDS:
            raise ValueError(f"{shards} is not a number of shards from 1 to {MAX_SHARDS}")
        if not numbers or numbers != sorted(set(numbers)) or not 0 <= numbers[0] <= numbers[-1] < shards:
            raise ValueError(f"shards {numbers} are not ascending numbers below {shards}")
        if any(position.log_id != log_id for position in ordered):
            raise ValueError("positions of other clusters")
        if any(position.epoch >> _EPOCH_BITS or position.offset >> _OFFSET_BITS for position in ordered):
            raise ValueError("an epoch or offset that does not fit")
        if not 0 <= made_at < 1 << _SECOND_BITS:
            raise ValueError(f"{made_at} is not a second of wall time")
        return cls(ordered, shards, 0 if len(ordered) == shards else made_at)

    def encode(self) -> str:
        """The text a client keeps."""
        if self.shards > 1:
            return _text_of(_pack_shards(self))
        packed = _HEAD
        for position in self.positions:  # one, nearly always: cheaper than a generator to join
            packed += _ENTRY.pack(bytes.fromhex(position.log_id), position.epoch, position.offset)
        return _text_of(packed)

    @classmethod
    def decode(cls, text: str, shards: int | None = 1) -> "Cursor":
        """Read what a client kept.

        Args:
            shards: of the server that reads it; None accepts any number. A cursor of version 1 is accepted
                by all: it names a log from before there were several, which is shard 0.

        Raises:
            InvalidCursor: it is not a cursor, of a version we do not know, or of another number of shards.
        """
        try:
            if len(text) > MAX_CHARACTERS:
                raise InvalidCursor("not a cursor")
            packed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except (Error, ValueError, UnicodeEncodeError):
            raise InvalidCursor("not a cursor") from None
        if packed[:1] == bytes((_SEVERAL_SHARDS,)):
            cursor = _unpack_shards(packed)
            _check_text(text, packed)
            if shards is not None and shards != cursor.shards:
                raise InvalidCursor(f"a cursor of {cursor.shards} shards; this server has {shards}")
            return cursor
        if len(packed) < 1 + _ENTRY.size or (len(packed) - 1) % _ENTRY.size:
            raise InvalidCursor("not a cursor")
        _check_text(text, packed)
        if packed[:1] != _HEAD:
            raise InvalidCursor("not a cursor of this version")
        entries = _ENTRY.iter_unpack(packed[1:])
        return cls(tuple(Position(log_id.hex(), epoch, offset) for log_id, epoch, offset in entries))

    def position_in(self, log_id: str, shard: int = 0) -> Position | None:
        """The position in one log, if the cursor has one."""
        for position in self.positions:
            if position.log_id == log_id and position.shard == shard:
                return position
        return None


def _text_of(packed: bytes) -> str:
    """Base64 as addresses take it, and not filled up; the library's own way takes thrice as long."""
    return b2a_base64(packed, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()


def _check_text(text: str, packed: bytes) -> None:
    if text.rstrip("=") != _text_of(packed):
        raise InvalidCursor("not a cursor")  # characters that base64 would overlook


# Version 2: version, cluster id, number of shards less 1 and the flag; if set, bitmap (shard 0 is the lowest
# bit of the first byte) and second; then epoch and offset of each shard.


def _pack_shards(cursor: Cursor) -> bytes:
    positions, shards = cursor.positions, cursor.shards
    packed = bytearray((_SEVERAL_SHARDS,))
    packed += bytes.fromhex(positions[0].log_id)
    if len(positions) == shards:
        packed.append(shards - 1)
    else:
        packed.append(shards - 1 | _PARTIAL)
        bitmap = sum([1 << position.shard for position in positions])
        packed += bitmap.to_bytes(_bitmap_bytes(shards), "little")
        _add_varint(packed, cursor.made_at)
    for position in positions:
        _add_varint(packed, position.epoch)
        _add_varint(packed, position.offset)
    return bytes(packed)


def _unpack_shards(packed: bytes) -> Cursor:
    at = 1 + _ID_BYTES
    if len(packed) <= at:
        raise InvalidCursor("not a cursor")
    log_id, flags = packed[1:at].hex(), packed[at]
    shards, made_at, at = (flags & ~_PARTIAL) + 1, 0, at + 1
    if not 1 < shards <= MAX_SHARDS:  # of one shard, version 1 is the only form
        raise InvalidCursor("not a cursor")
    named: Iterable[int] = range(shards)
    if flags & _PARTIAL:
        end = at + _bitmap_bytes(shards)
        bitmap = int.from_bytes(packed[at:end], "little")
        if len(packed) < end or not 0 < bitmap < (1 << shards) - 1:  # unknown shards, none, or all
            raise InvalidCursor("not a cursor")
        named = [shard for shard in range(shards) if bitmap >> shard & 1]
        made_at, at = _take_varint(packed, end, _SECOND_BITS)
    positions = []
    for shard in named:
        epoch, at = _take_varint(packed, at, _EPOCH_BITS)
        offset, at = _take_varint(packed, at, _OFFSET_BITS)
        positions.append(Position(log_id, epoch, offset, shard))
    if at != len(packed):
        raise InvalidCursor("not a cursor")
    return Cursor(tuple(positions), shards, made_at)


def _bitmap_bytes(shards: int) -> int:
    return (shards + 7) // 8


def _add_varint(packed: bytearray, number: int) -> None:
    """Append seven bits in each byte, the lowest first."""
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _take_varint(packed: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number in its shortest form and of at most this many bits, and where it ends."""
    number = shift = 0
    for byte in packed[at : at + 10]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if number >> bits or (byte == 0 and shift > 7):
                break
            return number, at + shift // 7
    raise InvalidCursor("not a cursor")
