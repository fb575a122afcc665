"""The way out of one HTTP connection: answers of one turn of the loop leave in one write."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.doors.http.door import HttpDoor

JOINED_BYTES = 64 * 1024
"""Answers of one turn are joined up to this size; more leave at once."""


class Link(asyncio.Protocol):
    """What a connection writes with."""

    __slots__ = (
        "_door",
        "_is_feeding",
        "_is_flush_due",
        "_loop",
        "_out",
        "_out_bytes",
        "_writable",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, door: "HttpDoor") -> None:
        self._door = door
        self._loop = door.loop
        self._is_feeding = False  # requests are being read; whoever does it flushes at the end
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_flush_due = False
        self._writable: asyncio.Event | None = None  # while the peer has too much to read

    def write(self, data: bytes) -> None:
        """Send some bytes with this turn of the loop."""
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= JOINED_BYTES:
            self._flush()
        elif not self._is_feeding and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        out, size = self._out, self._out_bytes
        if not out:
            return
        self._out, self._out_bytes = [], 0
        if self.transport.is_closing():
            return
        self._door.counters.bytes_sent += size
        if len(out) == 1:
            self.transport.write(out[0])
        elif size < 2 * JOINED_BYTES:
            self.transport.write(b"".join(out))
        else:  # a large one and something before it
            self.transport.writelines(out)

    @property
    def is_full(self) -> bool:
        """Whether the peer has too much to read already."""
        return self._writable is not None

    def has_sent_all(self) -> bool:
        """Whether nothing waits to leave; if something does, requests are begun when it has left."""
        self._flush()
        if self.transport.is_closing() or not self.transport.get_write_buffer_size():
            return True
        self.transport.set_write_buffer_limits(high=0)  # so that we are told
        return False

    async def drain(self) -> None:
        """Wait until the peer has read some of what was written."""
        if self._writable is not None:
            await self._writable.wait()
