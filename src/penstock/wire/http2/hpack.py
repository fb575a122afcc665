"""HPACK (RFC 7541): full decoding, and encoding in the simplest form.

A `Decoder` belongs to one connection, because its dynamic table depends on all earlier blocks. Encoded
blocks use only the static table, so that one block can be sent on any connection.
"""

from collections.abc import Iterable

from penstock.wire.http2.errors import CompressionFault, ConnectionFault, ErrorCode
from penstock.wire.http2.hpack_tables import FIELD_INDEXES, FIELDS, LAST, NAME_INDEXES, Field, decode_huffman
from penstock.wire.http2.limits import DEFAULT_TABLE_BYTES

EMPTY_TABLE = b"\x20"
"""Begins a block of an encoder whose peer has made the table smaller (section 4.2): it will use none."""

FLOOD_FACTOR = 4
"""Lists that are longer than their limit by this factor are not decoded to their end."""
_FIELD_OVERHEAD_BYTES = 32
_MAX_INTEGER_BYTES = 5
_INDEXED, _INSERTED, _RESIZE = 0x80, 0x40, 0x20
_HUFFMAN = 0x80


class Decoder:
    """Decodes header blocks in order of arrival.

    Args:
        limit_bytes: of a decoded list, each field counted with 32 bytes more. A list of more than
            `FLOOD_FACTOR` times as many ends the connection: decoding would go on for nothing.
    """

    __slots__ = ("_limit_bytes", "_size_bytes", "_table", "_table_bytes", "changes")

    def __init__(self, limit_bytes: int) -> None:
        self.changes = 0  # of the table: between two of them the same block means the same
        self._limit_bytes = limit_bytes
        self._table: list[Field] = []  # the newest is last
        self._table_bytes = DEFAULT_TABLE_BYTES
        self._size_bytes = 0

    def decode(self, block: bytes) -> list[Field] | None:
        """All fields; None if they are more than the limit, though the table is up to date even then.

        Raises:
            CompressionFault: the block cannot be decoded, and no other block after it.
            ConnectionFault: the fields are far more than the limit; no other block can be decoded either.
        """
        fields: list[Field] = []
        table, limit_bytes = self._table, self._limit_bytes
        position = total_bytes = 0
        end = len(block)
        while position < end:
            first = block[position]
            if first >= _INDEXED:
                position += 1
                index = first & 0x7F
                if index == 0x7F:
                    index, position = _take_integer(block, position, index)
                if 0 < index <= LAST:
                    field = FIELDS[index]
                elif LAST < index <= LAST + len(table):
                    field = table[LAST - index]
                else:
                    raise CompressionFault(f"no header field has the index {index}")  # section 2.3.3
            elif first >= _INSERTED:
                field, position = self._take_literal(block, position, 0x3F)
                self._insert(field)
            elif first < _RESIZE:
                field, position = self._take_literal(block, position, 0x0F)
            else:
                if fields or total_bytes:
                    raise CompressionFault("table size update behind a header field")  # section 4.2
                position = self._resize(block, position)
                continue
            total_bytes += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD_BYTES
            if total_bytes <= limit_bytes:
                fields.append(field)
            elif total_bytes > FLOOD_FACTOR * limit_bytes:
                text = f"header list of more than {FLOOD_FACTOR * limit_bytes} bytes"
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
        return fields if total_bytes <= limit_bytes else None

    def _take_literal(self, block: bytes, position: int, mask: int) -> tuple[Field, int]:
        """A field whose value, and perhaps name, stands in the block; and where it ends."""
        index = block[position] & mask
        position += 1
        if index:
            if index == mask:
                index, position = _take_integer(block, position, index)
            name = self._name(index)
        else:
            name, position = _take_text(block, position)
        value, position = _take_text(block, position)
        return (name, value), position

    def _name(self, index: int) -> bytes:
        if index <= LAST:
            return FIELDS[index][0]
        if index > LAST + len(self._table):
            raise CompressionFault(f"no header field has the index {index}")  # section 2.3.3
        return self._table[LAST - index][0]

    def _insert(self, field: Field) -> None:
        self.changes += 1
        self._table.append(field)
        self._size_bytes += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD_BYTES
        if self._size_bytes > self._table_bytes:
            self._evict()

    def _evict(self) -> None:
        """Make the table fit; what is larger than all of it leaves it empty (section 4.4)."""
        count = 0
        for name, value in self._table:
            if self._size_bytes <= self._table_bytes:
                break
            self._size_bytes -= len(name) + len(value) + _FIELD_OVERHEAD_BYTES
            count += 1
        del self._table[:count]

    def _resize(self, block: bytes, position: int) -> int:
        size = block[position] & 0x1F
        position += 1
        if size == 0x1F:
            size, position = _take_integer(block, position, size)
        if size > DEFAULT_TABLE_BYTES:
            raise CompressionFault(f"table of {size} bytes, {DEFAULT_TABLE_BYTES} are allowed")  # section 6.3
        self.changes += 1
        self._table_bytes = size
        self._evict()
        return position


def _take_integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """An integer whose prefix was full, and where it ends (section 5.1)."""
    shift = 0
    for byte in block[position : position + _MAX_INTEGER_BYTES]:
        value += (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise CompressionFault("integer cut off or too long")


def _take_text(block: bytes, position: int) -> tuple[bytes, int]:
    """A string, and where it ends (section 5.2)."""
    if position >= len(block):
        raise CompressionFault("header block cut off")
    first = block[position]
    size = first & 0x7F
    position += 1
    if size == 0x7F:
        size, position = _take_integer(block, position, size)
    stop = position + size
    if stop > len(block):
        raise CompressionFault("header block cut off")
    text = block[position:stop]
    return (decode_huffman(text) if first & _HUFFMAN else text), stop


def encode_headers(fields: Iterable[Field]) -> bytes:
    """A block for any connection. Names have to be in lower case, and pseudo-header fields first."""
    return b"".join(map(_encode_field, fields))


def _encode_field(field: Field) -> bytes:
    index = FIELD_INDEXES.get(field)
    if index:
        return bytes((_INDEXED | index,))
    name, value = field
    index = NAME_INDEXES.get(name)
    if index:
        return _encode_integer(0, index, 0x0F) + _encode_text(value)
    return b"\0" + _encode_text(name) + _encode_text(value)


def _encode_text(text: bytes) -> bytes:
    return _encode_integer(0, len(text), 0x7F) + text


def _encode_integer(flags: int, value: int, mask: int) -> bytes:
    if value < mask:
        return bytes((flags | value,))
    out = bytearray((flags | mask,))
    value -= mask
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
