"""The data types every MQTT packet is made of (MQTT 5 section 1.5), both ways."""

from penstock.wire.mqtt.reasons import MalformedPacket

MAX_VARINT = 268_435_455


def encode_varint(value: int) -> bytes:
    """A variable byte integer in the fewest bytes."""
    if value < 0x80:
        return bytes((value,))
    if value > MAX_VARINT:
        raise ValueError(f"{value} does not fit a variable byte integer")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def take_varint(data: bytes, start: int, end: int | None = None) -> tuple[int, int] | None:
    """A variable byte integer and where it ends; None means that bytes are missing before `end`."""
    if end is None:
        end = len(data)
    value = shift = 0
    for position in range(start, min(end, start + 4)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("integer not in its shortest form")  # MQTT-1.5.5-1
            return value, position + 1
        shift += 7
    if end - start >= 4:
        raise MalformedPacket("integer longer than four bytes")
    return None


def encode_text(value: str) -> bytes:
    """A UTF-8 string with its two-byte length."""
    if "\0" in value:
        raise ValueError("text with U+0000")  # MQTT-1.5.4-2
    return encode_blob(value.encode())


def encode_blob(value: bytes) -> bytes:
    """Binary data with its two-byte length."""
    if len(value) > 0xFFFF:
        raise ValueError(f"{len(value)} bytes do not fit a two-byte length")
    return len(value).to_bytes(2, "big") + value


def encode_packet_id(value: int) -> bytes:
    """A packet identifier, which is never zero."""
    if not 0 < value <= 0xFFFF:
        raise ValueError(f"{value} is not a packet identifier")  # MQTT-2.2.1-3, -4
    return value.to_bytes(2, "big")


def decode_text(data: bytes) -> str:
    """UTF-8 as MQTT wants it: well-formed and without U+0000."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"not UTF-8: {error.reason}") from None  # MQTT-1.5.4-1
    if "\0" in text:
        raise MalformedPacket("text with U+0000")  # MQTT-1.5.4-2
    return text


class Body:
    """Takes values off a packet's body, one after the other, never beyond its end."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._position = start
        self._end = len(data) if end is None else end

    def __bool__(self) -> bool:
        return self._position < self._end

    def skip(self, size: int) -> int:
        """Skip the next `size` bytes and return where they start."""
        start = self._position
        if start + size > self._end:
            raise MalformedPacket("packet shorter than its fields")
        self._position = start + size
        return start

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.skip(size)
        return self._data[start : start + size]

    def byte(self) -> int:
        """One unsigned byte."""
        return self._data[self.skip(1)]

    def short(self) -> int:
        """Two bytes, unsigned."""
        return int.from_bytes(self.take(2), "big")

    def long(self) -> int:
        """Four bytes, unsigned."""
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        """A variable byte integer."""
        found = take_varint(self._data, self._position, self._end)
        if found is None:
            raise MalformedPacket("packet shorter than its fields")
        value, self._position = found
        return value

    def text(self) -> str:
        """A UTF-8 string."""
        return decode_text(self.blob())

    def blob(self) -> bytes:
        """Binary data."""
        return self.take(self.short())

    def packet_id(self) -> int:
        """A packet identifier, which is never zero."""
        value = self.short()
        if not value:
            raise MalformedPacket("packet identifier zero")  # MQTT-2.2.1-3
        return value

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(self._end - self._position)

    def section(self) -> "Body":
        """The part that a variable byte integer announces, as a body of its own."""
        size = self.varint()
        start = self.skip(size)
        return Body(self._data, start, start + size)

    def finish(self) -> None:
        """Complain about bytes after the last field."""
        if self:
            raise MalformedPacket("bytes after the last field")
