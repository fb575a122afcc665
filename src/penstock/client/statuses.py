"""How a gRPC call ended, as an error of the catalogue."""

from typing import TYPE_CHECKING

from penstock import errors
from penstock.client.errors import ConnectionLost, RequestRefused, UnknownService
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import grpc.aio

CATALOGUE: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PenstockError)
}
"""The errors that a server may name, by their codes."""

_BY_STATUS: dict[str, type[PenstockError]] = {
    "UNAVAILABLE": ConnectionLost,
    "DEADLINE_EXCEEDED": ConnectionLost,
    "CANCELLED": ConnectionLost,  # not by us: a task of ours that is cancelled does not ask for the status
    "UNAUTHENTICATED": errors.BadCredentials,
    "PERMISSION_DENIED": errors.NotAuthorized,
    "INVALID_ARGUMENT": errors.InvalidRequest,
    "OUT_OF_RANGE": errors.InvalidRequest,
    "RESOURCE_EXHAUSTED": errors.QuotaExceeded,
    "UNIMPLEMENTED": UnknownService,
    "ABORTED": errors.Conflict,
    "ALREADY_EXISTS": errors.Conflict,
    "NOT_FOUND": RequestRefused,
    "FAILED_PRECONDITION": RequestRefused,
}
_WORDS_OF_SIZE = ("larger than max", "bytes, at most")
"""How gRPC itself, and our transport below any method, refuse a message for its size."""
_CORE_FAILED = "Internal error from Core"
"""What gRPC says of a stream that ended, however it did, before it had quite begun."""
_CODE_KEY = "penstock-code"


def error_of(error: "grpc.aio.AioRpcError") -> PenstockError:
    """What to raise for a call that failed."""
    trailers = dict(error.trailing_metadata() or ())
    return error_from(error.code().name, error.details() or "", str(trailers.get(_CODE_KEY, "")))


def error_from(status: str, text: str, code: str = "") -> PenstockError:
    """The error that a server has named, beside the status or before its text; else one for the status."""
    head, colon, rest = text.partition(": ")
    if not code and colon and head in CATALOGUE:
        code, text = head, rest
    kind = CATALOGUE.get(code) or _BY_STATUS.get(status) or PenstockError
    if text == _CORE_FAILED:
        kind = ConnectionLost
    if kind is errors.QuotaExceeded and any(words in text for words in _WORDS_OF_SIZE):
        kind = errors.TooLarge
    return kind(text or status)


def named_error(code: str, text: str) -> PenstockError:
    """The error that a server has named by its code."""
    return CATALOGUE.get(code, RequestRefused)(text or code)
