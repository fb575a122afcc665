"""HTTP request as a route gets it, with its body and responses, and the refusals of the listener."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from penstock.core.access.identity import Identity
from penstock.errors import InvalidRequest, PenstockError, ShuttingDown, TooLarge
from penstock.net.door import Peer
from penstock.net.http.errors import INTERNAL_DETAIL, JSON, headers_of, response_for, response_to, status_of
from penstock.net.http.response import Headers
from penstock.net.http.routes import Route, Upgrade
from penstock.net.http.streaming import ResponseStream
from penstock.net.transport import has_hung_up

if TYPE_CHECKING:
    from penstock.net.http.asgi import AsgiRequest
    from penstock.net.http.connection import HttpConnection

ANONYMOUS = Identity(None, "")
MAX_PARAMETERS = 1_000
HIGH_WATER_BYTES = 64 * 1024
"""Bytes of a body that may wait for the application before reading pauses."""
SMALL_BYTES = 1024
"""A part below this size is joined with the next: a list of tiny ones needs many times their bytes."""
BUSY_HEADERS = [("Retry-After", "1")]


class Refusal(Exception):
    """A request that the listener itself refuses, and the response to it.

    Args:
        is_fatal: the connection has to end: what follows cannot be parsed, or is not wanted.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str = "invalid-request",
        headers: Headers = (),
        is_fatal: bool = True,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.headers = headers
        self.is_fatal = is_fatal

    def bare(self) -> "Refusal":
        """Return itself without its traceback, which refers to the request that stores it."""
        self.__traceback__ = self.__context__ = None
        return self


def shutdown_refusal() -> Refusal:
    """Refusal of a request at shutdown."""
    error = ShuttingDown("Server is shutting down")
    return Refusal(status_of(error), str(error), code=error.code, headers=headers_of(error))


