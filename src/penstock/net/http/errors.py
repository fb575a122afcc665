"""Errors as HTTP responses: the table from error codes to statuses, and the bodies.

Under `/api/v1` an error is a problem document (RFC 9457); elsewhere it is `{"detail": ...}`, and for streams
`{"error": ...}`, as clients of those paths expect it.
"""

from http import HTTPStatus
from typing import Any

from msgspec import json

from penstock.errors import (
    BadCredentials,
    ClientIdTaken,
    Conflict,
    InvalidConfig,
    InvalidCursor,
    InvalidFilter,
    InvalidHold,
    InvalidPayload,
    InvalidRequest,
    InvalidTopic,
    NoLog,
    NotAcceptable,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    TooLarge,
    UnknownClient,
    UnknownHold,
    UnknownStage,
    UnknownTopic,
    UnsupportedMedia,
    WaitTimeout,
    WireError,
)

API = "/api/v1"
STREAMS = ("/api/v1/streams", "/streams")
JSON = "application/json"
PROBLEM = "application/problem+json"
CHALLENGE = 'Basic realm="penstock", charset="UTF-8"'
RETRY_AFTER_S = 1

STATUSES: dict[str, HTTPStatus] = {
    PenstockError.code: HTTPStatus.INTERNAL_SERVER_ERROR,
    InvalidTopic.code: HTTPStatus.BAD_REQUEST,
    InvalidFilter.code: HTTPStatus.BAD_REQUEST,
    InvalidPayload.code: HTTPStatus.BAD_REQUEST,
    InvalidCursor.code: HTTPStatus.BAD_REQUEST,
    InvalidHold.code: HTTPStatus.BAD_REQUEST,
    InvalidRequest.code: HTTPStatus.BAD_REQUEST,
    BadCredentials.code: HTTPStatus.UNAUTHORIZED,
    NotAuthorized.code: HTTPStatus.FORBIDDEN,
    UnknownHold.code: HTTPStatus.NOT_FOUND,
    UnknownTopic.code: HTTPStatus.NOT_FOUND,
    UnknownClient.code: HTTPStatus.NOT_FOUND,
    UnknownStage.code: HTTPStatus.NOT_FOUND,
    NoLog.code: HTTPStatus.NOT_FOUND,
    NotAcceptable.code: HTTPStatus.NOT_ACCEPTABLE,
    Conflict.code: HTTPStatus.CONFLICT,
    ClientIdTaken.code: HTTPStatus.CONFLICT,
    TooLarge.code: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UnsupportedMedia.code: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    WaitTimeout.code: HTTPStatus.FAILED_DEPENDENCY,
    QuotaExceeded.code: HTTPStatus.TOO_MANY_REQUESTS,
    StorageUnavailable.code: HTTPStatus.SERVICE_UNAVAILABLE,
    ShuttingDown.code: HTTPStatus.SERVICE_UNAVAILABLE,
    InvalidConfig.code: HTTPStatus.INTERNAL_SERVER_ERROR,
    WireError.code: HTTPStatus.BAD_REQUEST,
}
"""Status by error code."""

RETRYABLE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses after which a client may retry."""
INTERNAL_DETAIL = "Internal server error"
"""Text for every error of the server; the log has the details."""


def status_of(error: PenstockError | type[PenstockError]) -> int:
    """Return the status of an error."""
    return int(STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR))


def problem_of(error: PenstockError, **more: Any) -> dict[str, Any]:
    """Return the problem document of an error, with further members."""
    status = status_of(error)
    document = described(status, str(error), error.code)
    if error.retryable:
        document["retryable"] = True
    return document | more


def described(status: int, detail: str, code: str) -> dict[str, Any]:
    """Return the problem document of a failure without an error class, such as a wrong method."""
    title = HTTPStatus(status).phrase
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail or title,
        "code": code,
    }
    return document | ({"retryable": True} if status in RETRYABLE else {})


def headers_of(error: PenstockError) -> list[tuple[str, str]]:
    """Return the headers of an error response."""
    if isinstance(error, BadCredentials):
        return [("WWW-Authenticate", CHALLENGE)]
    return [("Retry-After", str(RETRY_AFTER_S))] if error.retryable else []


def is_api(path: str) -> bool:
    """True if errors of this path are problem documents."""
    return _is_below(path, API) and not is_of_streams(path)


def is_of_streams(path: str) -> bool:
    """True if errors of this path have the form of streams."""
    return any(_is_below(path, prefix) for prefix in STREAMS)


def _is_below(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and path[len(prefix) :][:1] in ("", "/")


def response_to(error: PenstockError, path: str) -> tuple[int, bytes, str]:
    """Status, body and content type of an error, in the form that the callers of a path know."""
    if is_api(path):
        return status_of(error), json.encode(problem_of(error)), PROBLEM
    return status_of(error), _bare(str(error) or type(error).__name__, path), JSON


def response_for(status: int, detail: str, code: str, path: str) -> tuple[int, bytes, str]:
    """The same for what has no error class."""
    if is_api(path):
        return status, json.encode(described(status, detail, code)), PROBLEM
    return status, _bare(detail, path), JSON


def _bare(text: str, path: str) -> bytes:
    """Keys of error bodies at the paths of other systems."""
    return json.encode({"error" if is_of_streams(path) else "detail": text})
