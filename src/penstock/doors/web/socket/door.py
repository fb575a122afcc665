"""The `/ws` door: the connections that the HTTP listener has handed over, and what they share."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from penstock.core.access.identity import Identity
from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.core.sessions.session import Session
from penstock.doors.web.reading.events import EventEncoding, EventTexts
from penstock.doors.web.settings import WebSettings
from penstock.doors.web.socket.connection import SocketConnection
from penstock.doors.web.socket.replies import Info, withdrawal_of
from penstock.errors import NotAuthorized, PenstockError
from penstock.net.address_limits import AddressLimits, AddressLimitSettings, Verdict
from penstock.net.connections import ConnectionLimit, ConnectionRegistry
from penstock.net.door import Peer
from penstock.net.log_throttle import ThrottledLog, shortened
from penstock.net.origins import Origins
from penstock.net.turn_shares import TurnShares
from penstock.wire.websocket.deflate import deflated_frame
from penstock.wire.websocket.encoding import text_frame

if TYPE_CHECKING:
    from penstock.net.websocket.entrance import MessageEntrance
    from penstock.net.websocket.handshake import Terms

log = structlog.get_logger("penstock.web")

PATH = "/ws"
READ_BYTES = 64 * 1024
LINES_PER_CONNECTION = 20
"""Lines in the log that one connection may cause."""
LINES_PER_SECOND = 100


class SocketDoor:
    """JSON over WebSocket.

    Args:
        origins: the names of this server, and the pages that are welcome.
        connection_limit: the connections that all doors share.
        shares: turn shares, shared by all doors of the loop.
    """

    name = "web"

    def __init__(
        self,
        settings: WebSettings,
        broker: Broker,
        clock: Clock,
        *,
        origins: Origins,
        connection_limit: ConnectionLimit | None = None,
        address_limits: AddressLimits | None = None,
        shares: TurnShares | None = None,
    ) -> None:
        self._entrance: MessageEntrance | None = None
        self.configure(settings)
        self.broker = broker
        self.clock = clock
        self.counters = broker.counters
        self.loop = asyncio.get_running_loop()
        self._shares = shares
        texts = EventTexts(broker.log)
        self.encoding = EventEncoding(texts, text_frame)
        self.deflated_form = EventEncoding(texts, deflated_frame)
        self._origins = origins
        self._registry: ConnectionRegistry[SocketConnection] = ConnectionRegistry(
            clock,
            self.loop,
            self.counters,
            address_limits or AddressLimits(AddressLimitSettings(), clock),
            connection_limit or ConnectionLimit(),
        )
        self.connections = self._registry.connections
        self._throttled_log = ThrottledLog(log, clock.monotonic, LINES_PER_SECOND)
        broker.notify_topic_deleted(self._on_topic_deleted)
        broker.notify_withdrawn(self._on_rights_withdrawn)

    def configure(self, settings: WebSettings) -> None:
        """Go by other settings; what is agreed on with a connection counts for new ones."""
        self.settings = settings
        self.slow_after_s = settings.slow_after_ms / 1000
        if self._entrance is not None:
            self._entrance.configure(self._terms(), ping_s=settings.ping_s, ping_timeout_s=settings.ping_s)

    # Opening and closing

    async def open(self) -> None:
        """There is nothing to open: the HTTP listener hands connections over."""

    async def close(self) -> None:
        """Wait for no handshake any more."""
        if self._entrance is not None:
            self._entrance.close()

    async def finish(self, timeout: float) -> None:
        """Close every connection, and wait; abort those that remain."""
        for connection in list(self.connections):
            connection.close_for_shutdown()
        await self._registry.wait_until_gone(timeout)
        self._registry.cut_all()

    def addresses(self) -> list[str]:
        """It has none of its own."""
        return []

    # Connections

    def take_over(
        self, head: bytes, rest: bytes, transport: asyncio.Transport, peer: Peer, identity: Identity
    ) -> None:
        """Take over a connection that asked the HTTP listener for a WebSocket.

        Args:
            head: its request.
            rest: input behind the request.
            identity: its authenticated identity.
        """
        if self._entrance is None:
            self._entrance = self._open_entrance()
        if not self._registry.has_room(len(self._entrance.waiting)):
            self.counters.connections_refused += 1
            transport.abort()
        else:
            self._entrance.take_over(transport, peer, head + rest, identity)

    def _open_entrance(self) -> "MessageEntrance":
        from penstock.net.websocket.entrance import MessageEntrance  # noqa: PLC0415 - loaded at first use

        settings = self.settings
        return MessageEntrance(
            self._terms(),
            self._make_connection,
            memoryview(bytearray(READ_BYTES)),
            self.clock,
            self.loop,
            ping_s=settings.ping_s,
            ping_timeout_s=settings.ping_s,
            shares=self._shares,
        )

    def _terms(self) -> "Terms":
        from penstock.net.websocket.handshake import Terms  # noqa: PLC0415 - loaded at first use

        return Terms(
            path=PATH,
            origins=self._origins,
            limit_bytes=self.settings.max_message_bytes,
            deflates=self.settings.deflate,
        )

    def _make_connection(self, peer: Peer, identity: Identity | None, target: str) -> SocketConnection:
        assert identity is not None  # the listener has authenticated it
        mine = Identity(identity.user, str(uuid4()), identity.is_certified)
        return SocketConnection(self, peer, mine)

    def on_open(self, connection: SocketConnection) -> bool:
        """A handshake is done; False if there are too many connections from its address."""
        self._registry.add(connection)
        is_admitted = self._registry.check_address(connection) is Verdict.ADMITTED
        self.counters.connections_refused += not is_admitted
        return is_admitted

    def on_lost(self, connection: SocketConnection) -> None:
        """A connection is closed."""
        self._registry.leave(connection)

    def cut_slow(self, session: Session) -> None:
        """End a connection that does not keep up, as core does when an outbox is full."""
        self.broker.cut_slow(session)

    # What happened

    def _on_topic_deleted(self, topic: str, sessions: Sequence[Session]) -> None:
        for session in sessions:
            if isinstance(session.connection, SocketConnection):
                session.connection.reply(Info(f"Topic '{topic}' was deleted", {"topic": topic}))

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        if isinstance(session.connection, SocketConnection):
            for filter in filters:
                session.connection.reply(withdrawal_of(filter))

    def on_publish_refused(self, connection: SocketConnection, topic: str, error: PenstockError) -> None:
        """A publish was not accepted."""
        self.counters.publishes_refused += 1
        self._note("publish refused", connection, error, topic=topic)

    def on_subscription_refused(
        self, connection: SocketConnection, filter: str, error: PenstockError
    ) -> None:
        """A filter was not granted."""
        self._note("subscription refused", connection, error, filter=filter)

    def on_failure(self, connection: SocketConnection) -> None:
        """Log an unexpected error."""
        connection.lines_logged += 1
        if connection.lines_logged <= LINES_PER_CONNECTION:
            self._throttled_log.write_failure(
                "request not carried out", peer=str(connection.peer), client=connection.client_id
            )

    def on_slow(self, connection: SocketConnection, limit: dict[str, int], waiting_bytes: int) -> None:
        """A client that does not keep up is cut; this many bytes may still reach it."""
        self._throttled_log.write(
            "slow client cut",
            peer=str(connection.peer),
            client=connection.client_id,
            dropped=self.broker.slow_consumers.dropped_by(connection.client_id),
            waiting_bytes=waiting_bytes,
            **limit,
        )

    def _note(self, event: str, connection: SocketConnection, error: PenstockError, **about: str) -> None:
        self.counters.actions_forbidden += isinstance(error, NotAuthorized)
        connection.lines_logged += 1
        if connection.lines_logged <= LINES_PER_CONNECTION:
            self._throttled_log.write(
                event,
                peer=str(connection.peer),
                client=connection.client_id,
                user=connection.user,
                **{key: shortened(value) for key, value in about.items()},
                detail=shortened(str(error)),
            )
