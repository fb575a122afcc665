"""The MQTT door: listens, lets clients in, and knows its connections."""

import asyncio
import contextlib
import os
import resource
import secrets
from concurrent.futures import ThreadPoolExecutor

import structlog

from penstock.core.access import SLOW_CHECKS_AT_ONCE, Identity
from penstock.core.broker import Arrival, Broker
from penstock.core.clock import Clock
from penstock.core.sessions import Will
from penstock.doors.base import Wheel
from penstock.doors.mqtt.answers import refusal_of, return_code_of
from penstock.doors.mqtt.connection import Connection
from penstock.doors.mqtt.settings import MqttSettings
from penstock.errors import InvalidConfig, PenstockError
from penstock.model import NEVER, Door, Properties, Run
from penstock.wire.mqtt import packets
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import ConnAck, Connect, Version
from penstock.wire.mqtt.properties import NO_PROPERTIES, PacketProperties
from penstock.wire.mqtt.reader import SOON, Names
from penstock.wire.mqtt.reasons import MqttWireError, ReasonCode

log = structlog.get_logger("penstock.mqtt")

READ_BYTES = 64 * 1024
"""What one read takes: the objects made of so much stay in the processor's cache."""
LARGE_READ_BYTES = 256 * 1024
"""What one read takes in the middle of a large packet, where bytes cost more than objects."""
FILES_KEPT_FREE = 500
KEEP_ALIVE_FACTOR = 1.5
NO_EXPIRY = 0xFFFFFFFF
SMALLEST_LIMIT_BYTES = 64
"""A client that takes no packets of this size could not even be told what CONNACK has to tell."""
NOTES_PER_CONNECTION = 20
"""Lines in the log that one connection may cause: who is refused a thousand times fills no disk."""


