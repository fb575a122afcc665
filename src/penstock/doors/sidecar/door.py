"""The sidecar door: where it listens, and the connections it has."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import structlog

from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.core.runtime.deadlines import Timeouts
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.auth import CallAuth
from penstock.doors.sidecar.transport.call import Deadline
from penstock.doors.sidecar.transport.connection import Connection
from penstock.doors.sidecar.transport.method import Method, Methods
from penstock.doors.sidecar.transport.request_headers import Request
from penstock.errors import InvalidConfig
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.connections import ConnectionLimit, ConnectionRegistry
from penstock.net.listener import Listener
from penstock.net.log_throttle import ThrottledLog, shortened
from penstock.net.password_checks import PasswordChecks
from penstock.net.tls import Certificates, names_users
from penstock.net.turn_shares import TurnShares
from penstock.wire.grpc import Status, encode_refusal
from penstock.wire.http2 import Limits

if TYPE_CHECKING:
    from penstock.doors.sidecar.health import Health
    from penstock.doors.sidecar.nexusd.service import Service
    from penstock.doors.sidecar.v1.service import PenstockService

log = structlog.get_logger("penstock.sidecar")

READ_BYTES = 64 * 1024
SMALL_READ_BYTES = 8 * 1024
"""Bytes of one read while very many connections have input that waits."""
LINES_PER_SECOND = 100
CONTROL_FRAMES_PER_S = 2_000
FAR_S = 60.0
"""Farther deadlines are checked again after this time, so that calls that end earlier leave no trace."""
PARTING_S = 1.0
"""At shutdown, time for clients without calls to react to GOAWAY."""


def ignore_settings(settings: SidecarSettings) -> None:
    """Stands for `configure` of services without settings."""


class Services:
    """Methods of all services, and their callbacks.

    Args:
        drain: called when the server begins to stop.
        close: called when all sessions have ended: calls that still continue have to end too.
        configure: called when there are other settings.
    """

    __slots__ = ("close", "configure", "drain", "methods")

    def __init__(
        self,
        methods: Methods,
        drain: Callable[[], None],
        close: Callable[[], None],
        configure: Callable[[SidecarSettings], None] = ignore_settings,
    ) -> None:
        self.methods = methods
        self.drain = drain
        self.close = close
        self.configure = configure


def load_services(settings: SidecarSettings, broker: Broker, clock: Clock) -> Services:
    """Load and build all services, when the door opens: protobuf takes time to import."""
    from penstock.doors.sidecar import health, reflection  # noqa: PLC0415
    from penstock.doors.sidecar.nexusd.service import Service  # noqa: PLC0415
    from penstock.doors.sidecar.v1.service import PenstockService  # noqa: PLC0415

    service, own = Service(settings, broker, clock), PenstockService(settings, broker, clock)
    methods: dict[str, Method] = {**service.methods, **own.methods}
    names = {path[1:].rpartition("/")[0] for path in methods}
    condition = health.Health({*names, *reflection.NAMES})
    methods |= condition.methods
    methods |= reflection.reflection_methods({*names, health.NAME})
    loaded = LoadedServices(service, own, condition)
    return Services(methods, loaded.drain, loaded.close, loaded.configure)


class LoadedServices:
    """Services with state, and what the server asks of all of them."""

    __slots__ = ("_health", "_own", "nexusd")

    def __init__(self, nexusd: "Service", own: "PenstockService", health: "Health") -> None:
        self.nexusd = nexusd
        self._own = own
        self._health = health

    def configure(self, settings: SidecarSettings) -> None:
        self.nexusd.configure(settings)
        self._own.settings = settings

    def drain(self) -> None:
        self._health.drain()
        self._own.drain()

    def close(self) -> None:
        self._health.close()
        self._own.close()


class SidecarDoor:
    """gRPC over TCP and TLS, on our own HTTP/2.

    Args:
        load: imports and builds the services; called when the door opens, because it is slow.
        password_checks: shared by all doors, and closed by their owner.
    """

    name = "sidecar"

    def __init__(
        self,
        settings: SidecarSettings,
        broker: Broker,
        clock: Clock,
        load: "Callable[[], Services]",
        *,
        password_checks: PasswordChecks,
        certificates: Certificates | None = None,
        address_limits: AddressLimits | None = None,
        connection_limit: ConnectionLimit | None = None,
        shares: TurnShares | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.broker = broker
        self.counters = broker.counters
        self.loop = asyncio.get_running_loop()
        self.shares = shares or TurnShares(self.loop)
        # One buffer for all connections: what is not worked off at once is copied.
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.small_buffer = self.buffer[:SMALL_READ_BYTES]
        self.methods: Methods = {}
        self.deadlines: Timeouts[Deadline] = Timeouts(clock, self.loop, self._on_due)
        self.is_reading = False  # what is sent meanwhile leaves when that is done
        self._load = load
        self._offer: Services | None = None
        self._certificates = certificates
        address_limits = address_limits or AddressLimits(AddressLimitSettings(), clock)
        self.admission = CallAuth(
            broker.access,
            self.loop,
            password_checks,
            broker.counters,
            broker.audit,
            is_named_by_certificate=names_users(certificates),
        )
        self._unfinished_bytes = 0
        self._dirty: list[Connection] = []
        self.ended = [0] * len(Status)  # calls, by how they ended
        self._will_write = False
        self._throttled_log = ThrottledLog(log, clock.monotonic, LINES_PER_SECOND)
        self._registry: ConnectionRegistry[Connection] = ConnectionRegistry(
            clock, self.loop, self.counters, address_limits, connection_limit or ConnectionLimit()
        )
        self.connections = self._registry.connections
        self._limit(settings)
        self._listeners: list[tuple[str, Listener]] = list(self._plan())

    def _limit(self, settings: SidecarSettings) -> None:
        # A client may cancel all its calls at once, for example when it closes.
        self.limits = Limits(
            streams=settings.max_streams,
            control_frames_per_s=max(CONTROL_FRAMES_PER_S, 2 * settings.max_streams),
        )
        text = f"metadata of more than {self.limits.header_list_bytes} bytes"
        self.too_large = encode_refusal(Status.RESOURCE_EXHAUSTED, text)
        # One message may always be as large as its own limit says.
        self._max_unfinished_bytes = max(
            settings.max_unfinished_bytes, settings.max_message_bytes + READ_BYTES
        )
        self._registry.limit(settings.max_connections)

    def configure(self, settings: SidecarSettings) -> None:
        """Go by other settings: for new calls, or where a connection has its limits, with new ones."""
        self.settings = settings
        self._limit(settings)
        self.admission.is_named_by_certificate = names_users(self._certificates)
        for _, listener in self._listeners:
            listener.timeout_s = settings.connect_timeout_s
        if self._offer is not None:
            self._offer.configure(settings)

    # Opening and closing

    def _plan(self) -> Iterator[tuple[str, Listener]]:
        """Make a listener for each configured port, with its scheme."""
        settings = self.settings
        if settings.port is not None:
            yield "grpc", self._listener("port", settings.port, None)
        if settings.tls_port is not None:
            if self._certificates is None:
                raise InvalidConfig("sidecar.tls_port: tls.certificate_file is not set")
            yield "grpcs", self._listener("tls_port", settings.tls_port, self._certificates)

    def _listener(self, key: str, port: int, secure: Certificates | None) -> Listener:
        return Listener(
            self.loop,
            lambda peer: Connection(self, peer),
            setting=f"sidecar.{key}",
            host=self.settings.host,
            port=port,
            backlog=self.settings.backlog,
            timeout_s=self.settings.connect_timeout_s,
            certificates=secure,
            is_http2=True,
            admit=self._admits if secure is not None else None,
        )

    def _admits(self, host: str) -> bool:
        """True if a handshake may begin: there is room, and its address is not too fast."""
        return self._registry.admits(host, sum(listener.waiting for _, listener in self._listeners))

    @property
    def is_wanted(self) -> bool:
        """At least one port is configured."""
        return bool(self._listeners)

    async def open(self) -> None:
        """Load the services, and listen.

        Raises:
            InvalidConfig: an address is in use, or not ours.
        """
        self._offer = self._load()
        self.methods = self._offer.methods
        for _, listener in self._listeners:
            await listener.open()

    async def close(self) -> None:
        """Stop accepting, and send GOAWAY to all clients."""
        for _, listener in self._listeners:
            listener.close()
        if self._offer is not None:
            self._offer.drain()
        for connection in list(self.connections):
            connection.say_goodbye()

    async def finish(self, timeout: float) -> None:
        """Wait until every connection is closed; abort those that remain."""
        if self._offer is not None:
            self._offer.close()
        for connection in list(self.connections):
            connection.say_goodbye()
        await self._registry.wait_until_gone(min(timeout, PARTING_S))
        for connection in list(self.connections):
            if connection.is_idle:
                connection.leave()
        await self._registry.wait_until_gone(timeout - min(timeout, PARTING_S))
        self._registry.cut_all()
        # So that their calls have ended when the last commit is made:
        await self._registry.wait_until_gone(PARTING_S)
        self.admission.close()

    def addresses(self) -> list[str]:
        """URLs that clients connect to."""
        return [address for scheme, listener in self._listeners for address in listener.addresses(scheme)]

    # Connections

    def on_open(self, connection: Connection, deadline: float) -> None:
        """A socket was accepted."""
        self._registry.enter(connection, deadline)

    def on_lost(self, connection: Connection) -> None:
        """A connection is closed."""
        self._registry.leave(connection)

    def watch(self, connection: Connection, deadline: float) -> None:
        """Check a connection at a time."""
        self._registry.watch(connection, deadline)

    def count_unfinished(self, size: int) -> bool:
        """Count bytes that `max_unfinished_bytes` is for; False if there are too many."""
        self._unfinished_bytes += size
        return size <= 0 or self._unfinished_bytes <= self._max_unfinished_bytes

    def await_deadline(self, timer: Deadline, deadline: float) -> None:
        """End a call at a time on the monotonic clock."""
        self.deadlines.add(timer, min(deadline, self.clock.monotonic() + FAR_S))

    def _on_due(self, timer: Deadline) -> None:
        call = timer.call
        assert call.deadline is not None
        if call.deadline > self.clock.monotonic():
            self.await_deadline(timer, call.deadline)
        else:
            call.connection.attempt(call, call.expire)

    # Writing

    def write_soon(self, connection: Connection) -> None:
        """Something is to be written to a connection, when this turn has brought all that it brings."""
        self._dirty.append(connection)
        if not self._will_write and not self.is_reading:
            self._will_write = True
            self.loop.call_soon(self._write_later)

    def _write_later(self) -> None:
        self._will_write = False
        self.write_all()

    def write_all(self) -> None:
        """Write to all connections what was sent to them."""
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            if connection.is_dirty:  # else it was written meanwhile
                connection.write_out()

    # What happened

    def figures(self) -> dict[str, int]:
        """Number of ended calls by status."""
        return {f"calls_{status.name}": self.ended[status] for status in Status}

    def on_refused(self, connection: Connection, request: Request) -> None:
        """A request was not for any method, or not gRPC at all."""
        if request.status is not None:
            self.ended[request.status] += 1
        self.note("call refused", connection, path=shortened(request.path))

    def on_wire_error(self, connection: Connection, text: str) -> None:
        """A peer sent bytes that break the protocol."""
        self.counters.wire_errors += 1
        self.note("bad bytes", connection, text)

    def on_failure(self, connection: Connection, path: str) -> None:
        """Log an unexpected error of a method."""
        self._throttled_log.write_failure(
            "call not carried out", peer=str(connection.peer), path=shortened(path)
        )

    def note(self, event: str, connection: Connection, detail: str = "", **about: str) -> None:
        """One line in the program's log, unless there are too many."""
        self._throttled_log.write(event, peer=str(connection.peer), **about, detail=shortened(detail))
