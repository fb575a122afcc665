"""The MQTT door: where it listens, and the connections it has."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from penstock.core.broker import Broker
from penstock.core.runtime.bounded_map import BoundedMap
from penstock.core.runtime.clock import Clock
from penstock.doors.mqtt.capabilities import abilities_of, announcement
from penstock.doors.mqtt.connect import ConnectHandler
from penstock.doors.mqtt.connection import Connection
from penstock.doors.mqtt.meta_properties import MetaProperties
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.mqtt.takeover_fights import TakeoverFightDetector
from penstock.errors import InvalidConfig, NotAuthorized, PenstockError
from penstock.net.address_limits import AddressLimits, AddressLimitSettings, Verdict
from penstock.net.connections import ConnectionLimit, ConnectionRegistry
from penstock.net.door import Peer
from penstock.net.listener import Listener, parse_networks
from penstock.net.log_throttle import ThrottledLog, shortened
from penstock.net.origins import Origins
from penstock.net.password_checks import PasswordChecks
from penstock.net.rate_limit import TokenBucket
from penstock.net.tls import Certificates, names_users
from penstock.net.turn_shares import TurnShares
from penstock.net.websocket import WebSocketSettings
from penstock.runs import Run
from penstock.wire.mqtt.decode import TopicNameCache
from penstock.wire.mqtt.reasons import MalformedPacket, MqttWireError, ReasonCode

if TYPE_CHECKING:
    from penstock.net.websocket.entrance import ByteEntrance

log = structlog.get_logger("penstock.mqtt")

READ_BYTES = 64 * 1024
"""Bytes of one read: the objects made of it stay in the processor's cache."""
LARGE_READ_BYTES = 256 * 1024
"""Bytes of one read within a large packet, where bytes cost more than objects."""
SMALL_READ_BYTES = 8 * 1024
"""Bytes of one read while very many connections have input that waits."""
SIP_BYTES = 1024
"""Bytes of one read from a client with a rate limit."""
BUCKETS_REMEMBERED = 65_536
LINES_PER_CONNECTION = 20
"""Log lines that one connection may cause, so that refusals cannot fill the disk."""
LINES_PER_SECOND = 100
"""Lines in the log that all of them may cause."""
WEBSOCKET_SCHEMES = ("ws", "wss")
WEBSOCKET_PATH = "/mqtt"
SUBPROTOCOLS = ("mqtt", "mqttv3.1")
"""Subprotocols of WebSocket clients; the second is the older name."""
FRAME_LIMIT_BYTES = 2**63 - 1
"""Largest WebSocket frame of RFC 6455: packets have the limit, and are read as they arrive."""
REFUSALS = {
    Verdict.TOO_MANY: ReasonCode.QUOTA_EXCEEDED,
    Verdict.TOO_FAST: ReasonCode.CONNECTION_RATE_EXCEEDED,
}
"""Refusal in CONNACK by address limit."""
REFUSED_AT_ONCE = 100
"""Refused connections that may wait for their CONNACK; more are aborted."""