class MqttDoor:
    """MQTT 3.1.1 and 5.0 over TCP."""

    name = "mqtt"

    def __init__(self, settings: MqttSettings, broker: Broker, clock: Clock, host: str) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock
        self.counters = broker.counters
        self.tick = broker.tick
        self.names = Names()
        # One buffer for all connections, because a chunk is taken whole at once.
        self.large_buffer = memoryview(bytearray(LARGE_READ_BYTES))
        self.buffer = self.large_buffer[:READ_BYTES]
        self.limit_bytes = settings.max_payload_bytes + settings.max_control_bytes
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._host = host
        self._wheel = Wheel(clock, self.loop)
        self._server: asyncio.Server | None = None
        self._checks: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._max_connections = settings.max_connections or _file_limit() - FILES_KEPT_FREE

    # Opening and closing

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidConfig: the address is in use, or not ours.
        """
        port = self.settings.port
        assert port is not None
        try:
            self._server = await self.loop.create_server(
                lambda: Connection(self), self._host, port, backlog=self.settings.backlog
            )
        except OSError as error:
            # What a name server says has numbers of its own, below zero.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            where = _address(self._host, port)
            raise InvalidConfig(f"mqtt.port: cannot listen on {where}: {reason}") from None

    async def close(self) -> None:
        """Accept nobody any more, nor wait for who has not said CONNECT."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            if connection.is_stranger:
                connection.abort()

    async def finish(self, timeout: float) -> None:
        """Wait until every connection has gone; cut those that stay."""
        self._all_gone.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout)
        for connection in list(self.connections):
            connection.abort()
        if self._checks is not None:
            self._checks.shutdown(wait=False)

    def addresses(self) -> list[str]:
        """Where clients find it."""
        sockets = self._server.sockets if self._server is not None else ()
        return [f"mqtt://{_address(*socket.getsockname()[:2])}" for socket in sockets]

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    # Connections

    def on_open(self, connection: Connection, deadline: float) -> None:
        """A socket was accepted."""
        if len(self.connections) >= self._max_connections:
            self.counters.connections_refused += 1
            connection.abort()
            return
        self.connections.add(connection)
        self._wheel.add(connection, deadline)

    def on_lost(self, connection: Connection) -> None:
        """A socket is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._all_gone.set()

    def watch(self, connection: Connection, deadline: float) -> None:
        """Look at a connection at a time."""
        self._wheel.add(connection, deadline)

    def admit(self, connection: Connection, packet: Connect) -> None:
        """Decide about a CONNECT: at once where that is possible, otherwise in a thread."""
        password = packet.password
        verdict = self.broker.access.verify_now(packet.user_name, password)
        if verdict is None:
            connection.suspend()
            task = self.loop.create_task(self._check(connection, packet))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._decide(connection, packet, verdict)

    async def _check(self, connection: Connection, packet: Connect) -> None:
        if self._checks is None:
            self._checks = ThreadPoolExecutor(SLOW_CHECKS_AT_ONCE, "password")
        verify = self.broker.access.verify
        try:
            verdict = await self.loop.run_in_executor(self._checks, verify, packet.user_name, packet.password)
        except Exception:  # whatever went wrong, nobody is let in by it, and nobody waits for ever
            log.exception("password not checked", peer=connection.peer, client=packet.client_id)
            self.refuse(connection, ReasonCode.SERVER_UNAVAILABLE)
            return
        if connection in self.connections:
            self._decide(connection, packet, verdict)

    def _decide(self, connection: Connection, packet: Connect, is_verified: bool) -> None:
        if not is_verified:
            self.note("credentials refused", connection, f"client {packet.client_id!r}")
            self.refuse(connection, ReasonCode.BAD_USER_NAME_OR_PASSWORD)
            return
        if not packet.client_id and not packet.clean_start and packet.version is Version.V311:
            self.refuse(connection, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)  # MQTT-3.1.3-8
            return
        if packet.properties.authentication_method is not None:
            self.refuse(connection, ReasonCode.BAD_AUTHENTICATION_METHOD)
            return
        if 0 < (packet.properties.maximum_packet_size or 0) < SMALLEST_LIMIT_BYTES:
            self.refuse(connection, ReasonCode.PACKET_TOO_LARGE)
            return
        try:
            self._welcome(connection, packet)
        except PenstockError as error:
            self.note("connection refused", connection, f"client {packet.client_id!r}", str(error))
            self.refuse(connection, refusal_of(error))

    def _welcome(self, connection: Connection, packet: Connect) -> None:
        given = packet.properties
        client_id = packet.client_id or f"auto-{secrets.token_hex(8)}"
        identity = Identity(packet.user_name, client_id)
        will = None if packet.will is None else _will(packet.will)
        if will is not None:
            self.broker.check_will(identity, will)
        limit_bytes = given.maximum_packet_size or 0
        arrival = Arrival(
            identity,
            Door.MQTT,
            packet.clean_start,
            self._expiry(packet),
            min(given.receive_maximum or 65_535, self.settings.max_inflight),
            will,
            (packet.version, limit_bytes),
        )
        connection.limit_bytes = limit_bytes
        session, is_present = self.broker.connect(arrival, connection, connection.reform)
        keep_alive = self._keep_alive(packet)
        properties = NO_PROPERTIES
        if packet.version is Version.V5:
            expiry = None if session.expiry == arrival.expiry else int(session.expiry)
            properties = PacketProperties(
                assigned_client_id=None if packet.client_id else client_id,
                server_keep_alive=None if keep_alive == packet.keep_alive else keep_alive,
                session_expiry=expiry,
                receive_maximum=self.settings.receive_maximum,
                topic_alias_maximum=self.settings.topic_alias_maximum or None,
                maximum_packet_size=self.limit_bytes,
            )
        connack = encode_packet(ConnAck(is_present, 0, properties), packet.version)
        connection.accept(session, connack, keep_alive * KEEP_ALIVE_FACTOR)

    def refuse(self, connection: Connection, reason: ReasonCode) -> None:
        """Answer a CONNECT with the reason why not, and close."""
        self.counters.connections_refused += 1
        code = reason if connection.version is Version.V5 else return_code_of(reason)
        connection.turn_away(encode_packet(ConnAck(False, code), connection.version))

    def refuse_bytes(self, connection: Connection, error: MqttWireError, *, is_greeted: bool) -> None:
        """Close on a first packet that is broken; MQTT 5 gives the reason, 3.1.1 only that of a version."""
        is_version = error.reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        if is_greeted and (is_version or connection.version is Version.V5):
            self.refuse(connection, error.reason)
        else:  # MQTT-3.1.4-1, or no CONNECT at all
            self.counters.connections_refused += 1
            connection.leave()

    def _expiry(self, packet: Connect) -> float:
        """How long the session outlives its connection; 3.1.1 knows only "for ever" or not at all."""
        if packet.version is Version.V311:
            return 0.0 if packet.clean_start else float("inf")
        expiry = packet.properties.session_expiry or 0
        return float("inf") if expiry == NO_EXPIRY else float(expiry)

    def _keep_alive(self, packet: Connect) -> int:
        limit = self.settings.max_keep_alive_s
        return min(packet.keep_alive or limit, limit) if limit else packet.keep_alive

    # What happened

    def on_refused(self, connection: Connection, run: Run, error: PenstockError) -> None:
        """A publish was not accepted."""
        self.counters.publishes_refused += run.count
        self.note("publish refused", connection, run.topic, str(error))

    def on_wire_error(self, connection: Connection, error: MqttWireError) -> None:
        """A peer sent bytes that break the protocol."""
        self.counters.wire_errors += 1
        self.note("bad packet", connection, str(error))

    def note(self, event: str, connection: Connection, *details: str) -> None:
        """One line in the program's log, as long as there are not too many of this connection."""
        connection.notes += 1
        if connection.notes <= NOTES_PER_CONNECTION:
            is_last = connection.notes == NOTES_PER_CONNECTION
            words = (*details, "(no more of this connection is written)") if is_last else details
            log.info(event, peer=connection.peer, client=connection.client_id, detail=" ".join(words))


def _will(will: packets.Will) -> Will:
    given = will.properties
    properties = Properties(
        given.content_type,
        given.correlation_data,
        given.response_topic,
        given.payload_format,
        None,
        given.user,
    )
    ttl = NEVER if given.message_expiry is None else float(given.message_expiry) or SOON
    delay = float(given.will_delay or 0)
    return Will(will.topic, will.payload, will.qos, will.retain, properties, ttl, delay)


def _file_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(hard, 1_000_000) if soft == resource.RLIM_INFINITY else soft


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
