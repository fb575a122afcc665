"""Who answers what: the table of hot routes, which the listener calls itself, and of upgrades.

A hot route is a plain function that gets a request whose body is complete. Everything that is in no table is
for the application. Paths are compared percent-decoded, as the application compares them.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, cast, overload

from msgspec import Struct

from penstock.core.identity import Identity
from penstock.doors.base import Peer

if TYPE_CHECKING:
    from penstock.doors.http.requests import Request

OPEN_PATHS = frozenset({"/health", "/ready", "/livez"})
"""Whoever watches over a server asks for these, on every port and without credentials."""

Handler = Callable[["Request"], None]
Take = Callable[[bytes, bytes, asyncio.Transport, Peer], None]
"""Takes over a connection: the head of its request, what was read behind it, its transport, who it is."""
TakeKnown = Callable[[bytes, bytes, asyncio.Transport, Peer, Identity], None]
"""The same with who it has proven to be. The head may hold a token: it is not for the program's log."""


class Route(Struct, frozen=True):
    """One method of one path."""

    handler: Handler
    is_open: bool = False
    is_admin: bool = False
    max_body_bytes: int | None = None
    is_stream: bool = False
    waits_its_turn: bool = False
    takes_away: bool = False


class Upgrade(Struct, frozen=True):
    """Who takes over the connections that ask for a WebSocket at a path."""

    take: TakeKnown
    needs_identity: bool


class HotPath(Struct, frozen=True):
    """A path that the listener answers itself, at least for some methods."""

    path: str
    routes: dict[str, Route]

    def find(self, method: str) -> Route | None:
        """The route for a method; who answers GET mostly answers HEAD, and everybody tells the methods."""
        found = self.routes.get(method)
        if found is None and method == "HEAD" and self._takes_head:
            return self.routes.get("GET")
        return self._telling if found is None and method == "OPTIONS" else found

    @property
    def allowed(self) -> str:
        """The methods that are offered, as the header `Allow` has them."""
        return allow(self.routes) if self._takes_head else ", ".join(sorted(self.routes))

    @property
    def _takes_head(self) -> bool:
        return "GET" in self.routes and not self.routes["GET"].takes_away

    @property
    def _telling(self) -> Route:
        """Answers OPTIONS, to those whom some method here is for."""
        routes = self.routes.values()
        return Route(
            self._tell_methods,
            is_open=any(route.is_open for route in routes),
            is_admin=all(route.is_admin for route in routes),
            max_body_bytes=0,
        )

    def _tell_methods(self, request: "Request") -> None:
        request.tell_methods(self.allowed)


class Routes:
    """Everything that doors have asked the listener to answer or to hand over."""

    def __init__(self) -> None:
        self._paths: dict[str, HotPath] = {}
        self.raw: dict[bytes, HotPath] = {}  # the same by the bytes that nearly everyone sends
        self.upgrades: dict[str, Upgrade] = {}
        self._admin: tuple[str, ...] = ()
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
    ) -> None:
        """Answer a method of a path by calling a function.

        Args:
            is_open: nobody is asked who they are.
            is_admin: it is served on the admin port, if there is one, and nowhere else.
            max_body_bytes: instead of the listener's own limit.
            is_stream: pages follow its answers. Only those that are welcome may, and since a browser sends no
                `Authorization` with such a request, `access_token` in the query stands for it.
            waits_its_turn: it is not begun before its answer could leave at once, behind all answers to what
                was asked before on the same connection.
            takes_away: what a GET answers is nobody else's any more. So it is not asked for the head alone,
                and only pages that are welcome may ask, as if it changed something.
        """
        hot = self._paths.setdefault(path, HotPath(path, {}))
        hot.routes[method] = Route(
            handler, is_open, is_admin, max_body_bytes, is_stream, waits_its_turn, takes_away
        )
        self.raw[path.encode()] = hot

    @overload
    def upgrade(self, path: str, take: Take) -> None: ...

    @overload
    def upgrade(self, path: str, take: TakeKnown, *, needs_identity: Literal[True]) -> None: ...

    def upgrade(self, path: str, take: Take | TakeKnown, *, needs_identity: bool = False) -> None:
        """Hand over the connections that ask for a WebSocket at a path.

        Args:
            needs_identity: the listener finds out who they are, as for every request, and hands that over
                too; `access_token` in the query may stand for `Authorization`.
        """
        known = cast("TakeKnown", take) if needs_identity else _without_identity(cast("Take", take))
        self.upgrades[path] = Upgrade(known, needs_identity)

    def admin(self, *prefixes: str) -> None:
        """Whatever the application has at these paths and below them belongs on the admin port."""
        self._admin += prefixes

    def bodies(self, prefix: str, max_body_bytes: int) -> None:
        """Whatever the application has at a path and below it takes bodies of this size."""
        self._bodies[prefix] = max_body_bytes

    def find(self, path: str) -> HotPath | None:
        """The hot routes of a path."""
        return self._paths.get(path)

    def is_admin(self, path: str) -> bool:
        """Whether the application's answer at this path belongs on the admin port."""
        return any(is_below(path, prefix) for prefix in self._admin)

    def body_limit(self, path: str) -> int | None:
        """What the application takes at this path, if it said so."""
        limits = [limit for prefix, limit in self._bodies.items() if is_below(path, prefix)]
        return max(limits, default=None)


def _without_identity(take: Take) -> TakeKnown:
    """Hand over to somebody who asks by itself who they are."""
    return lambda head, rest, transport, peer, _: take(head, rest, transport, peer)


def allow(methods: Iterable[str]) -> str:
    """Methods as the header `Allow` has them; whoever takes GET takes HEAD."""
    found = set(methods)
    return ", ".join(sorted(found | {"HEAD"} if "GET" in found else found))


def is_below(path: str, prefix: str) -> bool:
    """Whether a path is this one, or continues it."""
    return path == prefix or path.startswith(f"{prefix}/")
