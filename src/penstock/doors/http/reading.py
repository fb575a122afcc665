"""Bytes in, requests out: what one connection sends, through the parser and under the limits for heads."""

from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from penstock.doors.http.bodies import Bodies, gather, too_large
from penstock.doors.http.heads import Heads, noted_in
from penstock.doors.http.requests import Refusal, Request
from penstock.doors.http.settings import HttpSettings
from penstock.doors.http.waiting import BODY, HIGH_WATER_BYTES

if TYPE_CHECKING:
    from penstock.doors.http.protocol import HttpConnection

PIECE_BYTES = 4 * 1024
"""What is parsed at once: so many requests may begin before anyone looks whether there is room for them."""
BODY_PIECE_BYTES = 16 * 1024
"""The same amid a body of known length, which holds no surprises; larger ones cost the allocator more."""
TURN_BYTES = 64 * 1024
"""What is parsed of one connection in one turn of the loop."""
HEAD_WORK = 8
"""What a request costs, in parts of bodies."""
NOBODY = HttpRequestParser(object())
"""The parser of every connection that is over."""


class RequestReader:
    """Tells its connection of heads, of bodies for the application, and of requests that are complete."""

    __slots__ = (
        "_bodies",
        "_connection",
        "_headers",
        "_heads",
        "_max_bytes",
        "_max_headers",
        "_max_target_bytes",
        "_parser",
        "_silent_bytes",
        "current",
        "is_amid",
        "target",
        "upgrading",
        "work",
    )

    def __init__(
        self, connection: "HttpConnection", heads: Heads, bodies: Bodies, settings: HttpSettings
    ) -> None:
        self._connection = connection
        self._heads = heads
        self._bodies = bodies
        self._max_target_bytes = settings.max_target_bytes
        self._max_bytes = settings.max_head_bytes
        self._max_headers = settings.max_headers
        self._parser = HttpRequestParser(self)
        self.target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._silent_bytes = 0  # read since a request or a part of a body began
        self.is_amid = False
        """Some of a request has come, and not all of it."""
        self.current: Request | None = None
        """Whose body is expected."""
        self.upgrading: Request | None = None
        """The last one: somebody else takes over from here on."""
        self.work = 0
        """What has been done, reckoned in parts of bodies."""

    def feed(self, data: memoryview) -> int:
        """Parse some bytes; tells how many were used, which are fewer only after a request to upgrade.

        Raises:
            Refusal: what came is not acceptable, and nothing behind it can be understood.
        """
        used = len(data)
        self._silent_bytes += used
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            used = int(upgrade.args[0])
            if self.upgrading is None:  # nobody here speaks that: it stays HTTP
                self._parser = HttpRequestParser(self)
        except HttpParserError as error:
            if isinstance(error.__context__, Exception):  # one of ours, from below
                raise error.__context__ from None
            raise Refusal(400, str(error)) from None
        if self._silent_bytes > self._max_bytes or len(self._headers) > self._max_headers:
            raise _too_large_a_head()
        return used

    @property
    def piece_bytes(self) -> int:
        """What may be parsed at once."""
        request = self.current
        if request is None:
            return PIECE_BYTES
        return max(PIECE_BYTES, min(request.length_bytes - request.received_bytes, BODY_PIECE_BYTES))

    def close(self) -> None:
        """Read no more, and let go of everything: the parser and the connection refer to us."""
        self._parser = NOBODY
        self.current = self.upgrading = None
        self.target, self._headers = b"", []
        del self._connection

    def head(self) -> bytes:
        """The head of the request, for whoever takes over."""
        lines = [b"%b: %b\r\n" % each for each in self._headers]
        return b"GET %b HTTP/1.1\r\n%b\r\n" % (self.target, b"".join(lines))

    def give_up(self) -> Request | None:
        """Wait no more for the rest of a request; answers the one whose head has come."""
        request, self.current = self.current, None
        self.is_amid = False
        return request

    # What the parser finds

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.target, self._headers = b"", []
        self._silent_bytes = 0
        self.is_amid = True

    def on_url(self, target: bytes) -> None:
        """A part of the target."""
        self.target += target
        if len(self.target) > self._max_target_bytes:
            raise Refusal(414, "the target of the request is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The end of a head."""
        self.work += HEAD_WORK
        parser, headers = self._parser, self._headers
        self._check_size(headers)
        noted = noted_in(headers)
        method, version = parser.get_method(), parser.get_http_version()
        request = self._heads.read(self._connection, method, version, self.target, headers, noted)
        request.keep_alive = parser.should_keep_alive()
        if parser.should_upgrade():
            if b"transfer-encoding" in noted or int(noted.get(b"content-length", b"0")):
                # The parser takes such a body for what comes after the upgrade.
                raise Refusal(400, "a request to upgrade has no body")
            if self._connection.is_free:
                request.upgrade = self._heads.find_upgrade(request, noted)
            if request.upgrade is not None:
                self.upgrading = request
                return
        if request.route is None:
            self._heads.ask_for_upgrade(request)
        self._headers = []  # what comes behind a body has no meaning here, and the same limits
        self.current = request
        self._connection.on_head(request)

    def _check_size(self, headers: list[tuple[bytes, bytes]]) -> None:
        if len(headers) > self._max_headers:
            raise _too_large_a_head()
        if self._silent_bytes or self._max_bytes < PIECE_BYTES:  # else all of it came in one piece
            size = len(self.target) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > self._max_bytes:
                raise _too_large_a_head()

    def on_body(self, data: bytes) -> None:
        """A part of a body."""
        request = self.current
        assert request is not None
        self._silent_bytes = 0
        self.work += 1
        request.wants_continue = False
        request.received_bytes += len(data)
        if request.received_bytes > request.limit_bytes:
            raise too_large(request.limit_bytes)
        if request.is_answered or request.is_gone or request.refusal is not None:
            return  # nobody wants it
        self._bodies.hold(request, len(data))
        if request.hosted is not None:
            request.hosted.take(data)
        elif not request.answered:
            gather(request.parts, data)
            if request.route is None and request.received_bytes > HIGH_WATER_BYTES:
                self._connection.shut(BODY)  # until the application takes it

    def on_message_complete(self) -> None:
        """The end of a request."""
        request, self.current = self.current, None
        self.is_amid = False
        if request is not None:
            request.is_received = True
            self._connection.on_request(request)


def _too_large_a_head() -> Refusal:
    return Refusal(431, "the head of the request is too large")
