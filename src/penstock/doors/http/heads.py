"""What one port asks of the head of a request, before anything is done for it.

The parser has seen to the grammar: line ends, tokens, `Content-Length` against `Transfer-Encoding`. Here is
the rest of what could be read in two ways, and everything that is a matter of who asks from where. What
leaves open where the next request begins ends the connection; after all else the connection lives on.
"""

from base64 import b64decode
from enum import Enum, auto
from typing import TYPE_CHECKING

from penstock.doors.http.bodies import too_large
from penstock.doors.http.credentials import authorization_in
from penstock.doors.http.requests import Refusal, Request
from penstock.doors.http.routes import OPEN_PATHS, HotPath, Routes, Upgrade
from penstock.doors.http.settings import HttpSettings
from penstock.doors.http.targets import EVERYTHING, Target, parse_target
from penstock.doors.origins import Origins, preflight_headers
from penstock.errors import InvalidRequest, NotAuthorized

if TYPE_CHECKING:
    from penstock.doors.http.protocol import HttpConnection

METHODS = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
}
SAFE = frozenset({"GET", "HEAD"})
NOTED = frozenset(
    {
        b"authorization",
        b"content-length",
        b"expect",
        b"host",
        b"origin",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"transfer-encoding",
        b"upgrade",
        b"x-client-id",
    }
)
"""Headers that decide something here, and so may be given once."""
EVENT_STREAM = "text/event-stream"
MAX_CLIENT_ID_BYTES = 256
WEBSOCKET = ("Upgrade", "websocket")
WEBSOCKET_VERSION = b"13"
WEBSOCKET_KEY_BYTES = 16

Noted = dict[bytes, bytes]


class Port(Enum):
    """What a port is for."""

    ALL = auto()
    MAIN = auto()
    """Everything but what belongs on the admin port."""
    ADMIN = auto()

    def serves(self, path: str, *, is_admin: bool) -> bool:
        """Whether a path is answered here."""
        return self is Port.ALL or path in OPEN_PATHS or is_admin is (self is Port.ADMIN)


