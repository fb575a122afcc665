"""gRPC status of errors, and the log of refused calls."""

import structlog

from penstock.core.runtime.clock import Clock
from penstock.doors.sidecar.transport.method import Call
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
from penstock.net.log_throttle import ThrottledLog, shortened
from penstock.wire.grpc import Status

__all__ = ["STATUSES", "CallLog", "error_of", "refuse", "status_of", "text_of", "undecodable"]

log = structlog.get_logger("penstock.sidecar")

LINES_PER_SECOND = 100
INTERNAL_TEXT = "internal: this went wrong on our side"

STATUSES: dict[type[PenstockError], Status] = {
    InvalidTopic: Status.INVALID_ARGUMENT,
    InvalidFilter: Status.INVALID_ARGUMENT,
    InvalidPayload: Status.INVALID_ARGUMENT,
    InvalidRequest: Status.INVALID_ARGUMENT,
    InvalidCursor: Status.INVALID_ARGUMENT,
    InvalidHold: Status.INVALID_ARGUMENT,
    UnsupportedMedia: Status.INVALID_ARGUMENT,
    NotAcceptable: Status.INVALID_ARGUMENT,
    WireError: Status.INVALID_ARGUMENT,
    BadCredentials: Status.UNAUTHENTICATED,
    NotAuthorized: Status.PERMISSION_DENIED,
    TooLarge: Status.RESOURCE_EXHAUSTED,
    QuotaExceeded: Status.RESOURCE_EXHAUSTED,
    UnknownHold: Status.NOT_FOUND,
    UnknownTopic: Status.NOT_FOUND,
    UnknownClient: Status.NOT_FOUND,
    UnknownStage: Status.NOT_FOUND,
    Conflict: Status.ABORTED,
    ClientIdTaken: Status.ALREADY_EXISTS,
    WaitTimeout: Status.DEADLINE_EXCEEDED,
    NoLog: Status.FAILED_PRECONDITION,
    StorageUnavailable: Status.UNAVAILABLE,
    ShuttingDown: Status.UNAVAILABLE,
    InvalidConfig: Status.INTERNAL,
    PenstockError: Status.INTERNAL,
}


def status_of(error: PenstockError) -> Status:
    """The status of a call that ends with an error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def text_of(error: PenstockError) -> str:
    """Message of a status: the error code, and the text."""
    return f"{error.code}: {error}"


def refuse(call: Call, error: PenstockError) -> None:
    """End a call with an error."""
    call.finish(status_of(error), text_of(error))


def error_of(failure: Exception) -> PenstockError:
    """Return the error of a failed commit for a waiting call."""
    return failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure))


def undecodable(kind: str) -> InvalidRequest:
    """Return the error of a message that cannot be decoded."""
    return InvalidRequest(f"not a valid {kind}")


class CallLog:
    """Log of a service's failed calls.

    Args:
        event: what the lines of its refusals begin with.
    """

    def __init__(self, clock: Clock, event: str) -> None:
        self._throttled_log = ThrottledLog(log, clock.monotonic, LINES_PER_SECOND)
        self._event = event

    def write(self, call: Call, error: PenstockError) -> None:
        """Log a refusal."""
        self._throttled_log.write(
            self._event,
            peer=str(call.peer),
            client="" if call.identity is None else shortened(call.identity.client_id),
            user="" if call.identity is None else shortened(call.identity.user or ""),
            method=call.path.rpartition("/")[2],
            code=error.code,
            detail=shortened(str(error)),
        )

    def fail(self, call: Call) -> None:
        """End a call after an unexpected error, which is being handled."""
        self._throttled_log.write_failure("call not carried out", peer=str(call.peer), method=call.path)
        call.finish(Status.INTERNAL, INTERNAL_TEXT)
