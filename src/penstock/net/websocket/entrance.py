"""WebSocket entrances, for bytes and for messages: read requests of new connections, start their sockets."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import structlog
from msgspec import Struct
from websockets.http11 import Response

from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import Clock, Scheduler
from penstock.net.door import Peer
from penstock.net.log_throttle import ThrottledLog
from penstock.net.transport import ByteProtocol
from penstock.net.turn_shares import TurnShares
from penstock.net.websocket.byte_socket import ByteSocket
from penstock.net.websocket.frame_socket import hang_up, name_of
from penstock.net.websocket.handshake import Terms, read_request, refusal, respond_to
from penstock.net.websocket.message_socket import Keepalive, MessageProtocol, MessageSocket
from penstock.wire.websocket.deflate import Deflate

log = structlog.get_logger("penstock.websocket")

HEAD_LIMIT_BYTES = 16 * 1024
END_OF_HEAD = b"\r\n\r\n"
PING_S = 20.0
PING_TIMEOUT_S = 20.0

Factory = Callable[[Peer, Identity | None, str], MessageProtocol]
"""Makes the inner protocol of a connection from its peer, its identity if it was authenticated, and the path
and query of its request."""


class AcceptedSocket(Struct, frozen=True):
    """A connection after its handshake, and what was agreed on."""

    socket: asyncio.Transport
    peer: Peer | None
    """Its address, if known before the handshake."""
    identity: Identity | None
    """Its authenticated identity, if the listener checked that."""
    target: str
    """The path and the query of its request."""
    deflate: Deflate | None


class BaseEntrance(ABC):
    """Base class: the terms of one listener, and its pending handshakes.

    Args:
        buffer: read buffer of the loop; it may be shared by all connections of the same loop.
        admits: True if a handshake from an address may begin; not called if a listener has checked that.
        shares: turn shares, shared by all doors of the loop.
    """

    def __init__(
        self,
        terms: Terms,
        buffer: memoryview,
        admits: Callable[[str], bool] = lambda host: True,
        shares: TurnShares | None = None,
    ) -> None:
        self.terms = terms
        self.buffer = buffer
        self.admits = admits
        self.shares = shares or TurnShares(asyncio.get_running_loop())
        self.waiting: set[Handshake] = set()
        self.throttled_log = ThrottledLog(log, time.monotonic)

    def accept(self, peer: Peer | None = None) -> "Handshake":
        """Return the protocol for a new connection.

        Args:
            peer: its address, if already known.
        """
        return Handshake(self, peer)

    def take_over(
        self, transport: asyncio.Transport, peer: Peer, data: bytes, identity: Identity | None = None
    ) -> None:
        """Continue with a connection whose request was read by another listener.

        Args:
            data: the head of its request, and input behind it.
            identity: its authenticated identity, if that listener checked it.
        """
        handshake = Handshake(self, peer, identity)
        transport.set_protocol(handshake)
        handshake.connection_made(transport)
        handshake.feed(data)

    @abstractmethod
    def start_socket(self, accepted: AcceptedSocket, data: bytes) -> None:
        """Start the socket of a connection after its handshake, with input behind its request."""

    def close(self) -> None:
        """Abort all pending handshakes."""
        for handshake in list(self.waiting):
            handshake.abort()


class ByteEntrance(BaseEntrance):
    """Entrance for streams of bytes.

    Args:
        factory: makes the inner protocol of a connection.
    """

    def __init__(
        self,
        terms: Terms,
        factory: Callable[[Peer | None], ByteProtocol],
        buffer: memoryview,
        admits: Callable[[str], bool] = lambda host: True,
        shares: TurnShares | None = None,
    ) -> None:
        super().__init__(terms, buffer, admits, shares)
        self._factory = factory

    def start_socket(self, accepted: AcceptedSocket, data: bytes) -> None:
        """Put a byte transport between the socket and a new inner protocol."""
        inner = self._factory(accepted.peer)
        ByteSocket(
            accepted.socket,
            inner,
            self.buffer,
            self.terms.limit_bytes,
            accepted.peer,
            self.throttled_log,
            self.shares,
        ).start(data)


class Handshake(asyncio.BufferedProtocol):
    """A connection until its handshake is accepted or refused."""

    __slots__ = ("_entrance", "_head", "_identity", "_is_refused", "_peer", "_socket", "_timer")

    _socket: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, entrance: BaseEntrance, peer: Peer | None, identity: Identity | None = None) -> None:
        self._entrance = entrance
        self._peer = peer
        self._identity = identity
        self._head = b""
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._entrance.terms.timeout_s, self.abort)
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
        """Read more of the request."""
        if self._is_refused:
            return  # the rest of its input is discarded, so that it can read the response
        self._head += data
        if not self._head[:1].isalpha():  # MQTT or TLS, sent to the wrong port
            self._refuse(HTTPStatus.BAD_REQUEST, "not an HTTP request")
            return
        head, end, rest = self._head.partition(END_OF_HEAD)
        if len(head) > HEAD_LIMIT_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request too large")
        elif end:
            self._respond(head + end, rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def abort(self) -> None:
        """Close at once."""
        self._is_refused = True
        self._socket.abort()

    def _respond(self, head: bytes, rest: bytes) -> None:
        request = read_request(head)
        if request is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "not a valid HTTP request")
            return
        given = respond_to(request, self._entrance.terms)
        if not given.is_acceptance:
            self._send_refusal(given.response)
            return
        self._leave()
        self._socket.write(given.response.serialize())
        accepted = AcceptedSocket(self._socket, self._peer, self._identity, request.path, given.deflate)
        self._entrance.start_socket(accepted, rest)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send_refusal(refusal(status, text))

    def _send_refusal(self, response: Response) -> None:
        who = name_of(self._peer, self._socket)
        detail = bytes(response.body).decode().strip()
        status = int(response.status_code)
        self._entrance.throttled_log.write("handshake refused", peer=who, status=status, detail=detail)
        self._is_refused = True
        self._socket.write(response.serialize())
        hang_up(self._socket)

    def _leave(self) -> None:
        self._timer.cancel()
        self._entrance.waiting.discard(self)


class MessageEntrance(BaseEntrance):
    """Entrance for messages, with pings for all of its connections.

    Args:
        ping_s: silence after which a peer is pinged; 0 for no pings.
        ping_timeout_s: further silence after which it is aborted.
    """

    def __init__(
        self,
        terms: Terms,
        factory: Factory,
        buffer: memoryview,
        clock: Clock,
        scheduler: Scheduler,
        *,
        ping_s: float = PING_S,
        ping_timeout_s: float = PING_TIMEOUT_S,
        shares: TurnShares | None = None,
    ) -> None:
        super().__init__(terms, buffer, shares=shares)
        self._factory = factory
        self._clock, self._scheduler = clock, scheduler
        self._keepalive = Keepalive(clock, scheduler, ping_s, ping_timeout_s)

    def configure(self, terms: Terms, *, ping_s: float, ping_timeout_s: float) -> None:
        """Apply other terms to new connections."""
        self.terms = terms
        self._keepalive = Keepalive(self._clock, self._scheduler, ping_s, ping_timeout_s)

    def start_socket(self, accepted: AcceptedSocket, data: bytes) -> None:
        """Put a message socket between the socket and a new inner protocol."""
        peer = accepted.peer or _peer_of(accepted)
        MessageSocket(
            accepted.socket,
            self._factory(peer, accepted.identity, accepted.target),
            self.buffer,
            self.terms.limit_bytes,
            peer,
            self._keepalive,
            accepted.deflate,
            self.throttled_log,
            self.shares,
        ).start(data)


def _peer_of(accepted: AcceptedSocket) -> Peer:
    """Return the address of a socket's other end."""
    name = accepted.socket.get_extra_info("peername")
    return Peer(*name[:2]) if name else Peer("", 0)
