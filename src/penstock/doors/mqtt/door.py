"""The MQTT door: where it listens, and the connections it has."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.core.rate import TokenBucket
from penstock.doors.base import Peer
from penstock.doors.guard import Guard, GuardSettings, Verdict
from penstock.doors.listener import Listener, parse_networks
from penstock.doors.mqtt.admission import Admission
from penstock.doors.mqtt.capabilities import abilities_of, announcement
from penstock.doors.mqtt.connection import Connection
from penstock.doors.mqtt.flapping import FlappingDetector
from penstock.doors.mqtt.marks import Marks
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.notes import Notes, shortened
from penstock.doors.origins import Origins
from penstock.doors.presence import Presence
from penstock.doors.room import Room
from penstock.doors.tls import Certificates, names_users
from penstock.doors.websocket import WebSocketSettings
from penstock.errors import InvalidConfig, NotAuthorized, PenstockError
from penstock.model import Run
from penstock.wire.mqtt.names import Names
from penstock.wire.mqtt.reasons import MalformedPacket, MqttWireError, ReasonCode

if TYPE_CHECKING:
    from penstock.doors.websocket.entrance import Entrance

log = structlog.get_logger("penstock.mqtt")

READ_BYTES = 64 * 1024
"""What one read takes: the objects made of so much stay in the processor's cache."""
LARGE_READ_BYTES = 256 * 1024
"""What one read takes in the middle of a large packet, where bytes cost more than objects."""
SIP_BYTES = 1024
"""What one read takes from a client whose rate is limited."""
BUCKETS_REMEMBERED = 65_536
NOTES_PER_CONNECTION = 20
"""Lines in the log that one connection may cause: who is refused a thousand times fills no disk."""
NOTES_PER_SECOND = 100
"""Lines in the log that all of them may cause."""
WEBSOCKET_SCHEMES = ("ws", "wss")
WEBSOCKET_PATH = "/mqtt"
SUBPROTOCOLS = ("mqtt", "mqttv3.1")
"""What WebSocket clients offer; the second is what they said before it had a name of its own."""
REFUSALS = {
    Verdict.TOO_MANY: ReasonCode.QUOTA_EXCEEDED,
    Verdict.TOO_FAST: ReasonCode.CONNECTION_RATE_EXCEEDED,
}
"""What who comes too often from one address is told when it says CONNECT."""
REFUSED_AT_ONCE = 100
"""Connections that wait for nothing but to be refused; more are cut without a word."""


