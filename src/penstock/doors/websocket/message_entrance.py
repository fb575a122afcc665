"""Where connections come in that speak in messages."""

from collections.abc import Callable

from penstock.core.clock import Clock, Scheduler
from penstock.core.identity import Identity
from penstock.doors.base import Peer
from penstock.doors.websocket.entrance import Reception, Visitor
from penstock.doors.websocket.handshake import Terms
from penstock.doors.websocket.keepalive import Keepalive
from penstock.doors.websocket.message_socket import MessageInner, MessageSocket

PING_S = 20.0
PING_TIMEOUT_S = 20.0

Factory = Callable[[Peer, Identity | None, str], MessageInner]
"""Makes the inner protocol of who has come in: where it is, who it has proven to be if somebody asked, and
the path and query of its request."""


class MessageEntrance(Reception):
    """The way in for messages, and the pings of all who came in.

    Args:
        ping_s: how long a peer may be silent before it is pinged; 0 pings nobody.
        ping_timeout_s: how long it may then stay silent before it is cut.
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
    ) -> None:
        super().__init__(terms, buffer)
        self._factory = factory
        self._clock, self._scheduler = clock, scheduler
        self._keepalive = Keepalive(clock, scheduler, ping_s, ping_timeout_s)

    def configure(self, terms: Terms, *, ping_s: float, ping_timeout_s: float) -> None:
        """Meet those who come from now on with other terms."""
        self.terms = terms
        self._keepalive = Keepalive(self._clock, self._scheduler, ping_s, ping_timeout_s)

    def let_in(self, visitor: Visitor, data: bytes) -> None:
        """Put a message socket between the socket and a new inner protocol."""
        peer = visitor.peer or _peer_of(visitor)
        MessageSocket(
            visitor.socket,
            self._factory(peer, visitor.identity, visitor.target),
            self.buffer,
            self.terms.limit_bytes,
            peer,
            self._keepalive,
            visitor.deflate,
            self.notes,
        ).start(data)


def _peer_of(visitor: Visitor) -> Peer:
    """Who is at the other end of a socket that nobody has looked at before."""
    name = visitor.socket.get_extra_info("peername")
    return Peer(*name[:2]) if name else Peer("", 0)
