"""Adapter that makes a WebSocket look like a plain TCP connection.

MQTT ignores frame boundaries (MQTT-6.0.0-4), so the layer above needs no knowledge of frames.
"""

import asyncio
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Response
from websockets.protocol import CLOSED, OPEN
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from penstock.client.errors import ConnectionRefused

SUBPROTOCOL = Subprotocol("mqtt")


class WebSocketAdapter(asyncio.Protocol):
    """Performs the opening handshake, then passes unframed data to an inner protocol.

    Args:
        inner: protocol of the layer above; its transport looks like that of a plain connection.
    """

    def __init__(self, inner: asyncio.Protocol, host: str, port: int, path: str, is_secure: bool) -> None:
        address = WebSocketURI(is_secure, host, port, path, "")
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inner = inner
        self._frames = ClientProtocol(address, subprotocols=[SUBPROTOCOL], max_size=None)
        self._transport: asyncio.Transport | None = None

    @property
    def framed(self) -> asyncio.Transport:
        """Transport of the inner protocol."""
        assert self._transport is not None
        return _FramedTransport(self, self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the opening handshake."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self._frames.send_request(self._frames.connect())
        self._send()

    def data_received(self, data: bytes) -> None:
        """Unframe received data."""
        self._frames.receive_data(data)
        self._take_events()
        self._send()

    def eof_received(self) -> bool:
        """Close after the end of the server's data."""
        self._frames.receive_eof()
        self._take_events()
        self._send()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Notify the waiting `open`, or the inner protocol."""
        if not self.opened.done():
            self.opened.set_exception(
                ConnectionRefused("the server closed the connection without a response")
            )
        elif not self.opened.cancelled() and self.opened.exception() is None:
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        """Pass backpressure to the inner protocol."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Release the inner protocol's backpressure."""
        self._inner.resume_writing()

    def write(self, data: bytes) -> None:
        """Send bytes in a frame; ignored after the close."""
        if self._frames.state is OPEN:
            self._frames.send_binary(data)
            self._send()

    def close(self) -> None:
        """Send a close frame, and close after everything is sent."""
        assert self._transport is not None
        if self._frames.state is OPEN:
            self._frames.send_close(1000)
            self._send()
        self._transport.close()

    def _take_events(self) -> None:
        for event in self._frames.events_received():
            if isinstance(event, Response):
                self._on_response()
            elif isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                self._inner.data_received(bytes(event.data))
        if self._frames.handshake_exc is not None and not self.opened.done():
            self.opened.set_exception(_refusal(self._frames.handshake_exc))

    def _on_response(self) -> None:
        if self._frames.state is OPEN:
            self._inner.connection_made(self.framed)
            self.opened.set_result(None)

    def _send(self) -> None:
        """Write pending output; close the transport when the protocol ends."""
        assert self._transport is not None
        for data in self._frames.data_to_send():
            if data:
                self._transport.write(data)
        if self._frames.state is CLOSED or self._frames.close_expected():
            self._transport.close()


class _FramedTransport(asyncio.Transport):
    """Transport of the inner protocol."""

    def __init__(self, adapter: WebSocketAdapter, transport: asyncio.Transport) -> None:
        super().__init__()
        self._adapter = adapter
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._adapter.write(bytes(data))

    def close(self) -> None:
        self._adapter.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def _refusal(error: Exception) -> ConnectionRefused:
    """Error of a failed opening handshake."""
    if isinstance(error, InvalidStatus):
        return ConnectionRefused(
            f"no WebSocket: the server responded with status {error.response.status_code}"
        )
    text = str(error) if isinstance(error, WebSocketException) else type(error).__name__
    return ConnectionRefused(f"no WebSocket: {text}")