class MqttDoor:
    """MQTT 3.1.1 and 5.0 over TCP, TLS and WebSocket.

    Args:
        websocket: the names of this server and the pages that are welcome, at WebSocket ports.
        http_origins: the same at the HTTP listener, for those whom it hands over.
    """

    name = "mqtt"

    def __init__(
        self,
        settings: MqttSettings,
        broker: Broker,
        clock: Clock,
        host: str,
        *,
        certificates: Certificates | None = None,
        websocket: WebSocketSettings | None = None,
        http_origins: Origins | None = None,
        guard: Guard | None = None,
        room: Room | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock
        self.counters = broker.counters
        self.tick = broker.tick
        self.names = Names()
        now = broker.history.cursor().positions[0]
        self.marks = Marks(now.log_id, now.epoch)
        # One buffer for all connections, because a chunk is taken whole at once.
        self.large_buffer = memoryview(bytearray(LARGE_READ_BYTES))
        self.buffer = self.large_buffer[:READ_BYTES]
        self.sip = self.large_buffer[:SIP_BYTES]
        self.loop = asyncio.get_running_loop()
        self._presence: Presence[Connection] = Presence(
            clock, self.loop, self.counters, guard or Guard(GuardSettings(), clock), room or Room()
        )
        self.connections = self._presence.connections
        self.admission = Admission(self)
        self._host = host
        self._certificates = certificates
        websocket = websocket or WebSocketSettings()
        self._origins = Origins(host, websocket.hosts, websocket.origins)
        self._http_origins = http_origins or self._origins
        self._refused = 0
        self._flapping = FlappingDetector(clock)
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()  # the latest client last
        self._notes = Notes(log, clock.monotonic, NOTES_PER_SECOND)
        self._entrances: list[Entrance] = []
        self._within: Entrance | None = None  # for those whom the HTTP listener hands over
        self._listeners: dict[str, Listener] = {}
        self._offer(settings)
        self._listeners.update(self._plan())

    def _offer(self, settings: MqttSettings) -> None:
        """What those who come from now on are offered."""
        self.abilities = abilities_of(settings)
        self.limit_bytes = settings.max_payload_bytes + settings.max_control_bytes
        self.announcement = announcement(settings, self.limit_bytes)
        self._presence.limit(settings.max_connections)

    def configure(self, settings: MqttSettings, websocket: WebSocketSettings) -> None:
        """Go by other settings: for rates and subscriptions at once, for the rest with new connections."""
        before, self.settings = self.settings, settings
        self._offer(settings)
        self._origins.configure(websocket.hosts, websocket.origins, ())
        for listener in self._listeners.values():
            listener.timeout_s = settings.connect_timeout_s
        for entrance in self._entrances:
            entrance.terms = replace(
                entrance.terms, limit_bytes=self.limit_bytes, timeout_s=settings.connect_timeout_s
            )
        rates = settings.publish_rate, settings.publish_burst
        if rates != (before.publish_rate, before.publish_burst):
            self._buckets.clear()
            for connection in self.connections:
                connection.limit_rate()

    # Opening and closing

    def _plan(self) -> Iterator[tuple[str, Listener]]:
        """A listener for each port that is asked for, by the scheme of its address."""
        settings = self.settings
        secure = self._certificates
        proxies = parse_networks(settings.proxies, "mqtt.proxies")
        ports = {
            "mqtt": ("port", settings.port),
            "mqtts": ("tls_port", settings.tls_port if secure else None),
            "ws": ("websocket_port", settings.websocket_port),
            "wss": ("websocket_tls_port", settings.websocket_tls_port),
        }
        for scheme, (key, port) in ports.items():
            if port is None:
                continue
            is_secure = scheme in ("mqtts", "wss")
            is_layered = is_secure or bool(proxies)
            if is_secure and secure is None:
                raise InvalidConfig(f"mqtt.{key}: there is no tls.certificate_file")
            yield (
                scheme,
                Listener(
                    self.loop,
                    self._open_entrance(self._origins).accept
                    if scheme in WEBSOCKET_SCHEMES
                    else self._open_connection,
                    setting=f"mqtt.{key}",
                    host=self._host,
                    port=port,
                    backlog=settings.backlog,
                    timeout_s=settings.connect_timeout_s,
                    certificates=secure if is_secure else None,
                    proxies=proxies,
                    admit=self._admits if is_layered else None,
                ),
            )

    def _open_connection(self, peer: Peer | None) -> Connection:
        return Connection(self, peer, has_arrived=peer is not None)

    def _open_within(self, peer: Peer | None) -> Connection:
        """The same for who came through a WebSocket, and was counted at its entrance."""
        return Connection(self, peer, has_arrived=True)

    def take_over(self, head: bytes, rest: bytes, transport: asyncio.Transport, peer: Peer) -> None:
        """Go on with a connection that asked the HTTP listener for MQTT over WebSocket.

        Args:
            head: the request that asked for it.
            rest: what was read behind it.
            peer: who it is; the guard of its address has counted that it came.
        """
        if self._within is None:
            self._within = self._open_entrance(self._http_origins)
        if self._presence.has_room(self._coming()):
            self._within.take_over(transport, peer, head + rest)
        else:
            self.counters.connections_refused += 1
            transport.abort()

    def _open_entrance(self, origins: Origins) -> "Entrance":
        from penstock.doors.websocket.entrance import Entrance  # noqa: PLC0415 - only who asks for it
        from penstock.doors.websocket.handshake import Terms  # noqa: PLC0415

        terms = Terms(
            path=WEBSOCKET_PATH,
            subprotocols=SUBPROTOCOLS,
            origins=origins,
            limit_bytes=self.limit_bytes,
            timeout_s=self.settings.connect_timeout_s,
        )
        entrance = Entrance(terms, self._open_within, self.buffer, self._admits)
        self._entrances.append(entrance)
        return entrance

    def _admits(self, host: str) -> bool:
        """Who has to shake hands first may begin, if there is room and its address is not too fast."""
        return self._presence.admits(host, self._coming())

    def _coming(self) -> int:
        """How many still shake hands."""
        waiting = sum(listener.waiting for listener in self._listeners.values())
        return waiting + sum(len(entrance.waiting) for entrance in self._entrances)

    @property
    def is_wanted(self) -> bool:
        """Some port was asked for."""
        return bool(self._listeners)

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidConfig: an address is in use, or not ours.
        """
        for listener in self._listeners.values():
            await listener.open()

    async def close(self) -> None:
        """Accept nobody any more, nor wait for who has not said CONNECT."""
        for listener in self._listeners.values():
            listener.close()
        for entrance in self._entrances:
            entrance.close()
        for connection in list(self.connections):
            if connection.is_stranger:
                connection.abort()

    async def finish(self, timeout: float) -> None:
        """Wait until every connection has gone; cut those that stay."""
        await self._presence.wait_until_gone(timeout)
        self._presence.cut_all()
        self.admission.close()

    def addresses(self) -> list[str]:
        """Where clients find it."""
        return [
            address + (WEBSOCKET_PATH if scheme in WEBSOCKET_SCHEMES else "")
            for scheme, listener in self._listeners.items()
            for address in listener.addresses(scheme)
        ]

    @property
    def port(self) -> int | None:
        """The port that plain MQTT listens on."""
        return self._listeners["mqtt"].port if "mqtt" in self._listeners else None

    @property
    def is_named_by_certificate(self) -> bool:
        """The name in a client's certificate is its user name."""
        return names_users(self._certificates)

    # Connections

    def on_open(self, connection: Connection, deadline: float) -> None:
        """A socket was accepted."""
        if not self._presence.has_room():
            self._presence.refuse(connection)
            return
        self._presence.add(connection, deadline)
        verdict = self._presence.ask_guard(connection)
        if verdict is not Verdict.ADMITTED:  # it is told so, when it says CONNECT
            connection.refusal = REFUSALS[verdict]
            self._refused += 1
            if self._refused > REFUSED_AT_ONCE:
                self._presence.refuse(connection)

    def on_lost(self, connection: Connection) -> None:
        """A socket is gone."""
        was_here = self._presence.leave(connection)
        self._refused -= was_here and connection.refusal is not None

    def watch(self, connection: Connection, deadline: float) -> None:
        """Look at a connection at a time."""
        self._presence.watch(connection, deadline)

    def bucket_of(self, client_id: str) -> TokenBucket | None:
        """What a client may still publish, however often it comes; None if that is not limited."""
        settings = self.settings
        if not settings.publish_rate:
            return None
        bucket = self._buckets.pop(client_id, None) or TokenBucket(
            settings.publish_rate, settings.publish_burst
        )
        self._buckets[client_id] = bucket
        if len(self._buckets) > BUCKETS_REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket

    def look_for_fights(self, connection: Connection, client_id: str) -> None:
        """Notice clients that take one session from each other again and again."""
        session = self.broker.sessions.get(client_id)
        if session is None or not isinstance(session.sink, Connection):
            return
        fight = self._flapping.note(client_id, str(session.sink.peer), str(connection.peer))
        if fight is not None:
            log.warning(
                "clients fight for one client id",
                client=shortened(client_id),
                addresses=" ".join(fight.addresses),
                takeovers=fight.count,
            )

    # What happened

    def on_refused(self, connection: Connection, run: Run, error: PenstockError) -> None:
        """A publish was not accepted."""
        self.counters.publishes_refused += run.count
        if isinstance(error, NotAuthorized):
            self.counters.actions_forbidden += 1
        self.note("publish refused", connection, str(error), topic=run.topic)

    def on_subscription_refused(self, connection: Connection, filter: str, error: PenstockError) -> None:
        """A filter was not granted."""
        if isinstance(error, NotAuthorized):
            self.counters.actions_forbidden += 1
        self.note("subscription refused", connection, str(error), filter=filter)

    def on_wire_error(self, connection: Connection, error: MqttWireError) -> None:
        """A peer sent bytes that break the protocol."""
        self.counters.wire_errors += 1
        self.counters.malformed_packets += isinstance(error, MalformedPacket)
        self.note("bad packet", connection, str(error))

    def note(self, event: str, connection: Connection, detail: str = "", **about: str) -> None:
        """One line in the program's log, as long as there are not too many of this connection."""
        connection.notes += 1
        if connection.notes <= NOTES_PER_CONNECTION:
            is_last = connection.notes == NOTES_PER_CONNECTION
            words = [detail, "(no more of this connection is written)"] if is_last else [detail]
            known = {"peer": str(connection.peer), "client": connection.client_id} | about
            shown = {key: shortened(value) for key, value in known.items()}
            self._notes.write(event, **shown, detail=" ".join(filter(None, words)))
