"""Where the connections of one listener come in: reads their requests, and answers them."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import structlog
from msgspec import Struct
from websockets.http11 import Response

from penstock.core.identity import Identity
from penstock.doors.base import Peer
from penstock.doors.notes import Notes
from penstock.doors.websocket.deflating import Deflate
from penstock.doors.websocket.frame_socket import hang_up, name_of
from penstock.doors.websocket.handshake import Terms, answer, read_request, refusal
from penstock.doors.websocket.transport import Inner, WebSocketTransport

log = structlog.get_logger("penstock.websocket")

HEAD_LIMIT_BYTES = 16 * 1024
END_OF_HEAD = b"\r\n\r\n"


class Visitor(Struct, frozen=True):
    """Who has come in, and what was agreed on."""

    socket: asyncio.Transport
    peer: Peer | None
    """Who it is, if the way here could tell."""
    identity: Identity | None
    """Who it has proven to be, if somebody asked."""
    target: str
    """The path and the query of its request."""
    deflate: Deflate | None


class Reception(ABC):
    """One listener's terms, and those who have not met them yet.

    Args:
        buffer: what the loop reads into; it may be shared with everyone else on the same loop.
        admits: whether somebody from an address may begin; not asked again where a listener has done so.
    """

    def __init__(
        self, terms: Terms, buffer: memoryview, admits: Callable[[str], bool] = lambda host: True
    ) -> None:
        self.terms = terms
        self.buffer = buffer
        self.admits = admits
        self.waiting: set[Handshake] = set()
        self.notes = Notes(log, time.monotonic)

    def accept(self, peer: Peer | None = None) -> "Handshake":
        """The protocol for a new connection.

        Args:
            peer: who it is, if the way here could tell.
        """
        return Handshake(self, peer)

    def take_over(
        self, transport: asyncio.Transport, peer: Peer, data: bytes, identity: Identity | None = None
    ) -> None:
        """Go on with a connection whose request somebody else has read.

        Args:
            data: the head of its request, and what came behind it.
            identity: who it has proven to be, if somebody asked.
        """
        handshake = Handshake(self, peer, identity)
        transport.set_protocol(handshake)
        handshake.connection_made(transport)
        handshake.feed(data)

    @abstractmethod
    def let_in(self, visitor: Visitor, data: bytes) -> None:
        """Begin with who has met the terms, and with what came behind its request."""

    def close(self) -> None:
        """Wait for nobody any more."""
        for handshake in list(self.waiting):
            handshake.abort()


class Entrance(Reception):
    """The way in for a stream of bytes.

    Args:
        factory: makes the inner protocol of who has come in.
    """

    def __init__(
        self,
        terms: Terms,
        factory: Callable[[Peer | None], Inner],
        buffer: memoryview,
        admits: Callable[[str], bool] = lambda host: True,
    ) -> None:
        super().__init__(terms, buffer, admits)
        self._factory = factory

    def let_in(self, visitor: Visitor, data: bytes) -> None:
        """Put a byte transport between the socket and a new inner protocol."""
        inner = self._factory(visitor.peer)
        limit_bytes = self.terms.limit_bytes
        WebSocketTransport(visitor.socket, inner, self.buffer, limit_bytes, visitor.peer, self.notes).start(
            data
        )


class Handshake(asyncio.BufferedProtocol):
    """A connection until its request is answered: then it is handed over, or ends."""

    __slots__ = ("_head", "_identity", "_is_refused", "_peer", "_reception", "_socket", "_timer")

    _socket: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, reception: Reception, peer: Peer | None, identity: Identity | None = None) -> None:
        self._reception = reception
        self._peer = peer
        self._identity = identity
        self._head = b""
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._reception.terms.timeout_s, self.abort)
        host = (transport.get_extra_info("peername") or ("",))[0]
        if self._peer is not None or self._reception.admits(host):
            self._reception.waiting.add(self)
        else:
            self.abort()

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._reception.buffer

    def buffer_updated(self, size: int) -> None:
        self.feed(bytes(self._reception.buffer[:size]))

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
        given = answer(request, self._reception.terms)
        if not given.is_acceptance:
            self._send_refusal(given.response)
            return
        self._leave()
        self._socket.write(given.response.serialize())
        visitor = Visitor(self._socket, self._peer, self._identity, request.path, given.deflate)
        self._reception.let_in(visitor, rest)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send_refusal(refusal(status, text))

    def _send_refusal(self, response: Response) -> None:
        who = name_of(self._peer, self._socket)
        detail = bytes(response.body).decode().strip()
        status = int(response.status_code)
        self._reception.notes.write("handshake refused", peer=who, status=status, detail=detail)
        self._is_refused = True
        self._socket.write(response.serialize())
        hang_up(self._socket)

    def _leave(self) -> None:
        self._timer.cancel()
        self._reception.waiting.discard(self)
