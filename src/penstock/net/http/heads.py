"""Request heads at one port: target, framing, Host, Origin, route, upgrade.

The parser has checked the grammar: line ends, tokens, `Content-Length` against `Transfer-Encoding`. Here are
the other ambiguities, and everything that depends on Host and Origin. A head that leaves open where the next
request begins ends the connection; after any other refusal it stays open.

Paths are percent-decoded once, and the decoded path decides everything: the route, the access check, what
the application sees. So an escaped slash is a slash everywhere: `a%2Fb` names the topic `a/b`, and no
spelling of a path bypasses a check. Nothing is normalized: `//` has an empty level, as topics may. A
segment `..`, control characters, invalid escapes and text that is not UTF-8 are refused.
"""

import re
from base64 import b64decode
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.errors import InvalidRequest, NotAuthorized, UnsupportedMedia
from penstock.net.http.auth import authorization_in, is_from_console, token_in
from penstock.net.http.request import Refusal, Request, too_large
from penstock.net.http.response import preferred
from penstock.net.http.routes import OPEN_PATHS, HotPath, Routes, Upgrade
from penstock.net.http.settings import HttpSettings
from penstock.net.origins import Origins, is_same_place, preflight_headers

if TYPE_CHECKING:
    from penstock.net.http.connection import HttpConnection


ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE)
ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
EVERYTHING = b"*"
METHODS = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
}
SAFE = frozenset({"GET", "HEAD"})
NOTED = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"cookie",
        b"expect",
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"transfer-encoding",
        b"upgrade",
        b"x-client-id",
    }
)
"""Headers that decide something here, and so may be given only once."""
EVENT_STREAM = "text/event-stream"
HTML, JSON, XHTML = "text/html", "application/json", "application/xhtml+xml"
OWN_SITES = frozenset({b"same-origin", b"none"})
"""Values of `Sec-Fetch-Site` for pages of this origin, and for what the user typed."""
FOREIGN_SITES = frozenset({b"cross-site", b"same-site"})
"""Values of `Sec-Fetch-Site` for pages of other origins."""
NO_CODING = frozenset({b"", b"identity"})
MAX_CLIENT_ID_BYTES = 256
WEBSOCKET = ("Upgrade", "websocket")
WEBSOCKET_VERSION = b"13"
WEBSOCKET_KEY_BYTES = 16
Noted = dict[bytes, bytes]


class Target(NamedTuple):
    """Parsed target of a request."""

    path: str
    raw_path: bytes
    query: bytes
    host: bytes | None = None
    """Host of an absolute target."""


def parse_target(target: bytes) -> Target:
    """Parse the target of a request.

    Raises:
        InvalidRequest: not a valid target.
    """
    host = None
    if not target.startswith(b"/"):
        found = ABSOLUTE.fullmatch(target)
        if found is None:
            raise InvalidRequest("the target of a request begins with a slash")
        host, target = found[1], found[2]
        target = target if target.startswith(b"/") else b"/" + target
    if b"#" in target:
        raise InvalidRequest("a target has no fragment; write %23 for #")
    raw_path, _, query = target.partition(b"?")
    return Target(decode_path(raw_path), raw_path, query, host)


