"""The `/ws` door: the connections that the HTTP listener has handed over, and what they share."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.core.identity import Identity
from penstock.core.sessions import Session
from penstock.doors.base import Peer
from penstock.doors.guard import Guard, GuardSettings, Verdict
from penstock.doors.notes import Notes, shortened
from penstock.doors.origins import Origins
from penstock.doors.room import Room
from penstock.doors.web.event_form import EventForm
from penstock.doors.web.event_text import EventTexts
from penstock.doors.web.settings import WebSettings
from penstock.doors.web.socket.connection import SocketConnection
from penstock.doors.web.socket.replies import Info, withdrawal_of
from penstock.doors.websocket.deflating import deflated_frame
from penstock.doors.websocket.encoding import text_frame
from penstock.errors import NotAuthorized, PenstockError

if TYPE_CHECKING:
    from penstock.doors.websocket.handshake import Terms
    from penstock.doors.websocket.message_entrance import MessageEntrance

log = structlog.get_logger("penstock.web")

PATH = "/ws"
READ_BYTES = 64 * 1024
NOTES_PER_CONNECTION = 20
"""Lines in the log that one connection may cause."""
NOTES_PER_SECOND = 100


class SocketDoor:
    """JSON over WebSocket.

    Args:
        origins: the names of this server, and the pages that are welcome.
        room: the connections that all doors share.
    """

    name = "web"

    def __init__(
        self,
        settings: WebSettings,
        broker: Broker,
        clock: Clock,
        *,
        origins: Origins,
        room: Room | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._entrance: MessageEntrance | None = None
        self.configure(settings)
        self.broker = broker
        self.clock = clock
        self.counters = broker.counters
        self.loop = asyncio.get_running_loop()
        texts = EventTexts(broker.log)
        self.form = EventForm(texts, text_frame)
        self.deflated_form = EventForm(texts, deflated_frame)
        self.connections: set[SocketConnection] = set()
        self._origins = origins
        self._guard = guard or Guard(GuardSettings(), clock)
        self._room = room or Room()
        self._room.add(lambda: len(self.connections))
        self._notes = Notes(log, clock.monotonic, NOTES_PER_SECOND)
        self._all_gone = asyncio.Event()
        broker.on_topic_deleted.append(self._on_topic_deleted)
        broker.on_rights_withdrawn.append(self._on_rights_withdrawn)

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
        """Say goodbye, and wait until every connection has gone; cut those that stay."""
        for connection in list(self.connections):
            connection.say_goodbye()
        self._all_gone.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout)
        for connection in list(self.connections):
            connection.abort()

    def addresses(self) -> list[str]:
        """It has none of its own."""
        return []

    # Connections

    def take_over(
        self, head: bytes, rest: bytes, transport: asyncio.Transport, peer: Peer, identity: Identity
    ) -> None:
        """Go on with a connection that asked the HTTP listener for a WebSocket.

        Args:
            head: the request that asked for it.
            rest: what was read behind it.
            identity: who it has proven to be.
        """
        if self._entrance is None:
            self._entrance = self._open_entrance()
        if self._room.is_full(len(self._entrance.waiting)):
            self.counters.connections_refused += 1
            transport.abort()
        else:
            self._entrance.take_over(transport, peer, head + rest, identity)

    def _open_entrance(self) -> "MessageEntrance":
        from penstock.doors.websocket.message_entrance import MessageEntrance  # noqa: PLC0415 - only who asks

        settings = self.settings
        return MessageEntrance(
            self._terms(),
            self._make_connection,
            memoryview(bytearray(READ_BYTES)),
            self.clock,
            self.loop,
            ping_s=settings.ping_s,
            ping_timeout_s=settings.ping_s,
        )

    def _terms(self) -> "Terms":
        from penstock.doors.websocket.handshake import Terms  # noqa: PLC0415 - only who asks for it

        return Terms(
            path=PATH,
            origins=self._origins,
            limit_bytes=self.settings.max_message_bytes,
            deflates=self.settings.deflate,
        )

    def _make_connection(self, peer: Peer, identity: Identity | None, target: str) -> SocketConnection:
        assert identity is not None  # the listener has asked
        mine = Identity(identity.user, str(uuid4()), identity.is_certified)
        return SocketConnection(self, peer, mine)

    def on_open(self, connection: SocketConnection) -> bool:
        """A handshake is done; False if there are too many connections from its address."""
        self.connections.add(connection)
        return not self._guard.is_needed or self._ask_guard(connection)

    def _ask_guard(self, connection: SocketConnection) -> bool:
        verdict = self._guard.enter(connection.peer.host, has_arrived=True)
        connection.is_counted = verdict is Verdict.ADMITTED
        self.counters.connections_refused += not connection.is_counted
        return connection.is_counted

    def on_lost(self, connection: SocketConnection) -> None:
        """A socket is gone."""
        self.connections.discard(connection)
        if connection.is_counted:
            self._guard.leave(connection.peer.host)
        if not self.connections:
            self._all_gone.set()

    def cut_slow(self, session: Session) -> None:
        """End a connection that does not keep up, as core does when an outbox is full."""
        keeping = self.broker.keeping
        keeping.too_slow[session] = None
        keeping.close_slow()

    # What happened

    def _on_topic_deleted(self, topic: str, sessions: Sequence[Session]) -> None:
        for session in sessions:
            if isinstance(session.sink, SocketConnection):
                session.sink.reply(Info(f"Topic '{topic}' was deleted", {"topic": topic}))

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        if isinstance(session.sink, SocketConnection):
            for filter in filters:
                session.sink.reply(withdrawal_of(filter))

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
        """Something went wrong that nobody had thought of."""
        connection.notes += 1
        if connection.notes <= NOTES_PER_CONNECTION:
            self._notes.write_failure(
                "request not carried out", peer=str(connection.peer), client=connection.client_id
            )

    def on_slow(self, connection: SocketConnection, limit: dict[str, int], waiting_bytes: int) -> None:
        """A client that does not keep up is cut; so many bytes may still reach it."""
        self._notes.write(
            "slow client cut",
            peer=str(connection.peer),
            client=connection.client_id,
            dropped=self.broker.slow.dropped_by(connection.client_id),
            waiting_bytes=waiting_bytes,
            **limit,
        )

    def _note(self, event: str, connection: SocketConnection, error: PenstockError, **about: str) -> None:
        self.counters.actions_forbidden += isinstance(error, NotAuthorized)
        connection.notes += 1
        if connection.notes <= NOTES_PER_CONNECTION:
            self._notes.write(
                event,
                peer=str(connection.peer),
                client=connection.client_id,
                **{key: shortened(value) for key, value in about.items()},
                detail=shortened(str(error)),
            )