class Request:
    """One request. A hot route gets it with its complete body, and responds once, now or later."""

    # Defaults as class attributes: most of them hold for most requests.
    version = "1.1"
    body = b""
    identity = ANONYMOUS
    client_id = ""
    authorization: bytes | None = None
    login: bytes | None = None
    """Token of the login cookie, if that counts for this request."""
    has_admin = True
    """The port serves the admin paths."""
    is_proven = False
    """The identity is known, or not needed."""
    route: Route | None = None
    upgrade: Upgrade | None = None
    """The upgrade that takes the connection over after authentication."""
    asgi: "AsgiRequest | None" = None
    stream: ResponseStream | None = None
    """The rest of a streamed response."""
    allowed = ""
    """Methods of the hot routes at this path, if the request has another one."""
    reader: str | None = None
    """Origin of a page that may read the response."""
    refusal: Refusal | None = None
    keep_alive = True
    wants_continue = False
    limit_bytes = 0
    length_bytes = 0
    """Length of the body, if announced."""
    received_bytes = 0
    held_bytes = 0
    """Bytes of the body that count in the budget."""
    is_received = False
    has_response = False
    """The response has begun, if only in memory."""
    is_complete = False
    """The response is complete."""
    is_exclusive = False
    """Requests behind it do not begin: it is done in steps, and they come after it."""
    is_disconnected = False
    """The client has disconnected."""
    on_disconnect: Callable[[], None] | None = None
    """Called when the client disconnects before the response."""

    def __init__(
        self,
        connection: "HttpConnection | None",
        peer: Peer,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        self._connection = connection
        self.peer = peer
        self.method = method
        self.path = path
        self.raw_path = raw_path
        self.query = query
        self.headers = headers
        self.parts: list[bytes] = []  # of the body
        self.written: list[bytes] = []  # of the response, while earlier responses are not complete

    def header(self, name: bytes) -> str | None:
        """Return the value of a header; of several the first."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return None

    @property
    def is_encrypted(self) -> bool:
        """True if the client, or a page of it, uses TLS up to this server or to a proxy before it."""
        connection = self._connection
        return (connection is not None and connection.scheme == "https") or self._is_of_encrypted_page

    @property
    def _is_of_encrypted_page(self) -> bool:
        return (self.header(b"origin") or "").lower().startswith("https:")

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names and values of the query, in order.

        Raises:
            InvalidRequest: not UTF-8, or too many parameters.
        """
        try:
            return parse_qsl(
                self.query.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=MAX_PARAMETERS,
            )
        except ValueError:
            raise InvalidRequest("the query is not UTF-8, or has too many parameters") from None

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the query by name.

        Raises:
            InvalidRequest: a name is given twice, or not UTF-8.
        """
        found: dict[str, str] = {}
        for name, value in self.pairs():
            if name in found:
                raise InvalidRequest(f"the query has {name!r} twice")
            found[name] = value
        return found

    def respond(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Respond, once: ignored after the first response, and after the client has disconnected."""
        if not self.has_response and not self.is_disconnected and self._connection is not None:
            self._connection.pipeline.respond(self, status, body, content_type, headers)

    def begin(
        self, status: int = 200, headers: Sequence[tuple[str, str]] = (), *, content_type: str = JSON
    ) -> ResponseStream:
        """Begin a streamed response of unknown length.

        It is over at once for HEAD, after an earlier response, and if the client has disconnected.
        """
        if self.has_response or self.is_disconnected or self._connection is None:
            return ResponseStream(None, None)
        return self._connection.pipeline.begin_stream(self, status, content_type, headers)

    def share_connection(self) -> None:
        """Let the requests behind it begin: they cannot overtake it any more. Idempotent."""
        if self.is_exclusive:
            self.is_exclusive = False
            if self._connection is not None:
                self._connection.proceed()

    def has_hung_up(self) -> bool:
        """True if the client has disconnected, even if that was not read yet.

        It asks the system: for routes that must be sure right before they respond.
        """
        return self.is_disconnected or self._connection is None or has_hung_up(self._connection.transport)

    def abandon(self) -> None:
        """Close the connection without a response: the client has disconnected."""
        if not self.has_response and self._connection is not None:
            self._connection.end()

    def fail(self, error: PenstockError) -> None:
        """Respond with an error, in the form of this path."""
        status, body, content_type = response_to(error, self.path)
        self.respond(status, body, content_type=content_type, headers=headers_of(error))

    def fail_internally(self) -> None:
        """Respond with an internal error, without details."""
        status, body, content_type = response_for(500, INTERNAL_DETAIL, PenstockError.code, self.path)
        self.respond(status, body, content_type=content_type)

    def detach(self) -> None:
        """Drop all references, which would be cycles."""
        self._connection = self.asgi = self.stream = self.on_disconnect = None
        self.parts, self.written = [], []

    def respond_methods(self, allowed: str) -> None:
        """Respond to OPTIONS with the allowed methods."""
        self.respond(204, headers=[("Allow", f"{allowed}, OPTIONS")])

    def refuse_method(self, allowed: str) -> None:
        """Respond with 405 and the allowed methods."""
        detail = f"this path takes {allowed}"
        status, body, content_type = response_for(405, detail, "method-not-allowed", self.path)
        self.respond(status, body, content_type=content_type, headers=[("Allow", allowed)])


class HostedRequest(Request):
    """Request that came by way of the application, for a hot route: its response is given to a callback.

    It is for routes that respond whole: there is no connection to stream to, or to ask whether it is there.
    """

    def __init__(
        self,
        peer: Peer,
        scheme: str,
        method: str,
        path: str,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        on_response: Callable[[int, bytes, str, Headers], None],
    ) -> None:
        super().__init__(None, peer, method, path, b"", query, headers)
        self._scheme = scheme
        self._on_response = on_response

    @property
    def is_encrypted(self) -> bool:
        """True if the client, or a page of it, uses TLS up to the application's host."""
        return self._scheme == "https" or self._is_of_encrypted_page

    def respond(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Respond, once: ignored after the first response, and after the client has disconnected."""
        if not self.has_response and not self.is_disconnected:
            self._on_response(status, body, content_type, headers)
            self.has_response = True  # last: after an error in the callback another response is possible


def gather(parts: list[bytes], data: bytes) -> None:
    """Append one more part."""
    if parts and len(parts[-1]) < SMALL_BYTES:
        parts[-1] += data
    else:
        parts.append(data)


class BodyBudget:
    """Memory budget of all bodies at one listener, from their arrival to the end of their request.

    Beyond the budget a further body is refused with 503. A single body may be as large as its own limit.
    """

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def hold(self, request: Request, size: int) -> None:
        """Count received bytes of a body.

        Raises:
            Refusal: the budget is exceeded.
        """
        request.held_bytes += size
        self.held_bytes += size
        if self.held_bytes > self.limit_bytes and self.held_bytes > request.held_bytes:
            detail = "too many bodies are on their way; try again"
            raise Refusal(503, detail, code="too-busy", headers=BUSY_HEADERS)

    def release(self, request: Request) -> None:
        """Release the bytes of a request's body."""
        self.held_bytes -= request.held_bytes
        request.held_bytes = 0


def too_large(limit: int) -> Refusal:
    """Refusal of a body beyond its limit."""
    return Refusal(413, f"a body here may have {limit} bytes", code=TooLarge.code)
