"""An open WebSocket, to the door's protocol the same as a socket.

What the inner protocol writes at once is one binary frame; all payload of one read reaches it in one call.
"""

import asyncio
from typing import Protocol

from penstock.doors.base import Peer
from penstock.doors.notes import Notes
from penstock.doors.websocket.encoding import CloseCode, binary_header, close_payload
from penstock.doors.websocket.frame_socket import JOINED_BELOW_BYTES, FrameSocket
from penstock.doors.websocket.frames import FrameReader


class Inner(Protocol):
    """What a door's protocol has to have."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def data_received(self, data: bytes, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


class Nobody:
    """The inner protocol of a connection that has told its own that it is over."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def data_received(self, data: bytes, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


NOBODY = Nobody()


class WebSocketTransport(FrameSocket):
    """One connection that is a stream of bytes in both directions.

    Args:
        limit_bytes: of one frame.
    """

    __slots__ = ()

    _inner: Inner
    _reader: FrameReader

    def __init__(
        self,
        socket: asyncio.Transport,
        inner: Inner,
        buffer: memoryview,
        limit_bytes: int,
        peer: Peer | None = None,
        notes: Notes | None = None,
    ) -> None:
        super().__init__(socket, buffer, peer, notes)
        self._inner = inner
        self._reader = FrameReader(limit_bytes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send some bytes as one binary frame; after a close they go nowhere."""
        if self._has_said_close or not data:
            return
        header = binary_header(len(data))
        if len(data) < JOINED_BELOW_BYTES:
            self._socket.write(header + data)
        else:
            self._socket.writelines((header, data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send nothing more, and close when the peer has done so; abort if that takes too long."""
        if not self.is_closing():
            self._say_close(close_payload(CloseCode.NORMAL_CLOSURE))
            self._limit_closing()

    def close(self) -> None:
        """Close when everything written has left, whatever the peer does; abort if that takes too long."""
        if not self.is_closing():
            self._say_close(close_payload(CloseCode.NORMAL_CLOSURE))
            self._close_socket()

    def _begin_inner(self) -> None:
        self._inner.connection_made(self)

    def _end_inner(self, error: Exception | None) -> None:
        inner, self._inner = self._inner, NOBODY
        inner.connection_lost(error)

    def _take(self, data: bytes) -> None:
        if self.is_closing():
            return
        reader = self._reader
        payload = reader.feed(data)
        if payload:
            self._inner.data_received(payload)
            if self.is_closing():
                return
        if reader.pings or reader.close is not None or reader.error is not None:
            self._on_controls()
