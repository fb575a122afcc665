"""WebSocket as a stream of bytes: to the door's protocol the same as a TCP socket.

Each write of the inner protocol is one binary frame; the payload of one read reaches it in one call.
"""

import asyncio
from collections.abc import Iterable
from typing import cast

from penstock.net.door import Peer
from penstock.net.log_throttle import ThrottledLog
from penstock.net.transport import ByteProtocol
from penstock.net.turn_shares import TurnShares
from penstock.net.websocket.frame_socket import JOINED_BELOW_BYTES, FrameSocket
from penstock.wire.websocket.encoding import CloseCode, binary_header, close_payload
from penstock.wire.websocket.frames import FrameReader


class NullByteProtocol:
    """Null object: the inner protocol of a closed connection."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def data_received(self, data: bytes, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


NULL_PROTOCOL = NullByteProtocol()


class ByteSocket(FrameSocket):
    """One connection that is a stream of bytes in both directions.

    Args:
        limit_bytes: of one frame.
    """

    __slots__ = ("_inner", "_reader")

    def __init__(
        self,
        socket: asyncio.Transport,
        inner: ByteProtocol,
        buffer: memoryview,
        limit_bytes: int,
        peer: Peer | None = None,
        throttled_log: ThrottledLog | None = None,
        shares: TurnShares | None = None,
    ) -> None:
        reader = FrameReader(limit_bytes)
        super().__init__(socket, reader, buffer, peer, throttled_log, shares)
        self._inner = inner
        self._reader = reader

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send some bytes as one binary frame; ignored after a close."""
        if self._close_sent or not data:
            return
        header = binary_header(len(data))
        if len(data) < JOINED_BELOW_BYTES:
            self._socket.write(header + data)
        else:
            self._socket.writelines((header, data))

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send some bytes as one binary frame."""
        self.write(b"".join(parts))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._inner.resume_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send a close frame, and close after the peer's; abort if that takes too long."""
        if not self.is_closing():
            self._send_close(close_payload(CloseCode.NORMAL_CLOSURE))
            self._limit_closing()

    def close(self) -> None:
        """Close when everything is sent; abort if that takes too long."""
        if not self.is_closing():
            self._send_close(close_payload(CloseCode.NORMAL_CLOSURE))
            self._input_closed = True
            self._close_socket()

    def _begin_inner(self) -> None:
        self._inner.connection_made(cast("asyncio.Transport", self))

    def _end_inner(self, error: Exception | None) -> None:
        inner, self._inner = self._inner, NULL_PROTOCOL
        inner.connection_lost(error)

    def _take(self, data: bytes) -> None:
        if self._input_closed:
            return
        reader = self._reader
        payload = reader.feed(data)
        if payload:
            self._inner.data_received(payload)
            if self._input_closed:
                return
        if reader.pings or reader.close is not None or reader.error is not None:
            self._on_controls()
