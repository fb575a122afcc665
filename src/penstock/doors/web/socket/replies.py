"""Responses of `/ws`: info, ack, error and pong as frames, compatible with existing clients."""

from math import ceil
from typing import Any

from msgspec import Struct
from msgspec.json import Encoder

from penstock.common.topics import is_wildcard, split_share
from penstock.core.sessions.session import Ending
from penstock.doors.web.socket.requests import BadMessage, RequestId
from penstock.errors import NotAuthorized, PenstockError, UnknownTopic
from penstock.wire.websocket.encoding import CloseCode, text_frame

NAMED_CODES: dict[type[PenstockError], str] = {PenstockError: "INTERNAL", UnknownTopic: "TOPIC_NOT_FOUND"}
"""Errors that have another code here than their own in capitals."""
SLOW_TEXT = "Too slow: events waited too long to be sent"
ENDINGS: dict[Ending, tuple[CloseCode, str]] = {
    Ending.TAKEN_OVER: (CloseCode.POLICY_VIOLATION, "Another client has this client_id now"),
    Ending.SLOW: (CloseCode.POLICY_VIOLATION, "Slow consumer"),
    Ending.UNSTORED: (CloseCode.INTERNAL_ERROR, "Nothing can be stored at present"),
    Ending.UNKNOWN: (CloseCode.POLICY_VIOLATION, "These credentials are not valid any more"),
    Ending.ADMINISTRATIVE: (CloseCode.POLICY_VIOLATION, "An administrator has ended this connection"),
    Ending.SESSION_ENDED: (CloseCode.POLICY_VIOLATION, "An administrator has ended this session"),
    Ending.SHUTTING_DOWN: (CloseCode.GOING_AWAY, "Server is shutting down"),
}
"""Close code and text for each ending by core."""


class Info(Struct, tag_field="type", tag="info", omit_defaults=True):
    """Unsolicited information."""

    message: str
    details: dict[str, Any] | None = None


class Ack(Struct, tag_field="type", tag="ack", omit_defaults=True):
    """A request was carried out."""

    request_type: str
    topic: str
    message: str
    filter: str | None = None
    cursor: str | None = None
    """Start of a subscription; a client that reconnects before its first event resumes from there."""
    request_id: RequestId = None


class Error(Struct, tag_field="type", tag="error", omit_defaults=True):
    """A request was not carried out, or the connection is about to end."""

    code: str
    message: str
    details: dict[str, Any] | None = None
    request_id: RequestId = None


class Pong(Struct, tag_field="type", tag="pong", omit_defaults=True):
    """Response to a ping."""

    request_id: RequestId = None


Reply = Info | Ack | Error | Pong
_encoder = Encoder()
PONG = text_frame(_encoder.encode(Pong()))


def frame_of(reply: Reply) -> bytes:
    """A reply as one text frame."""
    return text_frame(_encoder.encode(reply))


def code_of(error: PenstockError) -> str:
    """The code by which clients know an error."""
    return NAMED_CODES.get(type(error)) or error.code.upper().replace("-", "_")


def refusal_of(error: PenstockError, request_id: RequestId, **about: str) -> Error:
    """Why a request was not carried out."""
    return Error(code_of(error), str(error), {"code": error.code, **about}, request_id)


def subscribe_refusal_of(error: PenstockError, request_id: RequestId, **about: str) -> Error:
    """Error of a subscription: one code for all, except where clients can act on it."""
    code = code_of(error) if isinstance(error, NotAuthorized | UnknownTopic) else "SUBSCRIBE_FAILED"
    return Error(code, str(error), {"code": error.code, **about}, request_id)


def withdrawal_of(filter: str) -> Error:
    """A subscription has ended because its client may not have it any more."""
    is_topic = split_share(filter)[0] is None and not is_wildcard(filter)
    about = {"filter": filter} | ({"topic": filter} if is_topic else {})
    return refusal_of(NotAuthorized(f"not allowed to subscribe to {filter} any more"), None, **about)


def complaint_of(bad: BadMessage) -> Error:
    """Error of an invalid message."""
    return Error(bad.code, str(bad), bad.details, bad.request_id)


def failure_of(request_id: RequestId) -> Error:
    """An error of the server; the connection continues."""
    return Error("INTERNAL", "Something went wrong here", None, request_id)


def rate_error(wait_s: float, request_id: RequestId) -> Error:
    """A client sends faster than it may; so long it has to wait, in whole milliseconds and never none."""
    retry_after_s = max(ceil(wait_s * 1000), 1) / 1000
    return Error("RATE_LIMITED", "Rate limit exceeded", {"retry_after_seconds": retry_after_s}, request_id)


def not_found(topic: str) -> UnknownTopic:
    """Error of an unknown topic, with the text that clients know here; the REST API has another."""
    return UnknownTopic(f"Topic '{topic}' does not exist")
