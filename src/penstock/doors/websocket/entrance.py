"""Where the connections of one listener come in: reads their requests, and answers them."""

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import structlog
from websockets.http11 import Response

from penstock.doors.base import Peer
from penstock.doors.notes import Notes
from penstock.doors.websocket.handshake import Terms, answer, read_request, refusal
from penstock.doors.websocket.transport import Inner, WebSocketTransport, hang_up, name_of

log = structlog.get_logger("penstock.websocket")

HEAD_LIMIT_BYTES = 16 * 1024
END_OF_HEAD = b"\r\n\r\n"


class Entrance:
    """One listener's terms, and those who have not met them yet.

    Args:
        factory: makes the inner protocol of who has come in.
        buffer: what the loop reads into; it may be shared with everyone else on the same loop.
        admits: whether somebody from an address may begin; not asked again where a listener has done so.
    """

    def __init__(
        self,
        terms: Terms,
        factory: Callable[[Peer | None], Inner],
        buffer: memoryview,
        admits: Callable[[str], bool] = lambda host: True,
    ) -> None:
        self.terms = terms
        self.factory = factory
        self.buffer = buffer
        self.admits = admits
        self.waiting: set[Handshake] = set()
        self.notes = Notes(log, time.monotonic)

    def accept(self, peer: Peer | None = None, deadline: float | None = None) -> "Handshake":
        """The protocol for a new connection.

        Args:
            peer: who it is, if the way here could tell.
            deadline: the loop's time at which the handshake must be over, if its time began to run earlier.
        """
        return Handshake(self, peer, deadline)

    def take_over(self, transport: asyncio.Transport, peer: Peer, data: bytes) -> None:
        """Go on with a connection whose request somebody else has read: the head, and what came behind it."""
        handshake = self.accept(peer)
        transport.set_protocol(handshake)
        handshake.connection_made(transport)
        handshake.feed(data)

    def close(self) -> None:
        """Wait for nobody any more."""
        for handshake in list(self.waiting):
            handshake.abort()


class Handshake(asyncio.BufferedProtocol):
    """A connection until its request is answered: then it is handed over, or ends."""

    __slots__ = ("_deadline", "_entrance", "_head", "_is_refused", "_peer", "_socket", "_timer")

    _socket: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, entrance: Entrance, peer: Peer | None, deadline: float | None) -> None:
        self._entrance = entrance
        self._peer = peer
        self._deadline = deadline
        self._head = b""
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        loop = asyncio.get_running_loop()
        deadline = (
            self._deadline if self._deadline is not None else loop.time() + self._entrance.terms.timeout_s
        )
        self._timer = loop.call_at(deadline, self.abort)
        host = (transport.get_extra_info("peername") or ("",))[0]
        if self._peer is not None or self._entrance.admits(host):
            self._entrance.waiting.add(self)
        else:
            self.abort()

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._entrance.buffer

    def buffer_updated(self, size: int) -> None:
        self.feed(bytes(self._entrance.buffer[:size]))

    def feed(self, data: bytes) -> None:
        """Take what came of the request."""
        if self._is_refused:
            return  # what it still sends is read, so that it can read our answer
        self._head += data
        if not self._head[:1].isalpha():  # MQTT or TLS, sent to the wrong port
            self._refuse(HTTPStatus.BAD_REQUEST, "not an HTTP request")
            return
        head, end, rest = self._head.partition(END_OF_HEAD)
        if len(head) > HEAD_LIMIT_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request too large")
        elif end:
            self._answer(head + end, rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def abort(self) -> None:
        """End it without a word."""
        self._is_refused = True
        self._socket.abort()

    def _answer(self, head: bytes, rest: bytes) -> None:
        request = read_request(head)
        if request is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "not a valid HTTP request")
            return
        response = answer(request, self._entrance.terms)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._send_refusal(response)
            return
        self._leave()
        self._socket.write(response.serialize())
        entrance = self._entrance
        inner = entrance.factory(self._peer)
        limit_bytes = entrance.terms.limit_bytes
        transport = WebSocketTransport(
            self._socket, inner, entrance.buffer, limit_bytes, self._peer, entrance.notes
        )
        transport.start(rest)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send_refusal(refusal(status, text))

    def _send_refusal(self, response: Response) -> None:
        who = name_of(self._peer, self._socket)
        detail = bytes(response.body).decode().strip()
        status = int(response.status_code)
        self._entrance.notes.write("handshake refused", peer=who, status=status, detail=detail)
        self._is_refused = True
        self._socket.write(response.serialize())
        hang_up(self._socket)

    def _leave(self) -> None:
        self._timer.cancel()
        self._entrance.waiting.discard(self)
