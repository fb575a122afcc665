"""What the query of a receive asks for."""

import re

from msgspec import Struct

from penstock.core.broker import Broker
from penstock.core.settings import StreamSettings
from penstock.doors.http.requests import Request
from penstock.doors.streams.durations import seconds_of
from penstock.errors import InvalidRequest

MAX_LIMIT = 1_000
"""Most messages of one answer."""
REMEMBERED, REMEMBERED_BYTES = 4_096, 256
"""How many queries are remembered, and how long they may be."""
PARAMETERS = frozenset({"streamId", "timeoutSeconds", "timeout", "readFromDB", "dbResumeToken", "limit"})
_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_YES_OR_NO = {"true": True, "1": True, "false": False, "0": False, "": False}


class Asked(Struct, frozen=True):
    """Which message somebody wants, and how long it waits for one."""

    topic: str
    wait_s: float
    reads_log: bool = False
    token: str | None = None
    """Where to begin in the log; without one, at the oldest message."""
    limit: int | None = None
    """Most messages of the answer, which is then a list; without one it is a single message."""


class Queries:
    """Reads queries, and remembers those of receivers who ask the same again and again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settings = broker.settings.streams
        self._known: dict[bytes, Asked] = {}

    def read(self, request: Request) -> Asked:
        """What a request asks for.

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


def read_query(request: Request, settings: StreamSettings) -> Asked:
    """What a request asks for.

    Raises:
        InvalidRequest: something is missing, misspelt, or says what cannot be.
    """
    given = request.parameters()
    topic = given.get("streamId")
    if not topic:
        raise InvalidRequest("streamId is required")
    if len(given) == 1:
        return Asked(topic, settings.default_timeout_s)
    unknown = given.keys() - PARAMETERS
    if unknown:
        raise InvalidRequest(f"there is no parameter {min(unknown)!r} here")
    wait_s = _wait_of(given, settings.default_timeout_s)
    reads_log = _YES_OR_NO.get(given.get("readFromDB", "").lower())
    if reads_log is None:
        raise InvalidRequest("invalid readFromDB")
    token, limit = given.get("dbResumeToken") or None, _limit_of(given.get("limit"))
    if not reads_log and (token is not None or limit is not None):
        raise InvalidRequest("dbResumeToken and limit need readFromDB=true")
    return Asked(topic, min(max(wait_s, 0.0), settings.max_timeout_s), reads_log, token, limit)


def _wait_of(given: dict[str, str], default_s: float) -> float:
    """How long to wait; less than nothing counts as nothing, as the callers expect it."""
    number, text = given.get("timeoutSeconds"), given.get("timeout")
    if number is not None and text is not None:
        raise InvalidRequest("timeoutSeconds and timeout say the same: give one of them")
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
