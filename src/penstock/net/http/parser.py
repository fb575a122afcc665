"""Request parser of one connection: bytes in, requests out, under the limits for heads."""

from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from penstock.net.http.heads import Heads, Noted, noted_in
from penstock.net.http.request import HIGH_WATER_BYTES, BodyBudget, Refusal, Request, gather, too_large
from penstock.net.http.settings import HttpSettings
from penstock.net.read_pause import BODY

if TYPE_CHECKING:
    from penstock.net.http.connection import HttpConnection

PIECE_BYTES = 4 * 1024
"""Bytes parsed at once; the pipeline limit is checked in between."""
BODY_PIECE_BYTES = 16 * 1024
"""The same within a body of known length; larger pieces cost the allocator more."""
TURN_BYTES = 64 * 1024
"""Bytes parsed for one connection in one turn of the loop."""
HEAD_WORK = 8
"""Cost of a head, in parts of bodies."""
CLOSED_PARSER = HttpRequestParser(object())
"""Null object: the parser of closed connections."""


class RequestReader:
    """Reports heads, parts of bodies and complete requests to its connection."""

    __slots__ = (
        "_bodies",
        "_connection",
        "_headers",
        "_heads",
        "_max_bytes",
        "_max_headers",
        "_max_target_bytes",
        "_parser",
        "_plain_head",
        "_silent_bytes",
        "current",
        "is_amid",
        "target",
        "upgrading",
        "work",
    )

    __deletable__ = ("_connection",)  # compiled classes say so

    def __init__(
        self, connection: "HttpConnection", heads: Heads, bodies: BodyBudget, settings: HttpSettings
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
        self._plain_head = b""  # of a request whose upgrade is ignored
        self._silent_bytes = 0  # read since a request or a part of a body began
        self.is_amid = False
        """A request was read in part."""
        self.current: Request | None = None
        """The request whose body is expected."""
        self.upgrading: Request | None = None
        """The request to upgrade: another protocol takes over after it."""
        self.work = 0
        """Work done, counted in parts of bodies."""

    def feed(self, data: memoryview) -> int:
        """Parse some bytes; return how many were used: all, except after a request to upgrade.

        Raises:
            Refusal: the input is invalid, and nothing behind it can be parsed.
        """
        self._silent_bytes += len(data)
        try:
            used = self._parse(data)
        except HttpParserError as error:
            if isinstance(error.__context__, Exception):  # raised in a callback below
                raise error.__context__ from None
            raise Refusal(400, str(error)) from None
        if self._silent_bytes > self._max_bytes or len(self._headers) > self._max_headers:
            raise _too_large_a_head()
        return used

    def _parse(self, data: memoryview) -> int:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            used = int(upgrade.args[0])
        else:
            return len(data)
        if self.upgrading is None:  # an unknown protocol: it stays HTTP
            self._parser = HttpRequestParser(self)
            if head := self._plain_head:
                self._plain_head = b""
                self._parser.feed_data(head)
        return used

    @property
    def piece_bytes(self) -> int:
        """Bytes to parse at once."""
        request = self.current
        if request is None:
            return PIECE_BYTES
        return max(PIECE_BYTES, min(request.length_bytes - request.received_bytes, BODY_PIECE_BYTES))

    def close(self) -> None:
        """Stop parsing, and drop all references, which would be cycles."""
        self._parser = CLOSED_PARSER
        self.current = self.upgrading = None
        self.target, self._headers = b"", []
        del self._connection

    def head(self) -> bytes:
        """The head of the request, for the protocol that takes over."""
        lines = [b"%b: %b\r\n" % each for each in self._headers]
        return b"GET %b HTTP/1.1\r\n%b\r\n" % (self.target, b"".join(lines))

    def give_up(self) -> Request | None:
        """Stop waiting for the rest of a request; return it if its head was read."""
        request, self.current = self.current, None
        self.is_amid = False
        return request

    # Callbacks of the parser

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
        has_body = b"transfer-encoding" in noted or noted.get(b"content-length", b"0") != b"0"
        wants_upgrade = parser.should_upgrade()
        if has_body and wants_upgrade:
            self._ignore_upgrade(noted)
            return
        method, version = parser.get_method(), parser.get_http_version()
        request = self._heads.read(self._connection, method, version, self.target, headers, noted)
        request.keep_alive = parser.should_keep_alive()
        if wants_upgrade:
            if self._connection.is_free:
                request.upgrade = self._heads.find_upgrade(request, noted)
            if request.upgrade is not None:
                self.upgrading = request
                return
        if request.route is None:
            self._heads.ask_for_upgrade(request)
        self._headers = []  # trailers are ignored, under the same limits
        self.current = request
        self._connection.on_head(request)

    def _ignore_upgrade(self, noted: Noted) -> None:
        """Keep the head without its upgrade, to be parsed again: the parser would skip the body.

        Java's client offers `h2c` with every first request.
        """
        method = self._parser.get_method()
        if method == b"CONNECT" or noted.get(b"upgrade", b"").lower() == b"websocket":
            raise Refusal(400, "CONNECT and a request to upgrade to a WebSocket have no body")
        lines = [b"%b: %b\r\n" % each for each in self._headers if each[0] != b"upgrade"]
        start = method, self.target, self._parser.get_http_version().encode()
        self._plain_head = b"%b %b HTTP/%b\r\n" % start + b"".join(lines) + b"\r\n"

    def _check_size(self, headers: list[tuple[bytes, bytes]]) -> None:
        if len(headers) > self._max_headers:
            raise _too_large_a_head()
        if self._silent_bytes or self._max_bytes < PIECE_BYTES:  # else all of it arrived in one piece
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
        if request.is_complete or request.is_disconnected or request.refusal is not None:
            return  # not needed
        self._bodies.hold(request, len(data))
        if request.asgi is not None:
            request.asgi.take(data)
        elif not request.has_response:
            gather(request.parts, data)
            if request.route is None and request.received_bytes > HIGH_WATER_BYTES:
                self._connection.pause(BODY)  # until the application reads it

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._plain_head:  # it is parsed again
            return
        request, self.current = self.current, None
        self.is_amid = False
        if request is not None:
            request.is_received = True
            self._connection.on_request(request)


def _too_large_a_head() -> Refusal:
    return Refusal(431, "the head of the request is too large")
