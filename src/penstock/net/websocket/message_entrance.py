"""WebSocket entrance for messages."""

from collections.abc import Callable

from penstock.core.access.identity import Identity
from penstock.core.runtime.clock import Clock, Scheduler
from penstock.net.door import Peer
from penstock.net.websocket.entrance import AcceptedSocket, BaseEntrance
from penstock.net.websocket.handshake import Terms
from penstock.net.websocket.message_socket import Keepalive, MessageProtocol, MessageSocket

PING_S = 20.0
PING_TIMEOUT_S = 20.0

Factory = Callable[[Peer, Identity | None, str], MessageProtocol]
"""Makes the inner protocol of a connection from its peer, its identity if it was authenticated, and the path
and query of its request."""


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
    ) -> None:
        super().__init__(terms, buffer)
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
        ).start(data)


def _peer_of(accepted: AcceptedSocket) -> Peer:
    """Return the address of a socket's other end."""
    name = accepted.socket.get_extra_info("peername")
    return Peer(*name[:2]) if name else Peer("", 0)
