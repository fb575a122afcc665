"""How calls end that cannot be carried out: a status for each error of the catalogue, a line in the log."""

import structlog

from penstock.core.clock import Clock
from penstock.doors.notes import Notes, shortened
from penstock.doors.sidecar.calls import Call
from penstock.errors import (
    BadCredentials,
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
from penstock.wire.grpc import Status

__all__ = ["STATUSES", "CallNotes", "error_of", "refuse", "status_of", "text_of", "undecodable"]

log = structlog.get_logger("penstock.sidecar")

NOTES_PER_SECOND = 100
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
    """What the client is told: the code of the catalogue, and the words."""
    return f"{error.code}: {error}"


def refuse(call: Call, error: PenstockError) -> None:
    """End a call with an error."""
    call.finish(status_of(error), text_of(error))


def error_of(failure: Exception) -> PenstockError:
    """What a commit that could not be made means to who waited for it."""
    return failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure))


def undecodable(kind: str) -> InvalidRequest:
    """What somebody is told whose message cannot be read."""
    return InvalidRequest(f"this is no {kind}")


class CallNotes:
    """What a service writes into the program's log of calls that come to nothing.

    Args:
        event: what the lines of its refusals begin with.
    """

    def __init__(self, clock: Clock, event: str) -> None:
        self._notes = Notes(log, clock.monotonic, NOTES_PER_SECOND)
        self._event = event

    def write(self, call: Call, error: PenstockError) -> None:
        """Something that a call asked for is refused."""
        self._notes.write(
            self._event,
            peer=str(call.peer),
            method=call.path.rpartition("/")[2],
            code=error.code,
            detail=shortened(str(error)),
        )

    def fail(self, call: Call) -> None:
        """End a call that went wrong in a way that nobody had thought of; its error is being handled."""
        self._notes.write_failure("call not carried out", peer=str(call.peer), method=call.path)
        call.finish(Status.INTERNAL, INTERNAL_TEXT)