class Heads:
    """Makes requests out of heads, at one port."""

    def __init__(self, settings: HttpSettings, routes: Routes, origins: Origins, port: Port) -> None:
        self._routes = routes
        self._origins = origins
        self._port = port
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
        """The request that a head makes; what speaks against answering it is in its `refusal`.

        Raises:
            Refusal: it is none, and the connection ends.
        """
        name = METHODS.get(method)
        if name is None:
            raise Refusal(501, f"there is no method {method.decode('latin-1')} here")
        if version not in ("1.1", "1.0"):
            raise Refusal(505, "HTTP/1.1 is spoken here")
        raw_path, _, query = target.partition(b"?")
        hot, host = self._routes.raw.get(raw_path), noted.get(b"host")
        if hot is not None:
            request = Request(connection, name, hot.path, raw_path, query)
        else:
            parsed = _parsed(target, name)
            host = host if parsed.host is None else parsed.host
            hot = self._routes.find(parsed.path)
            request = Request(connection, name, parsed.path, parsed.raw_path, parsed.query)
        request.headers = headers
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
        return request

    def find_upgrade(self, request: Request, noted: Noted) -> Upgrade | None:
        """Who takes this connection over; None if it stays with us."""
        if request.method != "GET" or noted.get(b"upgrade", b"").lower() != b"websocket":
            return None
        upgrade = self._routes.upgrades.get(request.path)
        if upgrade is None or not self._port.serves(request.path, is_admin=False):
            return None
        if upgrade.needs_identity:
            _accept_token(request)
        request.refusal = request.refusal or _flaw_of_handshake(request, noted)
        return upgrade if request.refusal is None else None

    def ask_for_upgrade(self, request: Request) -> None:
        """Refuse a request that stays with us, at a path where there is nothing but WebSockets."""
        is_theirs = request.path in self._routes.upgrades and not request.allowed
        if is_theirs and request.method in SAFE and request.refusal is None:
            request.refusal = _upgrade_required("there is a WebSocket here: ask for an upgrade to it, alone")

    # One thing after the other

    def _check_host(self, host: bytes) -> None:
        text = host.decode("latin-1").strip()
        if not self._origins.is_ours(text):
            detail = f"Host {text!r} is no name of this server: see websocket.hosts"
            raise Refusal(421, detail, code="misdirected", is_fatal=False)

    def _check_origin(self, request: Request, noted: Noted, host: bytes, hot: HotPath | None) -> None:
        """Let no page do, or follow, what it may not; one that may read gets the headers that say so."""
        origin = noted[b"origin"].decode("latin-1").strip()
        if self._origins.may_read(origin):
            request.reader = origin
        if request.method == "OPTIONS" and request.header(b"access-control-request-method") is not None:
            self._answer_preflight(request, origin)
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

    def _answer_preflight(self, request: Request, origin: str) -> None:
        if request.reader is None:
            detail = f"Origin {origin!r} may not call this server: see http.cors_origins"
            raise Refusal(403, detail, code=NotAuthorized.code, is_fatal=False)
        request.reader = None  # its headers are among these
        wanted = request.header(b"access-control-request-headers")
        raise Refusal(204, "", headers=preflight_headers(origin, wanted), is_fatal=False)

    def _find(self, request: Request, hot: HotPath | None, target: bytes) -> None:
        """Who answers, and under which terms."""
        route = None if hot is None else hot.find(request.method)
        if route is None:
            self._find_in_app(request, hot, target)
            return
        request.route = route
        request.is_proven = route.is_open
        if route.max_body_bytes is not None:
            request.limit_bytes = route.max_body_bytes
        if self._port is not Port.ALL:
            self._check_port(request.path, is_admin=route.is_admin)

    def _find_in_app(self, request: Request, hot: HotPath | None, target: bytes) -> None:
        path = request.path
        if target == EVERYTHING:
            raise Refusal(204, "", headers=[("Allow", ", ".join(METHODS.values()))], is_fatal=False)
        self._check_port(path, is_admin=self._routes.is_admin(path))
        request.is_proven = path in OPEN_PATHS
        if request.is_proven:
            request.limit_bytes = 0  # nothing there takes one, and anybody may ask
        elif (limit := self._routes.body_limit(path)) is not None:
            request.limit_bytes = limit
        if hot is not None:
            request.allowed = hot.allowed

    def _check_port(self, path: str, *, is_admin: bool) -> None:
        if not self._port.serves(path, is_admin=is_admin):
            raise Refusal(404, "Not Found", code="not-found", is_fatal=False)


def noted_in(headers: list[tuple[bytes, bytes]]) -> Noted:
    """The headers that decide something here.

    Raises:
        Refusal: one of them is given twice.
    """
    noted: Noted = {}
    for name, value in headers:
        if name in NOTED:
            if name in noted:
                raise Refusal(400, f"{name.decode().title()} is given twice")
            noted[name] = value
    return noted


def _flaw_of_handshake(request: Request, noted: Noted) -> Refusal | None:
    """Why a request cannot become a WebSocket (RFC 6455, 4.2.1), said in the form of all refusals here."""
    if request.version == "1.0":
        return _upgrade_required("a WebSocket begins with HTTP/1.1")
    if noted.get(b"sec-websocket-version") != WEBSOCKET_VERSION:
        version = WEBSOCKET_VERSION.decode()
        told = ("Sec-WebSocket-Version", version)
        return _upgrade_required(f"version {version} of WebSocket is spoken here", told)
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
    """Let the query say who asks, where there is no header that does."""
    if request.authorization is not None:
        return
    try:
        request.authorization = authorization_in(request.query)
    except InvalidRequest as error:
        request.refusal = request.refusal or Refusal(400, str(error), is_fatal=False)


def _frame(request: Request, noted: Noted) -> None:
    """Be sure of where the body ends, and whether it comes by itself."""
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
