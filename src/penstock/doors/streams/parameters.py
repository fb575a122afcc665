"""Parameters of requests: the body of a send, the query of a receive, durations such as `30s`, `1m30s`.

Decoding is strict: unknown fields and wrong types are refused. Clients expect one text for every malformed
body, so a header has the detail; texts about values are specific.
"""

import re
from uuid import UUID

from msgspec import DecodeError
from msgspec.json import Decoder

from penstock.common.durations import parse_duration
from penstock.core.broker import Broker
from penstock.core.settings import StreamSettings
from penstock.core.streams.send_request import Sending
from penstock.doors.streams.shapes import INVALID, InvalidForm, NewSend
from penstock.errors import InvalidRequest
from penstock.net.http.request import Request
from penstock.net.log_throttle import shortened
from penstock.runs import NEVER
from penstock.wire.json_values import read_value

MAX_LIMIT = 1_000
"""Most messages of one response."""
REMEMBERED, REMEMBERED_BYTES = 4_096, 256
"""Cached queries, and the longest one."""
PARAMETERS = frozenset(
    {"streamId", "timeoutSeconds", "timeout", "readFromDB", "dbResumeToken", "limit", "position"}
)
JSON = "application/json"
DEFAULT_TTL_S = 86_400
_GROUPS = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"  # twice as fast as without regard to case
UUID_FORM = re.compile(rf"(?:(?i:urn:uuid:))?{_GROUPS}|[0-9A-Fa-f]{{32}}|\{{{_GROUPS}\}}", re.ASCII)
"""The forms in which a UUID is written."""

BAD_JSON = {
    UnicodeDecodeError: "JSON is UTF-8, and this is not",
    RecursionError: "this JSON is nested too deeply",
}
"""Error texts where the decoder has none."""

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


_decoder = Decoder(NewSend)


def read_send(request: Request, settings: StreamSettings) -> Sending:
    """Decode the body of a request.

    Raises:
        PenstockError: malformed, or an invalid value.
    """
    try:
        new = _decoder.decode(request.body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidForm(shortened(BAD_JSON.get(type(error)) or str(error))) from None
    if UUID_FORM.fullmatch(new.message_uuid) is None:
        raise InvalidRequest(f"{INVALID}: messageUuid is not a UUID")
    if new.size is not None and new.size < 0:
        raise InvalidRequest(f"{INVALID}: inMemoryStreamSize is less than 0")
    if new.ttl_s is not None and new.ttl_s < 1:
        raise InvalidRequest(f"{INVALID}: dbTTLSeconds is less than 1")
    payload, is_json = read_value(new.message)
    is_stored = bool(new.is_stored)
    wait_s = min(max(_send_wait_of(request, new), 0.0), settings.max_timeout_s)
    return Sending(
        topic=new.stream_id,
        payload=payload,
        message_id=new.message_uuid,
        identity=request.identity,
        capacity=None if is_stored else new.size,
        wait_s=0.0 if is_stored else wait_s,
        ttl_s=float(new.ttl_s or DEFAULT_TTL_S) if is_stored else NEVER,
        is_stored=is_stored,
        content_type=JSON if is_json else None,
        known_as=str(UUID(new.message_uuid)) if is_stored else None,
    )


def _send_wait_of(request: Request, new: NewSend) -> float:
    """Return how long the sender would wait; the query may set it instead of the body."""
    if not request.query:
        return float(new.timeout_s or 0)
    asked = request.parameters()
    text = asked.pop("timeout", None)
    if asked:
        raise InvalidRequest(f"there is no parameter {next(iter(asked))!r} here")
    if text is None:
        return float(new.timeout_s or 0)
    if new.timeout_s is not None:
        raise InvalidRequest("blockingSendTimeoutSeconds and timeout exclude each other: give one of them")
    return seconds_of(text)


class ReceiveQuery:
    """Parsed query of a receive: a topic, and how long to wait."""

    __slots__ = ("has_position", "limit", "reads_log", "token", "topic", "wait_s")

    def __init__(
        self,
        topic: str,
        wait_s: float,
        reads_log: bool = False,
        token: str | None = None,
        limit: int | None = None,
        has_position: bool = False,
    ) -> None:
        self.topic = topic
        self.wait_s = wait_s
        self.reads_log = reads_log
        self.token = token
        """Start in the log; without one, the oldest message."""
        self.limit = limit
        """Most messages of the response, which is then a list; without one it is a single message."""
        self.has_position = has_position
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
