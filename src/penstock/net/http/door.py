"""HTTP door: its listeners, its connections and its counters."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus

import structlog

from penstock.core.access.identity import Identity
from penstock.core.access.logins import Logins
from penstock.core.broker import Broker
from penstock.core.runtime.clock import Clock
from penstock.errors import InvalidConfig
from penstock.model import Door
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.connections import ConnectionLimit, ConnectionRegistry
from penstock.net.door import Peer
from penstock.net.http.asgi import Application, ASGIApp
from penstock.net.http.auth import Authenticator, named_user
from penstock.net.http.connection import HttpConnection, Scheme
from penstock.net.http.heads import Heads, Port
from penstock.net.http.request import BodyBudget, Refusal, Request
from penstock.net.http.response import DateHeader
from penstock.net.http.routes import Routes
from penstock.net.http.settings import HttpSettings
from penstock.net.listener import Listener, parse_networks
from penstock.net.log_throttle import ThrottledLog, shortened
from penstock.net.origins import Origins
from penstock.net.password_checks import PasswordChecks
from penstock.net.tls import Certificates, names_users
from penstock.net.turn_shares import TurnShares

log = structlog.get_logger("penstock.http")

LINES_PER_SECOND = 100
LOAD_AFTER_S = 1.0
"""The application is loaded this long after the start: reconnecting clients need the processor first."""

UNREADABLE_INTERVAL_S = 60.0
"""Least time between two log lines about pages of one origin."""
ORIGINS_REMEMBERED = 100
URGE_INTERVAL_S = 0.1
"""Interval at which a closing door checks its connections."""


class HttpDoor:
    """HTTP/1.1 and 1.0 over TCP and TLS, for the routes of other doors and for one application.

    Args:
        routes: hot routes and upgrades.
        load_app: imports and builds the application for everything else; called in a thread.
        origins: names of this server, and origins that may use it.
        connection_limit: limit of all doors together.
        logins: logins of web pages, if they are possible.
    """

    name = "http"

    def __init__(
        self,
        settings: HttpSettings,
        broker: Broker,
        clock: Clock,
        host: str,
        *,
        routes: Routes,
        load_app: Callable[[], ASGIApp],
        password_checks: PasswordChecks,
        certificates: Certificates | None = None,
        address_limits: AddressLimits | None = None,
        origins: Origins | None = None,
        connection_limit: ConnectionLimit | None = None,
        logins: Logins | None = None,
        shares: TurnShares | None = None,
    ) -> None:
        self.settings = settings
        self.counters = broker.counters
        self._audit = broker.audit
        self.loop = asyncio.get_running_loop()
        self.shares = shares or TurnShares(self.loop)
        self.now = clock.monotonic
        self.is_draining = False
        """Nothing new is accepted."""
        self.draining_since = 0.0
        self.bodies = BodyBudget(settings.max_bodies_bytes)
        self.application = Application(load_app, self.loop)
        address_limits = address_limits or AddressLimits(AddressLimitSettings(), clock)
        self.credentials = Authenticator(
            broker.access, password_checks, logins, is_named_by_certificate=names_users(certificates)
        )
        self.requests = 0
        self._responses = [0] * 6  # by the first digit of the status
        self._opened = self._handed_over = 0
        self._clock = clock
        self._dates = DateHeader()
        self._host = host
        self._routes = routes
        self._certificates = certificates
        self._origins = origins or Origins(host, readers=settings.cors_origins)
        self._registry: ConnectionRegistry[HttpConnection] = ConnectionRegistry(
            clock, self.loop, self.counters, address_limits, connection_limit or ConnectionLimit()
        )
        self._registry.limit(settings.max_connections)
        self.connections = self._registry.connections
        self._throttled_log = ThrottledLog(log, clock.monotonic, LINES_PER_SECOND)
        self._unreadable: dict[str, float] = {}  # origins that were logged, and until when that is enough
        self._loader: asyncio.TimerHandle | None = None
        self._closing_timer: asyncio.TimerHandle | None = None
        self._heads: list[Heads] = []
        self._listeners: list[tuple[str, Listener]] = list(self._plan())

    def configure(self, settings: HttpSettings) -> None:
        """Apply other settings: to bodies at once, the rest to new connections."""
        self.settings = settings
        self.bodies.limit_bytes = settings.max_bodies_bytes
        self._registry.limit(settings.max_connections)
        self.credentials.is_named_by_certificate = names_users(self._certificates)
        for heads in self._heads:
            heads.max_body_bytes = settings.max_body_bytes
        for _, listener in self._listeners:
            listener.timeout_s = settings.request_timeout_s

    # Opening and closing

    def _plan(self) -> Iterator[tuple[str, Listener]]:
        """Make a listener for each configured port, with its scheme."""
        settings, secure = self.settings, self._certificates
        main = Port.ALL if settings.admin_port is None else Port.MAIN
        for port in settings.port:
            yield "http", self._listener("port", port, main, None)
        if settings.tls_port is not None:
            if secure is None:
                raise InvalidConfig("http.tls_port: tls.certificate_file is not set")
            yield "https", self._listener("tls_port", settings.tls_port, main, secure)
        if settings.admin_port is not None:
            if settings.admin_tls and secure is None:
                raise InvalidConfig("http.admin_tls: tls.certificate_file is not set")
            scheme, admin = ("https", secure) if settings.admin_tls else ("http", None)
            yield scheme, self._listener("admin_port", settings.admin_port, Port.ADMIN, admin)

    def _listener(self, key: str, port: int, kind: Port, secure: Certificates | None) -> Listener:
        settings = self.settings
        proxies = parse_networks(settings.proxies, "http.proxies")
        logins = self.credentials.logins
        cookie = b"" if logins is None else logins.cookie.encode()
        heads = Heads(settings, self._routes, self._origins, kind, self.on_unreadable, cookie)
        self._heads.append(heads)
        scheme: Scheme = "http" if secure is None else "https"
        return Listener(
            self.loop,
            partial(HttpConnection, self, heads, scheme),
            setting=f"http.{key}",
            host=self._host,
            port=port,
            backlog=settings.backlog,
            timeout_s=settings.request_timeout_s,
            certificates=secure,
            proxies=proxies,
            admit=self._admits if secure is not None or proxies else None,
        )

    def _admits(self, host: str) -> bool:
        """True if a handshake may begin: there is room, and its address is not too fast."""
        return self._registry.admits(host, sum(listener.waiting for _, listener in self._listeners))

    @property
    def is_wanted(self) -> bool:
        """At least one port is configured."""
        return bool(self._listeners)

    async def open(self) -> None:
        """Listen, and load the application a little later or with the first request for it.

        Raises:
            InvalidConfig: an address is in use, or not ours.
        """
        for _, listener in self._listeners:
            await listener.open()
        self._loader = self.loop.call_later(LOAD_AFTER_S, self.application.load)

    async def close(self) -> None:
        """Refuse new requests, except health checks, which report the shutdown."""
        if not self.is_draining:
            self.is_draining, self.draining_since = True, self.now()
            self._close_idle()

    def _close_idle(self) -> None:
        """Close idle connections soon, the others after their responses."""
        now = self.now()
        for connection in list(self.connections):
            connection.close_idle(now, self.draining_since)
        self._closing_timer = self.loop.call_later(URGE_INTERVAL_S, self._close_idle)

    async def finish(self, timeout: float) -> None:
        """Stop accepting, and wait until every connection is closed; abort those that remain."""
        for _, listener in self._listeners:
            listener.close()
        await self._registry.wait_until_gone(timeout)
        self._registry.cut_all()
        for timer in (self._loader, self._closing_timer):
            if timer is not None:
                timer.cancel()
        await self.application.close()

    def addresses(self) -> list[str]:
        """URLs that clients connect to."""
        return [address for scheme, listener in self._listeners for address in listener.addresses(scheme)]

    def ports(self, scheme: str = "http") -> list[int]:
        """The ports it listens on, in the order of the settings, the admin port last."""
        return [listener.port for known, listener in self._listeners if known == scheme]

    # Connections

    def on_open(self, connection: HttpConnection, deadline: float) -> None:
        """A socket was accepted."""
        self._opened += self._registry.enter(connection, deadline)

    def on_lost(self, connection: HttpConnection) -> None:
        """A connection is closed."""
        self._registry.leave(connection)

    def on_handed_over(self, connection: HttpConnection) -> None:
        """A connection was handed over to another door, which counts it."""
        self._handed_over += 1
        self.on_lost(connection)

    def watch(self, connection: HttpConnection, deadline: float) -> None:
        """Check a connection at a time."""
        self._registry.watch(connection, deadline)

    # Events

    def date_line(self) -> bytes:
        """The `Date` header line of the current second."""
        return self._dates.line(self._clock.wall_us() // 1_000_000)

    def count_response(self, status: int) -> None:
        """Count a response."""
        self._responses[status // 100] += 1

    def figures(self) -> dict[str, int]:
        """Totals since start, and the number of connections."""
        by_status = {f"responses_{digit}xx": self._responses[digit] for digit in range(2, 6)}
        return {
            "requests": self.requests,
            **by_status,
            "connections": len(self.connections),
            "connections_total": self._opened,
            "connections_handed_over": self._handed_over,
        }

    def on_refused(self, request: Request, refusal: Refusal) -> None:
        """The listener itself has refused a request."""
        if refusal.status < HTTPStatus.BAD_REQUEST:
            return
        self.counters.wire_errors += refusal.is_fatal
        self.note("request refused", request.peer, status=refusal.status, detail=shortened(refusal.detail))

    def on_unreadable(self, request: Request, origin: str) -> None:
        """Log that a page gets no response, of which its browser says little: once a minute per origin."""
        reported = self._unreadable
        now, origin = self.now(), shortened(origin)
        if now < reported.get(origin, 0.0):
            return
        if len(reported) >= ORIGINS_REMEMBERED:
            reported.clear()
        reported[origin] = now + UNREADABLE_INTERVAL_S
        detail = "the page may not read the response: see http.cors_origins"
        self.note("page not served", request.peer, origin=origin, path=shortened(request.path), detail=detail)

    def on_authenticated(self, peer: Peer, identity: Identity) -> None:
        """A user has proven itself on a connection."""
        self._audit.record_login(identity.user, Door.WEB, peer)

    def on_unauthenticated(self, peer: Peer, authorization: bytes | None) -> None:
        """Count a failed authentication; a request without credentials may be a first try."""
        if authorization is not None:
            self.counters.authentications_failed += 1
            user = named_user(authorization)
            self._audit.record_login(user, Door.WEB, peer, refusal="wrong credentials")

    def note(self, event: str, peer: Peer, **details: object) -> None:
        """Log one event, unless there are too many."""
        self._throttled_log.write(event, peer=str(peer), **details)