class MqttDoor:
    """MQTT 3.1.1 and 5.0 over TCP, TLS and WebSocket.

    Args:
        password_checks: shared by all doors, and closed by their owner.
        websocket: host names and allowed origins at WebSocket ports.
        http_origins: the same at the HTTP listener, for the connections that it hands over.
        shares: turn shares, shared by all doors of the loop.
    """

    name = "mqtt"

    def __init__(
        self,
        settings: MqttSettings,
        broker: Broker,
        clock: Clock,
        host: str,
        *,
        password_checks: PasswordChecks,
        certificates: Certificates | None = None,
        websocket: WebSocketSettings | None = None,
        http_origins: Origins | None = None,
        address_limits: AddressLimits | None = None,
        connection_limit: ConnectionLimit | None = None,
        shares: TurnShares | None = None,
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock
        self.counters = broker.counters
        self.names = TopicNameCache()
        now = broker.history.cursor().positions[0]
        self.marks = MetaProperties(now.log_id, now.epoch)
        # One buffer for all connections: what is not worked off at once is copied.
        self.large_buffer = memoryview(bytearray(LARGE_READ_BYTES))
        self.buffer = self.large_buffer[:READ_BYTES]
        self.small_buffer = self.large_buffer[:SMALL_READ_BYTES]
        self.sip = self.large_buffer[:SIP_BYTES]
        self.loop = asyncio.get_running_loop()
        self.address_limits = address_limits or AddressLimits(AddressLimitSettings(), clock)
        self.password_checks = password_checks
        self.shares = shares or TurnShares(self.loop)
        self._registry: ConnectionRegistry[Connection] = ConnectionRegistry(
            clock, self.loop, self.counters, self.address_limits, connection_limit or ConnectionLimit()
        )
        self.connections = self._registry.connections
        self.admission = ConnectHandler(self)
        self._host = host
        self._certificates = certificates
        websocket = websocket or WebSocketSettings()
        self._origins = Origins(host, websocket.hosts, websocket.origins)
        self._http_origins = http_origins or self._origins
        self._refused = 0
        self._flapping = TakeoverFightDetector(clock)
        self._buckets: BoundedMap[str, TokenBucket] = BoundedMap(BUCKETS_REMEMBERED)  # by client
        self._throttled_log = ThrottledLog(log, clock.monotonic, LINES_PER_SECOND)
        self._entrances: list[ByteEntrance] = []
        self._within: ByteEntrance | None = None  # for connections from the HTTP listener
        self._listeners: dict[str, Listener] = {}
        self._offer(settings)
        self._listeners.update(self._plan())

    def _offer(self, settings: MqttSettings) -> None:
        """Capabilities for new connections."""
        self.abilities = abilities_of(settings)
        self.limit_bytes = settings.max_payload_bytes + settings.max_control_bytes
        self.announcement = announcement(settings, self.limit_bytes)
        self._registry.limit(settings.max_connections)

    def configure(self, settings: MqttSettings, websocket: WebSocketSettings) -> None:
        """Go by other settings: for rates and subscriptions at once, for the rest with new connections."""
        before, self.settings = self.settings, settings
        self._offer(settings)
        self._origins.configure(websocket.hosts, websocket.origins, ())
        for listener in self._listeners.values():
            listener.timeout_s = settings.connect_timeout_s
        for entrance in self._entrances:
            entrance.terms = replace(entrance.terms, timeout_s=settings.connect_timeout_s)
        rates = settings.publish_rate, settings.publish_burst
        if rates != (before.publish_rate, before.publish_burst):
            self._buckets.clear()
            for connection in self.connections:
                connection.limit_rate()

    # Opening and closing

    def _plan(self) -> Iterator[tuple[str, Listener]]:
        """Make a listener for each configured port, by the scheme of its address."""
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
                raise InvalidConfig(f"mqtt.{key}: tls.certificate_file is not set")
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
        """Return the protocol of a WebSocket connection, which its entrance has counted."""
        return Connection(self, peer, has_arrived=True)

    def take_over(self, head: bytes, rest: bytes, transport: asyncio.Transport, peer: Peer) -> None:
        """Take over a connection that asked the HTTP listener for MQTT over WebSocket.

        Args:
            head: its request.
            rest: input behind the request.
            peer: its address; the address limits have counted its arrival.
        """
        if self._within is None:
            self._within = self._open_entrance(self._http_origins)
        if self._registry.has_room(self._coming()):
            self._within.take_over(transport, peer, head + rest)
        else:
            self.counters.connections_refused += 1
            transport.abort()

    def _open_entrance(self, origins: Origins) -> "ByteEntrance":
        from penstock.net.websocket.entrance import ByteEntrance  # noqa: PLC0415 - loaded at first use
        from penstock.net.websocket.handshake import Terms  # noqa: PLC0415

        terms = Terms(
            path=WEBSOCKET_PATH,
            subprotocols=SUBPROTOCOLS,
            origins=origins,
            limit_bytes=FRAME_LIMIT_BYTES,
            timeout_s=self.settings.connect_timeout_s,
        )
        entrance = ByteEntrance(terms, self._open_within, self.buffer, self._admits, self.shares)
        self._entrances.append(entrance)
        return entrance

    def _admits(self, host: str) -> bool:
        """True if a handshake may begin: there is room, and its address is not too fast."""
        return self._registry.admits(host, self._coming())

    def _coming(self) -> int:
        """Number of pending handshakes."""
        waiting = sum(listener.waiting for listener in self._listeners.values())
        return waiting + sum(len(entrance.waiting) for entrance in self._entrances)

    @property
    def is_wanted(self) -> bool:
        """At least one port is configured."""
        return bool(self._listeners)

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidConfig: an address is in use, or not ours.
        """
        for listener in self._listeners.values():
            await listener.open()

    async def close(self) -> None:
        """Stop accepting, and close connections without a CONNECT."""
        for listener in self._listeners.values():
            listener.close()
        for entrance in self._entrances:
            entrance.close()
        for connection in list(self.connections):
            if connection.is_stranger:
                connection.abort()

    async def finish(self, timeout: float) -> None:
        """Wait until every connection is closed; abort those that remain."""
        await self._registry.wait_until_gone(timeout)
        self._registry.cut_all()

    def addresses(self) -> list[str]:
        """URLs that clients connect to."""
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
        if not self._registry.has_room():
            self._registry.refuse(connection)
            return
        self._registry.add(connection, deadline)
        verdict = self._registry.check_address(connection)
        if verdict is not Verdict.ADMITTED:  # refused in CONNACK
            self.may_wait_for_refusal(connection, REFUSALS[verdict])

    def may_wait_for_refusal(self, connection: Connection, reason: ReasonCode) -> bool:
        """Note the refusal of a connection. Returns False if too many are open: then it is aborted."""
        connection.refusal = reason
        self._refused += 1
        if self._refused <= REFUSED_AT_ONCE:
            return True
        self._registry.refuse(connection)
        return False

    def on_lost(self, connection: Connection) -> None:
        """A connection is closed."""
        self.admission.on_lost(connection)
        was_here = self._registry.leave(connection)
        self._refused -= was_here and connection.refusal is not None

    def watch(self, connection: Connection, deadline: float) -> None:
        """Check a connection at a time."""
        self._registry.watch(connection, deadline)

    def bucket_of(self, client_id: str) -> TokenBucket | None:
        """Token bucket of a client, kept across reconnects; None without a limit."""
        settings = self.settings
        if not settings.publish_rate:
            return None
        bucket = self._buckets.use(client_id)
        if bucket is None:
            bucket = TokenBucket(settings.publish_rate, settings.publish_burst)
            self._buckets.put(client_id, bucket)
            self._buckets.take_stale()
        return bucket

    def look_for_fights(self, connection: Connection, client_id: str) -> None:
        """Notice clients that take one session from each other again and again."""
        session = self.broker.sessions.get(client_id)
        if session is None or not isinstance(session.connection, Connection):
            return
        fight = self._flapping.note(client_id, str(session.connection.peer), str(connection.peer))
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
        connection.lines_logged += 1
        if connection.lines_logged <= LINES_PER_CONNECTION:
            is_last = connection.lines_logged == LINES_PER_CONNECTION
            words = [detail, "(no more of this connection is written)"] if is_last else [detail]
            known = {"peer": str(connection.peer), "client": connection.client_id, "user": connection.user}
            known |= about
            shown = {key: shortened(value) for key, value in known.items()}
            self._throttled_log.write(event, **shown, detail=" ".join(filter(None, words)))
