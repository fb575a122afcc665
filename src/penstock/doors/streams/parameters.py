"""Query parameters of a receive, and durations such as `30s`, `500ms`, `1m30s`."""

import re

from msgspec import Struct

from penstock.common.durations import parse_duration
from penstock.core.broker import Broker
from penstock.core.settings import StreamSettings
from penstock.errors import InvalidRequest
from penstock.net.http.request import Request

MAX_LIMIT = 1_000
"""Most messages of one response."""
REMEMBERED, REMEMBERED_BYTES = 4_096, 256
"""Cached queries, and the longest one."""
PARAMETERS = frozenset(
    {"streamId", "timeoutSeconds", "timeout", "readFromDB", "dbResumeToken", "limit", "position"}
)
_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_YES_OR_NO = {"true": True, "1": True, "false": False, "0": False, "": False}


def seconds_of(text: str) -> float:
    """Parse a duration, which may have a sign, to seconds.

    Raises:
        InvalidRequest: not a duration.
    """
    length = text.lstrip("+-") if text[1:2] not in ("+", "-") else ""
    sign = -1.0 if text.startswith("-") else 1.0
    if length == "0":
        return 0.0
    seconds = None if " " in text else parse_duration(length)
    if seconds is None:
        raise InvalidRequest("a length of time is a number with a unit, as 30s, 500ms or 1m30s")
    return sign * seconds


class ReceiveQuery(Struct, frozen=True):
    """Parsed query of a receive: a topic, and how long to wait."""

    topic: str
    wait_s: float
    reads_log: bool = False
    token: str | None = None
    """Start in the log; without one, the oldest message."""
    limit: int | None = None
    """Most messages of the response, which is then a list; without one it is a single message."""
    has_position: bool = False
    """The response has keys for its position, beside the headers."""


class Queries:
    """Query parser with a cache: receivers repeat the same query."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings = broker.settings.streams
        self._known: dict[bytes, ReceiveQuery] = {}

    def read(self, request: Request) -> ReceiveQuery:
        """Parse the query of a request.

        Raises:
            InvalidRequest: something is missing, misspelt, or says what cannot be.
        """
        query, settings = request.query, self._broker.settings.streams
        if settings is not self._settings:  # what is remembered was read by the ones before
            self._settings = settings
            self._known.clear()
        asked = self._known.get(query)
        if asked is None:
            asked = read_query(request, settings)
            if not asked.reads_log and len(query) <= REMEMBERED_BYTES:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[query] = asked
        return asked


def read_query(request: Request, settings: StreamSettings) -> ReceiveQuery:
    """Parse the query of a request.

    Raises:
        InvalidRequest: something is missing, misspelt, or says what cannot be.
    """
    given = request.parameters()
    topic = given.get("streamId")
    if not topic:
        raise InvalidRequest("streamId is required")
    if len(given) == 1:
        return ReceiveQuery(topic, settings.default_timeout_s)
    unknown = given.keys() - PARAMETERS
    if unknown:
        raise InvalidRequest(f"there is no parameter {min(unknown)!r} here")
    wait_s = _wait_of(given, settings.default_timeout_s)
    reads_log, has_position = _choice(given, "readFromDB"), _choice(given, "position")
    token, limit = given.get("dbResumeToken") or None, _limit_of(given.get("limit"))
    if not reads_log and (token is not None or limit is not None):
        raise InvalidRequest("dbResumeToken and limit need readFromDB=true")
    wait_s = min(max(wait_s, 0.0), settings.max_timeout_s)
    return ReceiveQuery(topic, wait_s, reads_log, token, limit, has_position)


def _choice(given: dict[str, str], name: str) -> bool:
    choice = _YES_OR_NO.get(given.get(name, "").lower())
    if choice is None:
        raise InvalidRequest(f"invalid {name}")
    return choice


def _wait_of(given: dict[str, str], default_s: float) -> float:
    """Return the time to wait; negative ones count as 0, as clients expect."""
    number, text = given.get("timeoutSeconds"), given.get("timeout")
    if number is not None and text is not None:
        raise InvalidRequest("timeoutSeconds and timeout exclude each other: give one of them")
    if number is not None:
        if _NUMBER.fullmatch(number) is None:
            raise InvalidRequest("invalid timeoutSeconds")
        return float(number)
    return default_s if text is None else seconds_of(text)


def _limit_of(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidRequest(f"limit is a number from 1 to {MAX_LIMIT}")
    return int(text)
