"""Encoding of HTTP responses, and content negotiation by the Accept header (RFC 9110, 12.5.1)."""

import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
"""Statuses without a body and without Content-Length."""
FIRST_FINAL, LAST_STATUS = 200, 599
_KNOWN = frozenset(HTTPStatus)
_UNWRITABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that no header's value has: control characters, but for the tab."""

Headers = Sequence[tuple[str, str]]


class DateHeader:
    """Cache of the `Date` header line, made once a second of Unix time."""

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self, second: int) -> bytes:
        """The header for this second."""
        if second != self._second:
            self._second, self._line = second, b"date: %b\r\n" % http_date(second).encode()
        return self._line


def http_date(second: int) -> str:
    """Format a time for HTTP, independent of the locale."""
    year, month, day, hour, minute, seconds, weekday, *_ = time.gmtime(second)
    return f"{DAYS[weekday]}, {day:02} {MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{seconds:02} GMT"


def build(
    status: int,
    body: bytes,
    content_type: str,
    headers: Headers,
    date: bytes,
    *,
    connection: bytes = b"",
    is_head: bool = False,
) -> bytes:
    """A whole response.

    Args:
        date: the `Date` header line.
        connection: the `Connection` header line, if needed.
        is_head: the response to HEAD: only the length of the body is sent.

    Raises:
        ValueError: a header cannot be written.
    """
    more = encode_headers(headers) if headers else b""
    if status in BODILESS:
        return b"%b%b%b%b\r\n" % (_start(status, ""), date, more, connection)
    start = _start(status, content_type)
    if is_head:
        return b"%b%d\r\n%b%b%b\r\n" % (start, len(body), date, more, connection)
    return b"%b%d\r\n%b%b%b\r\n%b" % (start, len(body), date, more, connection, body)


def build_head(
    status: int,
    content_type: str,
    headers: Headers,
    date: bytes,
    *,
    connection: bytes = b"",
    is_chunked: bool = True,
) -> bytes:
    """The head of a response of unknown length; without chunks it ends with its connection.

    Raises:
        ValueError: a header cannot be written.
    """
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {checked(content_type)}\r\n"
    chunked = b"transfer-encoding: chunked\r\n" if is_chunked else b""
    more = encode_headers(headers)
    return b"%b%b%b%b%b\r\n" % (line.encode("latin-1"), date, more, connection, chunked)


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Encode headers as lines.

    Raises:
        ValueError: a value has control characters.
    """
    lines = "".join(f"{name}: {checked(value)}\r\n" for name, value in headers)
    return lines.encode("latin-1")


def checked(value: str) -> str:
    """Return a header's value unchanged.

    Raises:
        ValueError: it has control characters.
    """
    if not value.isprintable() and _UNWRITABLE.search(value):
        raise ValueError(f"{value!r} cannot be the value of a header")
    return value


@lru_cache(maxsize=256)
def status_line(status: int) -> bytes:
    """First line of a response.

    Raises:
        RuntimeError: the status is not one of a complete response.
    """
    if not FIRST_FINAL <= status <= LAST_STATUS:
        raise RuntimeError(f"{status!r} cannot be the status of a response")
    phrase = HTTPStatus(status).phrase if status in _KNOWN else ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


@lru_cache(maxsize=256)
def _start(status: int, content_type: str) -> bytes:
    """Beginning of all responses of one status and type."""
    line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    if content_type:
        line += f"content-type: {checked(content_type)}\r\n"
    if content_type.endswith("json"):
        line += "x-content-type-options: nosniff\r\n"
    return (line if status in BODILESS else f"{line}content-length: ").encode("latin-1")


def preferred(accept: str | None, offers: Sequence[str]) -> str | None:
    """The offer that a caller likes best, the first of those that it likes as well; None if it takes none."""
    if accept is None or not accept.strip():
        return offers[0]
    wishes = _read(accept)
    best = max(offers, key=lambda offer: _liking(offer, wishes))
    return best if _liking(best, wishes) > 0 else None


def _read(accept: str) -> dict[str, float]:
    """Accepted media types, and their weights."""
    wishes: dict[str, float] = {}
    for entry in accept.split(","):
        kind, *parameters = [part.strip().lower() for part in entry.split(";")]
        liking = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "q":
                liking = _number(value)
        if kind:
            wishes[kind] = max(liking, wishes.get(kind, 0.0))
    return wishes


def _number(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _liking(offer: str, wishes: dict[str, float]) -> float:
    """The wish that names an offer most closely decides."""
    main, _, _ = offer.partition("/")
    for kind in (offer, f"{main}/*", "*/*"):
        if kind in wishes:
            return wishes[kind]
    return 0.0