def decode_path(raw_path: bytes) -> str:
    """Decode and check a path.

    Raises:
        InvalidRequest: not a valid path.
    """
    if ESCAPE.search(raw_path):
        raise InvalidRequest("the path has a % that begins no escape")
    try:
        path = (unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("the path is not UTF-8") from None
    if CONTROL.search(path):
        raise InvalidRequest("the path has a control character")
    if ".." in path and ".." in path.split("/"):
        raise InvalidRequest("the path has a segment '..'")
    return path


class Port(Enum):
    """Purpose of a port."""

    ALL = auto()
    MAIN = auto()
    """Everything but what belongs on the admin port."""
    ADMIN = auto()

    def serves(self, path: str, *, is_admin: bool) -> bool:
        """True if a path is served at this port."""
        return self is Port.ALL or path in OPEN_PATHS or is_admin is (self is Port.ADMIN)


class Heads:
    """Makes requests of heads, at one port.

    Args:
        on_unreadable: notified of requests whose responses the browser keeps from the page of an origin.
        cookie: name of the login cookie; empty if there are no logins.
    """

    def __init__(
        self,
        settings: HttpSettings,
        routes: Routes,
        origins: Origins,
        port: Port,
        on_unreadable: Callable[[Request, str], None],
        cookie: bytes = b"",
    ) -> None:
        self._on_unreadable = on_unreadable
        self._routes = routes
        self._origins = origins
        self._port = port
        self._is_for_all = port is Port.ALL
        self._cookie = cookie
        self.max_body_bytes = settings.max_body_bytes

    def read(
        self,
        connection: "HttpConnection",
        method: bytes,
        version: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        noted: Noted,
    ) -> Request:
        """Make a request of a head; `refusal` is set if it is not accepted.

        Raises:
            Refusal: not a valid request, and the connection has to end.
        """
        name = METHODS.get(method)
        if name is None:
            raise Refusal(501, f"there is no method {method.decode('latin-1')} here")
        if version not in ("1.1", "1.0"):
            raise Refusal(505, "only HTTP/1.1 and HTTP/1.0 are supported")
        raw_path, _, query = target.partition(b"?")
        hot, host = self._routes.raw.get(raw_path), noted.get(b"host")
        if hot is not None:
            path = hot.path
        else:
            parsed = _parsed(target, name)
            host = host if parsed.host is None else parsed.host
            path, raw_path, query = parsed.path, parsed.raw_path, parsed.query
            hot = self._routes.find(path)
        request = Request(connection, connection.peer, name, path, raw_path, query, headers)
        request.version = version
        request.limit_bytes = self.max_body_bytes
        if b"transfer-encoding" in noted or b"expect" in noted:
            _frame(request, noted)
        if version == "1.1" and b"host" not in noted:
            raise Refusal(400, "Host is missing")
        try:
            if host is not None and host != connection.known_host:
                self._check_host(host)
                connection.known_host = host
            if b"origin" in noted:
                self._check_origin(request, noted, host or b"", hot)
            elif b"sec-fetch-site" in noted:
                _check_site(request, noted[b"sec-fetch-site"])
            if b"content-encoding" in noted and name not in SAFE:
                _check_coding(noted[b"content-encoding"])
            self._find(request, hot, target)
            if b"content-length" in noted:
                request.length_bytes = int(noted[b"content-length"])
                if request.length_bytes > request.limit_bytes:
                    raise too_large(request.limit_bytes)  # before any of it is read
            if b"x-client-id" in noted:
                request.client_id = _client_id(noted[b"x-client-id"])
        except Refusal as refusal:
            if refusal.is_fatal:
                raise
            request.refusal = refusal.bare()
        request.authorization = noted.get(b"authorization")
        if request.route is not None and request.route.is_stream:
            _accept_token(request)
        if b"cookie" in noted and request.authorization is None and self._cookie:
            request.login = self._login_in(request, noted, host or b"")
        return request

    def find_upgrade(self, request: Request, noted: Noted) -> Upgrade | None:
        """Return the upgrade of this connection; None if it stays HTTP."""
        if request.method != "GET" or noted.get(b"upgrade", b"").lower() != b"websocket":
            return None
        upgrade = self._routes.upgrades.get(request.path)
        if upgrade is None or not self._is_served(request.path, is_admin=False):
            return None
        if upgrade.needs_identity:
            _accept_token(request)
            if request.authorization is not None:
                request.login = None
        request.refusal = request.refusal or _flaw_of_handshake(request, noted)
        return upgrade if request.refusal is None else None

    def ask_for_upgrade(self, request: Request) -> None:
        """Refuse a plain request to a path that only serves WebSockets."""
        is_theirs = request.path in self._routes.upgrades and not request.allowed
        if is_theirs and request.method in SAFE and request.refusal is None:
            request.refusal = _upgrade_required(
                "this path is a WebSocket: send an upgrade request, not pipelined"
            )

    # Checks

    def _check_host(self, host: bytes) -> None:
        text = host.decode("latin-1").strip()
        if not self._origins.is_ours(text):
            detail = f"Host {text!r} is not a name of this server: see websocket.hosts"
            raise Refusal(421, detail, code="misdirected", is_fatal=False)

    def _check_origin(self, request: Request, noted: Noted, host: bytes, hot: HotPath | None) -> None:
        """Refuse requests of pages that may not make them; set `reader` for CORS headers."""
        origin = noted[b"origin"].decode("latin-1").strip()
        if self._origins.may_read(origin):
            request.reader = origin
        if request.method == "OPTIONS" and request.header(b"access-control-request-method") is not None:
            self._respond_to_preflight(request, origin)
        route = None if hot is None else hot.find(request.method)
        is_checked = (
            request.method not in SAFE
            or b"upgrade" in noted
            or EVENT_STREAM in (request.header(b"accept") or "")
            or (route is not None and (route.is_stream or route.takes_away))
        )
        if is_checked and not self._origins.is_welcome(origin, host.decode("latin-1").strip()):
            detail = f"Origin {origin!r} is not allowed: see websocket.origins"
            raise Refusal(403, detail, code=NotAuthorized.code, is_fatal=False)
        is_foreign = request.reader is None and b"upgrade" not in noted
        if is_foreign and not is_same_place(origin, host.decode("latin-1").strip()):
            self._on_unreadable(request, origin)

    def _respond_to_preflight(self, request: Request, origin: str) -> None:
        if request.reader is None:
            detail = f"Origin {origin!r} may not call this server: see http.cors_origins"
            raise Refusal(403, detail, code=NotAuthorized.code, is_fatal=False)
        request.reader = None  # its headers are among these
        wanted = request.header(b"access-control-request-headers")
        raise Refusal(204, "", headers=preflight_headers(origin, wanted), is_fatal=False)

    def _login_in(self, request: Request, noted: Noted, host: bytes) -> bytes | None:
        """Return the token of the login cookie, if the request is one of our own pages.

        A browser sends a cookie with every request to this host, also with those of pages at other ports,
        which are other origins. `SameSite` does not tell ports apart, so this does. Without Sec-Fetch-Site,
        which browsers send to trustworthy addresses only, a request that changes something needs a header
        that no other origin can send, or an `Origin` of this host and port.
        """
        token = token_in(noted[b"cookie"], self._cookie)
        if token is None:
            return None
        route = request.route
        is_harmless = (
            request.method in SAFE
            and b"upgrade" not in noted
            and not (route is not None and route.takes_away)
        )
        site, origin = noted.get(b"sec-fetch-site"), noted.get(b"origin")
        if site is not None:
            site = site.strip().lower()
            is_own = site in OWN_SITES if is_harmless else site == b"same-origin"
        elif origin is not None:
            is_own = is_same_place(origin.decode("latin-1").strip(), host.decode("latin-1").strip())
        else:
            is_own = is_harmless or is_from_console(request)
        return token if is_own else None

    def _find(self, request: Request, hot: HotPath | None, target: bytes) -> None:
        """Find the route of a request, and apply its limits."""
        route = None if hot is None else hot.find(request.method)
        if route is not None and route.is_page and not _prefers_page(request):
            route = None
        if route is None:
            self._find_in_app(request, hot, target)
            return
        request.route = route
        request.is_proven = route.is_open
        if route.max_body_bytes is not None:
            request.limit_bytes = route.max_body_bytes
        if not self._is_for_all:
            if not route.is_page:
                self._check_port(request.path, is_admin=route.is_admin)
            request.has_admin = self._port is Port.ADMIN

    def _find_in_app(self, request: Request, hot: HotPath | None, target: bytes) -> None:
        path = request.path
        if target == EVERYTHING:
            raise Refusal(204, "", headers=[("Allow", ", ".join(METHODS.values()))], is_fatal=False)
        self._check_port(path, is_admin=self._routes.is_admin(path))
        request.is_proven = path in OPEN_PATHS
        if request.is_proven:
            request.limit_bytes = 0  # no such path needs a body, and it is open to all
        elif (limit := self._routes.body_limit(path)) is not None:
            request.limit_bytes = limit
        if hot is not None:
            request.allowed = hot.allowed

    def _is_served(self, path: str, *, is_admin: bool) -> bool:
        return self._port.serves(path, is_admin=is_admin) or self._routes.is_everywhere(path)

    def _check_port(self, path: str, *, is_admin: bool) -> None:
        if not self._is_served(path, is_admin=is_admin):
            raise Refusal(404, "Not Found", code="not-found", is_fatal=False)


def noted_in(headers: list[tuple[bytes, bytes]]) -> Noted:
    """Return the headers that decide something here.

    Raises:
        Refusal: one of them is given twice.
    """
    noted: Noted = {}
    for name, value in headers:
        if name in NOTED:
            if name in noted:
                if name == b"cookie":  # HTTP/2 has it in parts, and a proxy may leave them apart
                    noted[name] += b"; " + value
                    continue
                raise Refusal(400, f"{name.decode().title()} is given twice")
            noted[name] = value
    return noted


def _prefers_page(request: Request) -> bool:
    """True if a client prefers HTML to JSON. One that takes anything, or does not say, is a program.

    Browsers take anything, too, but name XHTML. The default of Java's oldest HTTP client prefers HTML.
    """
    accept = request.header(b"accept")
    if accept is None or preferred(accept, (JSON, HTML)) != HTML:
        return False
    accept = accept.lower()
    return XHTML in accept or (HTML in accept and "*" not in accept)


def _check_site(request: Request, site: bytes) -> None:
    """Refuse a change that a page of another site asks for without an `Origin`.

    Current browsers send one with every such request, but for some that are no scripts' doing.
    """
    if request.method not in SAFE and site.strip().lower() in FOREIGN_SITES:
        detail = "a page of another site may change nothing here: see websocket.origins"
        raise Refusal(403, detail, code=NotAuthorized.code, is_fatal=False)


def _check_coding(coding: bytes) -> None:
    """Refuse an encoded body, which would be stored as it came (RFC 9110, 15.5.16)."""
    if coding.strip().lower() not in NO_CODING:
        raise Refusal(
            415,
            "send the body as it is, without Content-Encoding",
            code=UnsupportedMedia.code,
            headers=[("Accept-Encoding", "identity")],
            is_fatal=False,
        )


def _flaw_of_handshake(request: Request, noted: Noted) -> Refusal | None:
    """Return the refusal of an invalid WebSocket handshake (RFC 6455, 4.2.1); None if it is valid."""
    if request.version == "1.0":
        return _upgrade_required("a WebSocket begins with HTTP/1.1")
    if noted.get(b"sec-websocket-version") != WEBSOCKET_VERSION:
        version = WEBSOCKET_VERSION.decode()
        header = ("Sec-WebSocket-Version", version)
        return _upgrade_required(f"version {version} of WebSocket is required", header)
    try:
        key = b64decode(noted.get(b"sec-websocket-key", b""), validate=True)
    except ValueError:
        key = b""
    if len(key) != WEBSOCKET_KEY_BYTES:
        return Refusal(400, "Sec-WebSocket-Key is 16 bytes in base64", is_fatal=False)
    return None


def _upgrade_required(detail: str, *headers: tuple[str, str]) -> Refusal:
    return Refusal(426, detail, code="upgrade-required", headers=[WEBSOCKET, *headers], is_fatal=False)


def _accept_token(request: Request) -> None:
    """Take the token in the query where there is no `Authorization`."""
    if request.authorization is not None:
        return
    try:
        request.authorization = authorization_in(request.query)
    except InvalidRequest as error:
        request.refusal = request.refusal or Refusal(400, str(error), is_fatal=False)


def _frame(request: Request, noted: Noted) -> None:
    """Check the framing of the body, and `Expect`."""
    encoding = noted.get(b"transfer-encoding")
    if encoding is not None:
        if request.version == "1.0":
            raise Refusal(400, "HTTP/1.0 knows no Transfer-Encoding")
        if encoding.strip().lower() != b"chunked":
            raise Refusal(501, "the only Transfer-Encoding here is chunked")
    expected = noted.get(b"expect")
    if expected is not None and request.version == "1.1":
        if expected.strip().lower() != b"100-continue":
            raise Refusal(417, "the only thing to expect here is 100-continue")
        length = noted.get(b"content-length", b"0")
        request.wants_continue = encoding is not None or int(length) > 0


def _parsed(target: bytes, method: str) -> Target:
    if target == EVERYTHING and method == "OPTIONS":
        return Target("*", EVERYTHING, b"")
    try:
        return parse_target(target)
    except InvalidRequest as error:
        raise Refusal(400, str(error)) from None


def _client_id(value: bytes) -> str:
    try:
        text = value.strip().decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(value) > MAX_CLIENT_ID_BYTES:
        raise Refusal(400, f"X-Client-Id is UTF-8 of 1 to {MAX_CLIENT_ID_BYTES} bytes", is_fatal=False)
    return text
