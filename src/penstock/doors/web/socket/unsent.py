"""What was written and may not have left yet, so that events that are lost with a connection can be named.

The latest writes of a connection are kept until we have seen that its socket took them, as it nearly always
does at once. They are references to what is written anyway. Only if a connection ends before that, they are
looked through.
"""

import zlib
from collections.abc import Iterator

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from penstock.core.cursor import Cursor
from penstock.doors.websocket.deflating import TAIL, WINDOW_BITS
from penstock.doors.websocket.encoding import COMPRESSED, EIGHT_BYTES, TWO_BYTES
from penstock.model import Door, Run, bare_shape

_SHAPE = bare_shape(Door.WEB, 0, retain=False)


class _Event(Struct, tag_field="type", tag="event"):
    """What tells an event from all others."""

    topic: str
    sequence: int
    cursor: str


_decoder = Decoder(_Event)


class Unsent:
    """The latest writes of one connection; each is made of whole frames."""

    __slots__ = ("_writes", "size_bytes")

    def __init__(self) -> None:
        self._writes: list[bytes] = []
        self.size_bytes = 0

    def add(self, data: bytes) -> None:
        """One more write."""
        self._writes.append(data)
        self.size_bytes += len(data)

    def forget(self, waiting_bytes: int) -> None:
        """Keep the writes of which something is among the last bytes, which wait."""
        writes = self._writes
        gone = 0
        while gone < len(writes) and self.size_bytes - len(writes[gone]) >= waiting_bytes:
            self.size_bytes -= len(writes[gone])
            gone += 1
        del writes[:gone]

    def events(self, lost_bytes: int) -> list[Run]:
        """The events that are among the last bytes, wholly or in part, in order."""
        sent_bytes, position, found = self.size_bytes - lost_bytes, 0, []
        for data in self._writes if lost_bytes else ():
            for first, start, end in _frames_of(data):
                if position + end > sent_bytes and (event := _event_of(first, data[start:end])) is not None:
                    found.append(event)
            position += len(data)
        return found


def _frames_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The first byte of each frame, and where its payload begins and ends."""
    position = 0
    while position < len(data):
        size, start = data[position + 1], position + 2
        width = {TWO_BYTES: 2, EIGHT_BYTES: 8}.get(size, 0)
        if width:
            size = int.from_bytes(data[start : start + width], "big")
        start += width
        yield data[position], start, start + size
        position = start + size


def _event_of(first: int, payload: bytes) -> Run | None:
    """The message of a frame; None if it holds no event."""
    if first & COMPRESSED:
        payload = zlib.decompressobj(-WINDOW_BITS).decompress(payload + TAIL)
    try:
        event = _decoder.decode(payload)
    except DecodeError:
        return None
    offset = Cursor.decode(event.cursor).positions[0].offset
    return Run(event.topic, b"", 0, 0, 1, _SHAPE, sequence=event.sequence, offset=offset)
