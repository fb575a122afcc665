"""HTTP requests to one server: a connection that is kept, errors that can be understood.

It is synchronous and uses nothing but the standard library to talk. Requests wait for one another: one
connection has one request on its way. A connection that the server has closed meanwhile is noticed before
it is used; one that breaks in the middle of a request is opened again, once, if the request may be repeated.
"""

import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from selectors import EVENT_READ, DefaultSelector
from socket import gaierror
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from penstock.client.address import Address
from penstock.client.errors import ConnectionLost, ConnectionRefused, HttpRefused
from penstock.errors import BadCredentials, NotAuthorized

JSON = "application/json"
PROBLEM = "application/problem+json"

_CODES = {401: BadCredentials.code, 403: NotAuthorized.code}
"""What a status means by itself."""
_WHO = "is this the HTTP port of a Penstock server?"

Parameter = str | int | bool | datetime | Sequence[str] | None
Parameters = Mapping[str, Parameter]


class Answer(NamedTuple):
    """What the server said to a request, all of it."""

    status: int
    content_type: str
    body: bytes

    def value(self) -> dict[str, Any]:
        """The JSON object it is.

        Raises:
            ConnectionRefused: it is none.
        """
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise ConnectionRefused(f"the answer is no JSON object; {_WHO}") from None


class Problem(msgspec.Struct):
    """An error, as the server writes it; outside of `/api/v1` it says no more than `detail`."""

    detail: str
    code: str = ""
    retryable: bool = False
    errors: list[dict[str, Any]] = []


class AnswerOverdue(ConnectionLost):
    """The server is there, and did not answer in time: asking once more would not be quicker."""


class Requests:
    """Sends requests to one server and takes its answers."""

    def __init__(
        self,
        address: str,
        user: str | None = None,
        password: str | None = None,
        *,
        client_id: str = "",
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = Address.parse(address)
        self.timeout = timeout
        self._headers = _own_headers(user, password, client_id)
        self._tls = tls
        self._kept: HTTPConnection | None = None
        self._lock = Lock()

    def close(self) -> None:
        """Let go of the connection; the next request opens another one."""
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
    ) -> Answer:
        """Ask for something and wait for all of the answer.

        Args:
            may_repeat: doing it twice is the same as doing it once; default: whatever is no POST.
            allowed: statuses from 400 on that are answers, not errors, unless they come as a problem.

        Raises:
            ConnectionRefused: nobody answered, or somebody who does not speak HTTP.
            ConnectionLost: the connection broke, or the answer took too long.
            HttpRefused: the server said no.
        """
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": content_type})
        target = self._target(path, parameters)
        is_repeatable = method != "POST" if may_repeat is None else may_repeat
        with self._lock:
            answer = self._exchange(method, target, body, headers, is_repeatable)
        if answer.status >= 400 and (answer.status not in allowed or answer.content_type == PROBLEM):
            raise _refusal(answer, self.address)
        return answer

    def stream(
        self, path: str, parameters: Parameters, *, accept: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Ask for something that is read bit by bit; the connection is its own, and the caller closes it.

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
        pairs = [(name, text) for name, value in given.items() for text in _texts_of(value)]
        return self.address.path + path + (f"?{urlencode(pairs)}" if pairs else "")

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], may_repeat: bool
    ) -> Answer:
        connection = self._kept_one()
        is_new = connection is None
        try:
            return self._ask(connection or self._open(), method, target, body, headers)
        except AnswerOverdue:
            raise
        except ConnectionLost:
            if is_new or not may_repeat:
                raise
        return self._ask(self._open(), method, target, body, headers)

    def _ask(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> Answer:
        self._kept = connection
        try:
            return _read(self._begin(connection, method, target, body, headers))
        except BaseException:
            self._drop()  # whatever else comes on it belongs to no request any more
            raise

    def _begin(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> HTTPResponse:
        """Send a request and wait for the head of its answer."""
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have said why before it closed
                connection.request(method, target, body, self._headers | headers)
            return connection.getresponse()
        except TimeoutError:
            raise AnswerOverdue(f"no answer from {self.address} within {self.timeout:g} s") from None
        except RemoteDisconnected:
            raise ConnectionLost(
                f"{self.address} closed the connection without an answer; is this its HTTP port?"
            ) from None
        except HTTPException as error:
            raise ConnectionRefused(f"what {self.address} answers is not HTTP: {_words(error)}") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self.address} broke: {_words(error)}") from None

    def _kept_one(self) -> HTTPConnection | None:
        """The connection of the last request, unless the server has closed it."""
        if self._kept is not None and _has_ended(self._kept):
            self._drop()
        return self._kept

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _open(self) -> HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.scheme == "https":
            self._tls = self._tls or ssl.create_default_context()
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=self.timeout, context=self._tls)
        else:
            connection = HTTPConnection(host, port, timeout=self.timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise ConnectionRefused(f"no connection to {self.address}: {_why(error)}") from None
        return connection


def part_of(value: Mapping[str, Any], name: str) -> Any:
    """What an answer has to hold.

    Raises:
        ConnectionRefused: it does not.
    """
    try:
        return value[name]
    except KeyError:
        raise ConnectionRefused(f"there is no {name!r} in the answer; {_WHO}") from None


def time_text(when: datetime) -> str:
    """A time as the API takes it."""
    if when.tzinfo is None:
        raise ValueError("a time needs its time zone: datetime.now(UTC), not datetime.now()")
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _own_headers(user: str | None, password: str | None, client_id: str) -> dict[str, str]:
    """What every request says of who sends it."""
    headers = {"User-Agent": "penstock"}
    if client_id:
        headers["X-Client-Id"] = client_id
    if user is not None:
        if ":" in user:
            raise ValueError("a user name that goes over HTTP has no colon")
        proof = b64encode(f"{user}:{password or ''}".encode()).decode()
        headers["Authorization"] = f"Basic {proof}"
    return headers


def _texts_of(value: Parameter) -> list[str]:
    """A query parameter as it is written, once for each of its values."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, datetime):
        return [time_text(value)]
    return [str(value)] if isinstance(value, str | int) else list(value or ())


def _read(response: HTTPResponse) -> Answer:
    """All of an answer whose head is here."""
    content_type = response.headers.get_content_type()
    try:
        return Answer(response.status, content_type, response.read())
    except TimeoutError:
        raise AnswerOverdue("the answer began, and then nothing more came") from None
    except (HTTPException, OSError):
        raise ConnectionLost("the connection broke in the middle of the answer") from None


def _refusal(answer: Answer, address: Address) -> HttpRefused:
    """What an error says, whoever wrote it."""
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        text = answer.body[:200].decode(errors="replace").strip() or "no reason given"
        problem = Problem(f"{address} answered with {answer.status}: {text}")
    return HttpRefused(
        problem.detail,
        status=answer.status,
        code=problem.code or _CODES.get(answer.status, HttpRefused.code),
        retryable=problem.retryable,
        errors=problem.errors,
    )


def _has_ended(connection: HTTPConnection) -> bool:
    """Whether the other side closed it, or said something that nobody asked for."""
    if connection.sock is None:  # the last answer said so
        return True
    with DefaultSelector() as selector:
        selector.register(connection.sock, EVENT_READ)
        return bool(selector.select(0))


def _why(error: OSError) -> str:
    """Why no connection came about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason}): it may not speak https there"
    if isinstance(error, gaierror):
        return "there is no host of that name"
    return "nobody answered in time" if isinstance(error, TimeoutError) else _words(error)


def _words(error: Exception) -> str:
    """What the system says, without its numbers."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
