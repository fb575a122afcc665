"""The HTTP listener as a door: where it listens, the connections it has, what happened so far."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus

import structlog

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.doors.base import Peer
from penstock.doors.guard import Guard, GuardSettings
from penstock.doors.http.application import Application, ASGIApp
from penstock.doors.http.bodies import Bodies
from penstock.doors.http.credentials import Credentials
from penstock.doors.http.heads import Heads, Port
from penstock.doors.http.protocol import HttpConnection, Scheme
from penstock.doors.http.requests import Refusal, Request
from penstock.doors.http.responses import Dates
from penstock.doors.http.routes import Routes
from penstock.doors.http.settings import HttpSettings
from penstock.doors.listener import Listener, parse_networks
from penstock.doors.notes import Notes, shortened
from penstock.doors.origins import Origins
from penstock.doors.presence import Presence
from penstock.doors.room import Room
from penstock.doors.tls import Certificates, names_users
from penstock.errors import InvalidConfig

log = structlog.get_logger("penstock.http")

NOTES_PER_SECOND = 100
LOAD_AFTER_S = 1.0
"""When the application is loaded: those who come back right after a start need the processor themselves."""

URGE_INTERVAL_S = 0.1
"""How often a door that closes looks at who is still there."""


class HttpDoor:
    """HTTP/1.1 and 1.0 over TCP and TLS, for the routes of other doors and for one application.

    Args:
        routes: what is answered or handed over here.
        load_app: imports and builds the application that gets everything else; called in a thread.
        origins: the names of this server, and the pages that are welcome.
        room: the connections that all doors share.
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
        certificates: Certificates | None = None,
        guard: Guard | None = None,
        origins: Origins | None = None,
        room: Room | None = None,
    ) -> None:
        self.settings = settings
        self.counters = broker.counters
        self.loop = asyncio.get_running_loop()
        self.now = clock.monotonic
        self.is_draining = False
        """Nothing new is accepted."""
        self.draining_since = 0.0
        self.bodies = Bodies(settings.max_bodies_bytes)
        self.application = Application(load_app, self.loop)
        guard = guard or Guard(GuardSettings(), clock)
        self.credentials = Credentials(
            broker.access, self.loop, guard, is_named_by_certificate=names_users(certificates)
        )
        self.requests = 0
        self._responses = [0] * 6  # by the first digit of the status
        self._opened = self._handed_over = 0
        self._clock = clock
        self._dates = Dates()
        self._host = host
        self._routes = routes
        self._certificates = certificates
        self._origins = origins or Origins(host, readers=settings.cors_origins)
        self._presence: Presence[HttpConnection] = Presence(
            clock, self.loop, self.counters, guard, room or Room()
        )
        self._presence.limit(settings.max_connections)
        self.connections = self._presence.connections
        self._notes = Notes(log, clock.monotonic, NOTES_PER_SECOND)
        self._loader: asyncio.TimerHandle | None = None
        self._urging: asyncio.TimerHandle | None = None
        self._heads: list[Heads] = []
        self._listeners: list[tuple[str, Listener]] = list(self._plan())

    def configure(self, settings: HttpSettings) -> None:
        """Go by other settings: for bodies at once, for the rest with new connections."""
        self.settings = settings
        self.bodies.limit_bytes = settings.max_bodies_bytes
        self._presence.limit(settings.max_connections)
        self.credentials.is_named_by_certificate = names_users(self._certificates)
        for heads in self._heads:
            heads.max_body_bytes = settings.max_body_bytes
        for _, listener in self._listeners:
            listener.timeout_s = settings.request_timeout_s

    # Opening and closing

    def _plan(self) -> Iterator[tuple[str, Listener]]:
        """A listener for each port that is asked for, with the scheme of its addresses."""
        settings, secure = self.settings, self._certificates
        main = Port.ALL if settings.admin_port is None else Port.MAIN
        for port in settings.port:
            yield "http", self._listener("port", port, main, None)
        if settings.tls_port is not None:
            if secure is None:
                raise InvalidConfig("http.tls_port: there is no tls.certificate_file")
            yield "https", self._listener("tls_port", settings.tls_port, main, secure)
        if settings.admin_port is not None:
            if settings.admin_tls and secure is None:
                raise InvalidConfig("http.admin_tls: there is no tls.certificate_file")
            scheme, admin = ("https", secure) if settings.admin_tls else ("http", None)
            yield scheme, self._listener("admin_port", settings.admin_port, Port.ADMIN, admin)

    def _listener(self, key: str, port: int, kind: Port, secure: Certificates | None) -> Listener:
        settings = self.settings
        proxies = parse_networks(settings.proxies, "http.proxies")
        heads = Heads(settings, self._routes, self._origins, kind)
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
        """Who has to shake hands first may begin, if there is room and its address is not too fast."""
        return self._presence.admits(host, sum(listener.waiting for _, listener in self._listeners))

    @property
    def is_wanted(self) -> bool:
        """Some port was asked for."""
        return bool(self._listeners)

    async def open(self) -> None:
        """Listen, and load the application a little later, or when somebody asks for it.

        Raises:
            InvalidConfig: an address is in use, or not ours.
        """
        for _, listener in self._listeners:
            await listener.open()
        self._loader = self.loop.call_later(LOAD_AFTER_S, self.application.load)

    async def close(self) -> None:
        """Take no new request but those for the server's health: whoever asks can see that it stops."""
        if not self.is_draining:
            self.is_draining, self.draining_since = True, self.now()
            self._urge()

    def _urge(self) -> None:
        """Who waits between requests goes soon, the others after their answers."""
        now = self.now()
        for connection in list(self.connections):
            connection.urge(now, self.draining_since)
        self._urging = self.loop.call_later(URGE_INTERVAL_S, self._urge)

    async def finish(self, timeout: float) -> None:
        """Accept nobody any more, and wait until every connection has gone; cut those that stay."""
        for _, listener in self._listeners:
            listener.close()
        await self._presence.wait_until_gone(timeout)
        self._presence.cut_all()
        for timer in (self._loader, self._urging):
            if timer is not None:
                timer.cancel()
        await self.application.close()
        self.credentials.close()

    def addresses(self) -> list[str]:
        """Where clients find it."""
        return [address for scheme, listener in self._listeners for address in listener.addresses(scheme)]

    def ports(self, scheme: str = "http") -> list[int]:
        """The ports it listens on, in the order of the settings, the admin port last."""
        return [listener.port for known, listener in self._listeners if known == scheme]

    # Connections

    def on_open(self, connection: HttpConnection, deadline: float) -> None:
        """A socket was accepted."""
        self._opened += self._presence.enter(connection, deadline)

    def on_lost(self, connection: HttpConnection) -> None:
        """A socket is gone."""
        self._presence.leave(connection)

    def on_handed_over(self, connection: HttpConnection) -> None:
        """A socket is with another door from now on, which counts it."""
        self._handed_over += 1
        self.on_lost(connection)

    def watch(self, connection: HttpConnection, deadline: float) -> None:
        """Look at a connection at a time."""
        self._presence.watch(connection, deadline)

    # What happened

    def date_line(self) -> bytes:
        """The header `Date` of an answer that is given now."""
        return self._dates.line(self._clock.wall_us() // 1_000_000)

    def count_response(self, status: int) -> None:
        """An answer has been given."""
        self._responses[status // 100] += 1

    def figures(self) -> dict[str, int]:
        """Totals since start, and how many connections there are."""
        by_status = {f"responses_{digit}xx": self._responses[digit] for digit in range(2, 6)}
        return {
            "requests": self.requests,
            **by_status,
            "connections": len(self.connections),
            "connections_total": self._opened,
            "connections_handed_over": self._handed_over,
        }

    def on_refused(self, request: Request, refusal: Refusal) -> None:
        """A request was not accepted by the listener itself."""
        if refusal.status < HTTPStatus.BAD_REQUEST:
            return
        self.counters.wire_errors += refusal.is_fatal
        self.note("request refused", request.peer, status=refusal.status, detail=shortened(refusal.detail))

    def on_stranger(self, *, is_named: bool) -> None:
        """Somebody is not let in. Who gave no name may only not have known that one is needed."""
        self.counters.authentications_failed += is_named

    def note(self, event: str, peer: Peer, **details: object) -> None:
        """One line in the program's log, unless there are too many."""
        self._notes.write(event, peer=str(peer), **details)
