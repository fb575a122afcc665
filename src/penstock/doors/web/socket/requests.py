"""Requests of `/ws`: one JSON object in each text frame, decoded or refused.

Unknown keys are ignored, for compatibility. Errors have the codes that clients know; the connection
continues.
"""

import re
from typing import Annotated, Any

from msgspec import UNSET, DecodeError, Meta, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from penstock.errors import InvalidPayload
from penstock.model import Properties
from penstock.wire.json_values import read_value

MAX_LAST = 1_000
MAX_ID = 255
SHOWN = 100
COUNT = re.compile(r"\s*\+?(\d{1,9})(?:\.0*)?\s*", re.ASCII)
"""A whole number in a text."""
JSON_PROPERTIES = Properties(content_type="application/json")
"""Properties of every JSON payload; one object for all."""

TopicText = Annotated[str, Meta(min_length=1, max_length=255)]
FilterText = Annotated[str, Meta(min_length=1)]
RequestId = Annotated[str, Meta(max_length=MAX_ID)] | int | None


class BadMessage(Exception):
    """An invalid message, as an error frame."""

    def __init__(self, code: str, text: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.details = details
        self.request_id: str | int | None = None


class _Named(Struct, tag_field="type"):
    """A message about a topic, or about all topics of a filter."""

    topic: TopicText | UnsetType = UNSET
    filter: FilterText | UnsetType = UNSET
    request_id: RequestId = None

    @property
    def is_filter(self) -> bool:
        """It names a filter, whatever that is made of."""
        return self.topic is UNSET

    @property
    def name(self) -> str:
        """The topic or the filter; a checked message has one of them."""
        return str(self.filter if self.topic is UNSET else self.topic)


class Subscribe(_Named, tag="subscribe"):
    """Subscribe: live messages, and before them the last ones, or all after a cursor."""

    last_n: Annotated[int, Meta(ge=0, le=MAX_LAST)] | bool | float | str | None = 0
    """A whole number; clients know that `"5"`, `5.0` and `true` are taken for one."""
    after: str | None = None


class Unsubscribe(_Named, tag="unsubscribe"):
    """Wants no more."""


class Publish(Struct, tag_field="type", tag="publish"):
    """Publish."""

    topic: TopicText
    data: Raw
    request_id: RequestId = None


class Ping(Struct, tag_field="type", tag="ping"):
    """Ping."""

    request_id: RequestId = None


class _Marked(Struct):
    """Type and id of a message, decoded without the rest."""

    type: Raw = Raw()
    request_id: Raw = Raw()


Request = Subscribe | Unsubscribe | Publish | Ping
TYPES = ("subscribe", "unsubscribe", "publish", "ping")

_decoder: Decoder[Request] = Decoder(Request)
_checker = Decoder(Raw)
_marked = Decoder(_Marked)
_type_decoder = Decoder(str)
_id_decoder: Decoder[RequestId] = Decoder(RequestId)


def read_request(message: str | bytes) -> Request:
    """Decode a frame.

    Raises:
        BadMessage: not a message, or an invalid value.
    """
    if not isinstance(message, str):
        raise BadMessage("INTERNAL", "Message must be a text frame")
    try:
        request = _decoder.decode(message)
    except ValidationError as error:
        raise _complaint(message, str(error)) from None
    except (DecodeError, ValueError, RecursionError):
        raise _not_json() from None
    if isinstance(request, Publish | Ping):
        return request
    _check_names(request)
    if isinstance(request, Subscribe) and type(request.last_n) is not int:
        request.last_n = _count_of(request)
    return request


def _count_of(request: Subscribe) -> int:
    """The number in a `last_n` that is none in JSON."""
    given = request.last_n
    if isinstance(given, str):
        found = COUNT.fullmatch(given)
        count = float(found[1]) if found else -1.0
    else:
        count = float(given or 0)
    if not (count.is_integer() and 0 <= count <= MAX_LAST):
        raise _invalid(f"Expected `int` from 0 to {MAX_LAST}", "last_n", request.request_id)
    return int(count)


def read_payload(request: Publish) -> tuple[bytes, Properties | None]:
    """The payload of a message, and what travels with it.

    Raises:
        BadMessage: it says `$bytes`, and then no base64.
    """
    try:
        payload, is_json = read_value(request.data)
    except InvalidPayload as error:
        raise _invalid(str(error), "data", request.request_id) from None
    return payload, JSON_PROPERTIES if is_json else None


def _check_names(request: Subscribe | Unsubscribe) -> None:
    if request.topic is UNSET and request.filter is UNSET:
        raise _invalid("either topic or filter is needed", "topic", request.request_id)
    if request.topic is not UNSET and request.filter is not UNSET:
        raise _invalid("either topic or filter, not both", "topic", request.request_id)
    if isinstance(request, Subscribe) and request.after is not None and request.last_n:
        raise _invalid("either after or last_n, not both", "after", request.request_id)


def _not_json() -> BadMessage:
    return BadMessage("INVALID_JSON", "Message must be valid JSON")


def _invalid(text: str, place: str, request_id: str | int | None = None) -> BadMessage:
    bad = BadMessage(
        "VALIDATION_ERROR", "Invalid message format", {"errors": [{"loc": [place], "msg": text}]}
    )
    bad.request_id = request_id
    return bad


def _complaint(message: str, text: str) -> BadMessage:
    """Return the error of a message that may be JSON, but is not valid here."""
    try:
        said = _marks_of(message)
    except (DecodeError, ValueError, RecursionError):
        return _not_json()
    kind = _type_of(said.type)
    if kind is None:
        bad = BadMessage("INVALID_MESSAGE", "Message must have a 'type' field")
    elif kind not in TYPES:
        bad = BadMessage("UNKNOWN_MESSAGE_TYPE", f"Unknown message type: {_shortened(kind)}")
    else:
        what, _, place = text.partition(" - at `$.")
        bad = _invalid(what, place.rstrip("`") or _missing_field(what))
    bad.request_id = _id_of(said.request_id)
    return bad


def request_id_of(message: str | bytes) -> RequestId:
    """Return the id of a message without decoding the rest; None if it has none."""
    try:
        return _id_of(_marks_of(message).request_id)
    except (DecodeError, ValueError, RecursionError):
        return None


def _marks_of(message: str | bytes) -> _Marked:
    """Return type and id of a JSON text, empty if it is not an object."""
    try:
        return _marked.decode(message)
    except ValidationError:
        _checker.decode(message)
        return _Marked()


def _id_of(text: Raw) -> RequestId:
    try:
        return _id_decoder.decode(text)
    except (DecodeError, ValueError):
        return None


def _type_of(text: Raw) -> str | None:
    """The name of a type; JSON that is not a text stands for itself, and None for nothing at all."""
    try:
        return _type_decoder.decode(text)
    except (DecodeError, ValueError):
        return bytes(memoryview(text)[: SHOWN + 1]).decode(errors="ignore") or None


def _missing_field(text: str) -> str:
    """The name in a complaint about a key that is not there."""
    return text.partition("`")[2].partition("`")[0]


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
