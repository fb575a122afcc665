"""What a route gets: one request, and the way to answer it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from penstock.core.identity import Identity
from penstock.doors.base import Peer
from penstock.doors.http.outflow import Outflow
from penstock.doors.http.presence import has_hung_up
from penstock.doors.http.problems import INTERNAL_DETAIL, JSON, answer_for, answer_to, headers_of, status_of
from penstock.doors.http.responses import Headers
from penstock.doors.http.routes import Route, Upgrade
from penstock.errors import InvalidRequest, PenstockError, ShuttingDown

if TYPE_CHECKING:
    from penstock.doors.http.application import Hosted
    from penstock.doors.http.protocol import HttpConnection

STRANGER = Identity(None, "")
MAX_PARAMETERS = 1_000


class Refusal(Exception):
    """A request that the listener itself does not accept, and what it says to that.

    Args:
        is_fatal: what follows on the connection cannot be understood, or is not wanted.
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
        """Itself without the frames that raised it: they refer to the request that is to keep it."""
        self.__traceback__ = self.__context__ = None
        return self


def goodbye() -> Refusal:
    """What a request is told that comes when the server is about to stop."""
    error = ShuttingDown("Server is shutting down")
    return Refusal(status_of(error), str(error), code=error.code, headers=headers_of(error))


class Request:
    """One request. A hot route gets it with its body complete, and answers it once, now or later."""

    # What has not happened, or is not known: most of it for most requests.
    version = "1.1"
    body = b""
    identity = STRANGER
    client_id = ""
    authorization: bytes | None = None
    is_proven = False
    """It is known who asks, or does not matter."""
    route: Route | None = None
    upgrade: Upgrade | None = None
    """Who takes the connection over when it is known who asks."""
    hosted: "Hosted | None" = None
    outflow: Outflow | None = None
    """The rest of an answer that goes on."""
    allowed = ""
    """Methods that hot routes offer at this path, where this is none of them."""
    reader: str | None = None
    """The origin of a page that may read the answer."""
    refusal: Refusal | None = None
    keep_alive = True
    wants_continue = False
    limit_bytes = 0
    length_bytes = 0
    """What its body has, if it said so."""
    received_bytes = 0
    held_bytes = 0
    """What of the body is kept for somebody."""
    is_received = False
    answered = False
    """The answer has begun, if only in our hands."""
    is_answered = False
    """Its last byte has been given."""
    is_gone = False
    """The client hung up."""
    on_gone: Callable[[], None] | None = None
    """Called when the client hangs up before the answer."""

    def __init__(
        self, connection: "HttpConnection", method: str, path: str, raw_path: bytes, query: bytes
    ) -> None:
        self._connection: HttpConnection | None = connection
        self.method = method
        self.path = path
        self.raw_path = raw_path
        self.query = query
        self.peer: Peer = connection.peer
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []  # of the body
        self.written: list[bytes] = []  # of the answer, while answers to others are before it

    def header(self, name: bytes) -> str | None:
        """The value of a header; of several the first."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return None

    def pairs(self) -> list[tuple[str, str]]:
        """What the query says, in its order.

        Raises:
            InvalidRequest: something is not UTF-8, or there is too much of it.
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
        """The same where nothing is said twice.

        Raises:
            InvalidRequest: a name is given twice, or something is not UTF-8.
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
        """Answer, once: whatever comes after that, or after the client has gone, is ignored."""
        if not self.answered and not self.is_gone and self._connection is not None:
            self._connection.pipeline.respond(self, status, body, content_type, headers)

    def begin(
        self, status: int = 200, headers: Sequence[tuple[str, str]] = (), *, content_type: str = JSON
    ) -> Outflow:
        """Begin an answer that goes on until it is ended; its length is not known.

        It is over at once for a client that has gone, for one that asked for the head alone, and where an
        answer was given before.
        """
        if self.answered or self.is_gone or self._connection is None:
            return Outflow(None, None)
        return self._connection.pipeline.begin_flow(self, status, content_type, headers)

    def has_left(self) -> bool:
        """Whether the client has hung up, even if we have not read that yet.

        It asks the system: for whoever must be sure right before an answer is written.
        """
        return self.is_gone or self._connection is None or has_hung_up(self._connection.transport)

    def abandon(self) -> None:
        """Close the connection unanswered: nobody is there, whether we have read that or not."""
        if not self.answered and self._connection is not None:
            self._connection.end()

    def fail(self, error: PenstockError) -> None:
        """Answer with an error, in the form that callers of this path know."""
        status, body, content_type = answer_to(error, self.path)
        self.respond(status, body, content_type=content_type, headers=headers_of(error))

    def fail_internally(self) -> None:
        """Answer that something went wrong which is no business of the caller's."""
        status, body, content_type = answer_for(500, INTERNAL_DETAIL, PenstockError.code, self.path)
        self.respond(status, body, content_type=content_type)

    def let_go(self) -> None:
        """It is over: refer to nobody who might refer to it, for nobody looks for such circles in time."""
        self._connection = self.hosted = self.outflow = self.on_gone = None
        self.parts, self.written = [], []

    def tell_methods(self, allowed: str) -> None:
        """Answer which methods something takes, to whoever asks just that."""
        self.respond(204, headers=[("Allow", f"{allowed}, OPTIONS")])

    def refuse_method(self, allowed: str) -> None:
        """Answer that something is here, and which methods it takes."""
        detail = f"this path takes {allowed}"
        status, body, content_type = answer_for(405, detail, "method-not-allowed", self.path)
        self.respond(status, body, content_type=content_type, headers=[("Allow", allowed)])
