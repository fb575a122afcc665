"""Route table: hot routes, which the listener calls itself, and upgrades.

A hot route is a plain function that gets a request with its complete body. All other paths go to the
application. Paths are compared percent-decoded, as in the application.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, cast, overload

from penstock.core.access.identity import Identity
from penstock.net.door import Peer

if TYPE_CHECKING:
    from penstock.net.http.request import Request

OPEN_PATHS = frozenset({"/health", "/ready", "/livez"})
"""Health checks: served on every port, without credentials."""

Handler = Callable[["Request"], None]
Take = Callable[[bytes, bytes, asyncio.Transport, Peer], None]
"""Takes over a connection: the head of its request, input behind it, transport, peer."""
TakeKnown = Callable[[bytes, bytes, asyncio.Transport, Peer, Identity], None]
"""The same with the authenticated identity. The head may hold a token: do not log it."""


class Route:
    """One method of one path; `Routes.add` says what its attributes mean."""

    __slots__ = (
        "handler",
        "is_admin",
        "is_open",
        "is_page",
        "is_stream",
        "max_body_bytes",
        "takes_away",
        "waits_its_turn",
    )

    def __init__(
        self,
        handler: Handler,
        is_open: bool = False,
        is_admin: bool = False,
        max_body_bytes: int | None = None,
        is_stream: bool = False,
        waits_its_turn: bool = False,
        takes_away: bool = False,
        is_page: bool = False,
    ) -> None:
        self.handler = handler
        self.is_open = is_open
        self.is_admin = is_admin
        self.max_body_bytes = max_body_bytes
        self.is_stream = is_stream
        self.waits_its_turn = waits_its_turn
        self.takes_away = takes_away
        self.is_page = is_page


class Upgrade:
    """Handler of the connections that ask for a WebSocket at a path."""

    __slots__ = ("needs_identity", "take")

    def __init__(self, take: TakeKnown, needs_identity: bool) -> None:
        self.take = take
        self.needs_identity = needs_identity


class HotPath:
    """A path with hot routes, at least for some methods."""

    __slots__ = ("path", "routes")

    def __init__(self, path: str) -> None:
        self.path = path
        self.routes: dict[str, Route] = {}

    def find(self, method: str) -> Route | None:
        """Return the route of a method; GET usually serves HEAD too, and OPTIONS is built in."""
        found = self.routes.get(method)
        if found is None and method == "HEAD" and self._takes_head:
            return self.routes.get("GET")
        return self._listing if found is None and method == "OPTIONS" else found

    @property
    def allowed(self) -> str:
        """Value of the `Allow` header."""
        return allow(self.routes) if self._takes_head else ", ".join(sorted(self.routes))

    @property
    def _takes_head(self) -> bool:
        return "GET" in self.routes and not self.routes["GET"].takes_away

    @property
    def _listing(self) -> Route:
        """Route for OPTIONS, with the weakest access rule of all methods."""
        routes = self.routes.values()
        return Route(
            self._list_methods,
            is_open=any(route.is_open for route in routes),
            is_admin=all(route.is_admin for route in routes),
            max_body_bytes=0,
        )

    def _list_methods(self, request: "Request") -> None:
        request.respond_methods(self.allowed)


class Routes:
    """Hot routes and upgrades of all doors."""

    def __init__(self) -> None:
        self._paths: dict[str, HotPath] = {}
        self.raw: dict[bytes, HotPath] = {}  # the same by undecoded path
        self.upgrades: dict[str, Upgrade] = {}
        self._admin: tuple[str, ...] = ()
        self._everywhere: tuple[str, ...] = ()
        self._bodies: dict[str, int] = {}

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        is_open: bool = False,
        is_admin: bool = False,
        max_body_bytes: int | None = None,
        is_stream: bool = False,
        waits_its_turn: bool = False,
        takes_away: bool = False,
        is_page: bool = False,
    ) -> None:
        """Add a hot route.

        Args:
            is_open: no credentials are needed.
            is_admin: served only on the admin port, if there is one.
            max_body_bytes: instead of the listener's own limit.
            is_stream: web pages follow its responses. Only allowed origins may, and since a browser sends no
                `Authorization` with such a request, `access_token` in the query replaces it.
            waits_its_turn: it begins only when its response could be sent at once, after all earlier
                responses of the connection.
            takes_away: a GET consumes what it returns. So HEAD is not offered, and only allowed origins may
                send it, as if it changed something.
            is_page: only for browsers, which prefer `text/html`, on every port; others get what the
                application has here.
        """
        hot = self._paths.setdefault(path, HotPath(path))
        hot.routes[method] = Route(
            handler, is_open, is_admin, max_body_bytes, is_stream, waits_its_turn, takes_away, is_page
        )
        self.raw[path.encode()] = hot

    @overload
    def upgrade(self, path: str, take: Take) -> None: ...

    @overload
    def upgrade(self, path: str, take: TakeKnown, *, needs_identity: Literal[True]) -> None: ...

    def upgrade(self, path: str, take: Take | TakeKnown, *, needs_identity: bool = False) -> None:
        """Hand over the connections that ask for a WebSocket at a path.

        Args:
            needs_identity: the listener authenticates them first, as every request, and passes the identity;
                `access_token` in the query may replace `Authorization`.
        """
        known = cast("TakeKnown", take) if needs_identity else _without_identity(cast("Take", take))
        self.upgrades[path] = Upgrade(known, needs_identity)

    def admin(self, *prefixes: str) -> None:
        """Serve these paths of the application, and all below, on the admin port."""
        self._admin += prefixes

    def everywhere(self, *prefixes: str) -> None:
        """Serve these paths, and all below, on every port, the admin port included."""
        self._everywhere += prefixes

    def bodies(self, prefix: str, max_body_bytes: int) -> None:
        """Set the body limit of a path of the application, and all below."""
        self._bodies[prefix] = max_body_bytes

    def find(self, path: str) -> HotPath | None:
        """Return the hot routes of a path."""
        return self._paths.get(path)

    def is_admin(self, path: str) -> bool:
        """True if a path of the application belongs on the admin port."""
        return any(is_below(path, prefix) for prefix in self._admin)

    def is_everywhere(self, path: str) -> bool:
        """True if a path is served on every port."""
        return any(is_below(path, prefix) for prefix in self._everywhere)

    def body_limit(self, path: str) -> int | None:
        """Return the body limit of a path of the application, if it has one."""
        limits = [limit for prefix, limit in self._bodies.items() if is_below(path, prefix)]
        return max(limits, default=None)


def _without_identity(take: Take) -> TakeKnown:
    """Adapt a handler that authenticates by itself."""
    return lambda head, rest, transport, peer, _: take(head, rest, transport, peer)


def allow(methods: Iterable[str]) -> str:
    """Value of the `Allow` header; HEAD comes with GET."""
    found = set(methods)
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))


def is_below(path: str, prefix: str) -> bool:
    """True if a path is this prefix, or below it."""
    return path == prefix or path.startswith(f"{prefix}/")
