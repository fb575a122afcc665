"""A WebSocket that looks like a plain connection: what is written goes out in frames, what comes loses them.

MQTT does not care where frames begin (MQTT-6.0.0-4), so whoever stands on it need not know of them.
"""

import asyncio
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Response
from websockets.protocol import CLOSED, OPEN
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from penstock.client.errors import ConnectionRefused

SUBPROTOCOL = Subprotocol("mqtt")


class WebSocketLine(asyncio.Protocol):
    """Stands between a connection and who wants to talk over it, and hands over once the server agrees.

    Args:
        inner: who wants to talk; it is given a transport as if the connection were plain.
    """

    def __init__(self, inner: asyncio.Protocol, host: str, port: int, path: str, is_secure: bool) -> None:
        address = WebSocketURI(is_secure, host, port, path, "")
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inner = inner
        self._frames = ClientProtocol(address, subprotocols=[SUBPROTOCOL], max_size=None)
        self._transport: asyncio.Transport | None = None

    @property
    def framed(self) -> asyncio.Transport:
        """The connection as seen by who talks over it."""
        assert self._transport is not None
        return _Framed(self, self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the server to speak in frames."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames.send_request(self._frames.connect())
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take what came out of its frames."""
        self._frames.receive_data(data)
        self._take_events()
        self._send()

    def eof_received(self) -> bool:
        """The server has nothing more to say, so there is nothing left to hear."""
        self._frames.receive_eof()
        self._take_events()
        self._send()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits, or talks."""
        if not self.opened.done():
            self.opened.set_exception(ConnectionRefused("the server closed the connection without an answer"))
        elif self.opened.exception() is None:
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        """There is no room for more."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """There is room again."""
        self._inner.resume_writing()

    def write(self, data: bytes) -> None:
        """Send bytes in a frame; nothing, once it is over."""
        if self._frames.state is OPEN:
            self._frames.send_binary(data)
            self._send()

    def close(self) -> None:
        """Say goodbye and let go once everything is sent."""
        assert self._transport is not None
        if self._frames.state is OPEN:
            self._frames.send_close(1000)
            self._send()
        self._transport.close()

    def _take_events(self) -> None:
        for event in self._frames.events_received():
            if isinstance(event, Response):
                self._on_answer()
            elif isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                self._inner.data_received(bytes(event.data))
        if self._frames.handshake_exc is not None and not self.opened.done():
            self.opened.set_exception(_refusal(self._frames.handshake_exc))

    def _on_answer(self) -> None:
        if self._frames.state is OPEN:
            self._inner.connection_made(self.framed)
            self.opened.set_result(None)

    def _send(self) -> None:
        """Hand over what there is to send; empty bytes end it."""
        assert self._transport is not None
        for data in self._frames.data_to_send():
            if data:
                self._transport.write(data)
        if self._frames.state is CLOSED or self._frames.close_expected():
            self._transport.close()


class _Framed(asyncio.Transport):
    """The connection as seen by who talks over it."""

    def __init__(self, line: WebSocketLine, transport: asyncio.Transport) -> None:
        super().__init__()
        self._line = line
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._line.write(bytes(data))

    def close(self) -> None:
        self._line.close()

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
    """Why there is no WebSocket."""
    if isinstance(error, InvalidStatus):
        return ConnectionRefused(f"there is no WebSocket: the server answered {error.response.status_code}")
    words = str(error) if isinstance(error, WebSocketException) else type(error).__name__
    return ConnectionRefused(f"there is no WebSocket: {words}")
