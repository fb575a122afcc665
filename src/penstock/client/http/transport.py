"""HTTP transport: one persistent connection to a server, with errors of the catalogue.

Blocking, and based on the standard library only. One request is in flight at a time; others wait. A
connection that the server has closed is replaced before its next use. A connection that breaks during a
request is replaced once, if the request is idempotent.
"""

import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from selectors import EVENT_READ, DefaultSelector
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from penstock.client.address import Address
from penstock.client.errors import ConnectionLost, ConnectionRefused, HttpRefused, describe_connect_error
from penstock.client.tls import TlsOption, make_ssl_context
from penstock.errors import BadCredentials, NotAuthorized

JSON = "application/json"
PROBLEM = "application/problem+json"

_CODES = {401: BadCredentials.code, 403: NotAuthorized.code}
"""Codes of statuses whose response has none."""
_HINT = "is this the HTTP port of a Penstock server?"

Parameter = str | int | bool | datetime | Sequence[str] | None
Parameters = Mapping[str, Parameter]
T = TypeVar("T")


class Response(NamedTuple):
    """Complete response to a request."""

    status: int
    content_type: str
    body: bytes

    def value(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            ConnectionRefused: the body is not a JSON object.
        """
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise ConnectionRefused(f"the response is not a JSON object; {_HINT}") from None


class Problem(msgspec.Struct):
    """Error body of a response; outside of `/api/v1` it has only `detail`."""

    detail: str
    code: str = ""
    retryable: bool = False
    errors: list[dict[str, Any]] = []


class ResponseTimeout(ConnectionLost):
    """The server is connected, but did not respond in time; a retry would not be faster."""


class Transport:
    """Sends requests to one server and returns its responses."""

    def __init__(
        self,
        address: str,
        user: str | None = None,
        password: str | None = None,
        *,
        client_id: str = "",
        timeout: float = 30.0,
        tls: ssl.SSLContext | TlsOption = None,
    ) -> None:
        self.address = Address.parse(address)
        self.timeout = timeout
        self._headers = _common_headers(user, password, client_id)
        self._tls = tls
        self._context: ssl.SSLContext | None = None  # of the first connection
        self._connection: HTTPConnection | None = None
        self._lock = Lock()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        with self._lock:
            self._drop()

    def send(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        may_repeat: bool | None = None,
        allowed: tuple[int, ...] = (),
    ) -> Response:
        """Send a request and wait for the complete response.

        Args:
            may_repeat: the request is idempotent; default: every method but POST.
            allowed: error statuses to return instead of raising, unless the body is a problem.

        Raises:
            ConnectionRefused: no connection, or the response is not HTTP.
            ConnectionLost: the connection broke, or the response took too long.
            HttpRefused: the server refused the request.
        """
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": content_type})
        target = self._target(path, parameters)
        is_idempotent = method != "POST" if may_repeat is None else may_repeat
        with self._lock:
            response = self._exchange(method, target, body, headers, is_idempotent)
        if response.status >= 400 and (response.status not in allowed or response.content_type == PROBLEM):
            raise _refusal(response, self.address)
        return response

    def stream(
        self, path: str, parameters: Parameters, *, accept: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a GET on a connection of its own, which the caller reads and closes.

        Raises:
            ConnectionRefused, ConnectionLost, HttpRefused: as for `send`.
        """
        connection = self._open()
        try:
            response = self._begin(
                connection, "GET", self._target(path, parameters), None, {"Accept": accept}
            )
            if response.status >= 400:
                raise _refusal(_read(response), self.address)
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _target(self, path: str, parameters: Parameters | None) -> str:
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        pairs = [(name, text) for name, value in given.items() for text in _format_parameter(value)]
        return self.address.path + path + (f"?{urlencode(pairs)}" if pairs else "")

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], is_idempotent: bool
    ) -> Response:
        connection = self._open_connection()
        is_new = connection is None
        try:
            return self._request(connection or self._open(), method, target, body, headers)
        except ResponseTimeout:
            raise
        except ConnectionLost:
            if is_new or not is_idempotent:
                raise
        return self._request(self._open(), method, target, body, headers)

    def _request(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> Response:
        self._connection = connection
        try:
            return _read(self._begin(connection, method, target, body, headers))
        except BaseException:
            self._drop()  # a late response must not be taken for that of the next request
            raise

    def _begin(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> HTTPResponse:
        """Send a request and wait for the head of the response."""
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # there may be a response nevertheless
                connection.request(method, target, body, self._headers | headers)
            return connection.getresponse()
        except TimeoutError:
            raise ResponseTimeout(f"no response from {self.address} within {self.timeout:g} s") from None
        except RemoteDisconnected:
            raise ConnectionLost(
                f"{self.address} closed the connection without a response; is this its HTTP port?"
            ) from None
        except HTTPException as error:
            raise ConnectionRefused(f"not an HTTP response from {self.address}: {_text_of(error)}") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self.address} broke: {_text_of(error)}") from None

    def _open_connection(self) -> HTTPConnection | None:
        """The connection of the last request, unless the server has closed it."""
        if self._connection is not None and _is_closed(self._connection):
            self._drop()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.scheme == "https":
            if self._context is None:
                self._context = make_ssl_context(self._tls) or ssl.create_default_context()
            connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=self.timeout, context=self._context
            )
        else:
            connection = HTTPConnection(host, port, timeout=self.timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise ConnectionRefused(f"no connection to {self.address}: {_connect_cause(error)}") from None
        return connection


def decode_body(body: bytes, kind: type[T]) -> T:
    """Decode the body of a response.

    Raises:
        ConnectionRefused: the body has another form.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ConnectionRefused(f"not a response of a Penstock server: {error}") from None


def require_key(value: Mapping[str, Any], name: str) -> Any:
    """A value that a response has to contain.

    Raises:
        ConnectionRefused: the response does not contain it.
    """
    try:
        return value[name]
    except KeyError:
        raise ConnectionRefused(f"the response has no {name!r}; {_HINT}") from None


def format_time(when: datetime) -> str:
    """A time as RFC 3339 text."""
    if when.tzinfo is None:
        raise ValueError("a time needs a time zone: use datetime.now(UTC), not datetime.now()")
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _common_headers(user: str | None, password: str | None, client_id: str) -> dict[str, str]:
    """Headers of every request."""
    headers = {"User-Agent": "penstock"}
    if client_id:
        headers["X-Client-Id"] = client_id
    if user is not None:
        if ":" in user:
            raise ValueError("a user name sent over HTTP must not contain a colon")
        token = b64encode(f"{user}:{password or ''}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    return headers


def _format_parameter(value: Parameter) -> list[str]:
    """Texts of a query parameter, one for each of its values."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, datetime):
        return [format_time(value)]
    return [str(value)] if isinstance(value, str | int) else list(value or ())


def _read(response: HTTPResponse) -> Response:
    """Read the body of a response."""
    content_type = response.headers.get_content_type()
    try:
        return Response(response.status, content_type, response.read())
    except TimeoutError:
        raise ResponseTimeout("the response was not completed in time") from None
    except (HTTPException, OSError):
        raise ConnectionLost("the connection broke in the middle of the response") from None


def _refusal(response: Response, address: Address) -> HttpRefused:
    """The error of a response, whether of a Penstock server or of a proxy."""
    try:
        problem = msgspec.json.decode(response.body, type=Problem)
    except msgspec.MsgspecError:
        text = response.body[:200].decode(errors="replace").strip() or "no reason given"
        problem = Problem(f"{address} responded with status {response.status}: {text}")
    return HttpRefused(
        problem.detail,
        status=response.status,
        code=problem.code or _CODES.get(response.status, HttpRefused.code),
        retryable=problem.retryable,
        errors=problem.errors,
    )


def _is_closed(connection: HTTPConnection) -> bool:
    """Return whether the server has closed the connection, or sent something without a request."""
    if connection.sock is None:  # announced by the last response
        return True
    with DefaultSelector() as selector:
        selector.register(connection.sock, EVENT_READ)
        return bool(selector.select(0))


def _connect_cause(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
        return f"{describe_connect_error(error)}; is this an HTTPS port?"
    if isinstance(error, TimeoutError):
        return "no response in time"
    return describe_connect_error(error) or _text_of(error)


def _text_of(error: Exception) -> str:
    """Text of the system, without its error number."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
