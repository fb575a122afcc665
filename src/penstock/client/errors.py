"""Errors of the clients, and their translation from MQTT reason codes and gRPC statuses."""

import ssl
from collections.abc import Sequence
from socket import gaierror
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.errors import PenstockError, ShuttingDown, StorageUnavailable
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    import grpc.aio


class _WithReason(PenstockError):
    """Error with an optional MQTT 5 reason code; return codes of 3.1.1 are translated to one."""

    def __init__(self, text: str, reason: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason


class ConnectionRefused(_WithReason):
    """No connection: no valid response from the address (`reason` is None), or the server refused it."""

    code = "connection-refused"


class ConnectionLost(_WithReason):
    """The connection ended; `reason` is the server's, if it gave one."""

    code = "connection-lost"
    retryable = True


class RequestRefused(_WithReason):
    """The server refused the request; the connection stays open."""

    code = "request-refused"


class HttpRefused(RequestRefused):
    """Error response to an HTTP request; `code` and `retryable` are the server's.

    The code is `request-refused` if the response has none, for instance that of a proxy.
    """

    def __init__(
        self,
        text: str,
        *,
        status: int,
        code: str = RequestRefused.code,
        retryable: bool = False,
        errors: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(text)
        self.status = status
        self.errors = list(errors)
        """One entry for each invalid part of the request, if there are several."""
        self.code = code  # type: ignore[misc]
        self.retryable = retryable  # type: ignore[misc]


class UnknownService(PenstockError):
    """The server responds, but does not offer the requested service."""

    code = "unknown-service"


class NoAnswer(PenstockError, TimeoutError):
    """No response in time; the request may have been received nevertheless."""

    code = "no-answer"


CATALOGUE: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PenstockError)
}
"""The errors that a server may report, by code."""

_WORTH_RETRYING = (ConnectionLost, ConnectionRefused, ShuttingDown, StorageUnavailable)
_BY_STATUS: dict[str, type[PenstockError]] = {
    "UNAVAILABLE": ConnectionLost,
    "DEADLINE_EXCEEDED": ConnectionLost,
    "CANCELLED": ConnectionLost,  # by the server or gRPC: a task cancelled here never reads the status
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
_TOO_LARGE_TEXTS = ("larger than max", "bytes, at most")
"""Parts of the texts with which gRPC, and our server's transport, refuse a message for its size."""
_CORE_FAILED = "Internal error from Core"
"""Text of gRPC for any stream that ended before it was set up."""
_CODE_KEY = "penstock-code"


_TRANSPORT_TEXTS = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
"""Beginnings of the texts with which gRPC reports that there is no connection, its own names included."""
_CAUSES = (
    ("Connection refused", "nothing listens there"),
    ("Domain name not found", "there is no host of that name"),
    ("DNS resolution failed", "there is no host of that name"),
    ("address lookup failed", "there is no host of that name"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted"),
    ("certificate verify failed", "its certificate is not trusted"),
    ("Hostname Verification Check failed", "its certificate is for another name"),
    ("SSL", "TLS failed"),
    ("Ssl", "TLS failed"),
    ("http1.x server", "an HTTP/1 server responds there, and not gRPC"),
    ("HTTP/2", "another protocol than gRPC is spoken there"),
    ("No route to host", "there is no route to the host"),
    ("unreachable", "the network is unreachable"),
    ("reset by peer", "the connection was reset"),
    ("imed out", "the connection timed out"),
)
"""Parts of those texts, and the same in plain words; the first that is found counts."""


def _in_plain_words(text: str) -> str:
    """A text of gRPC about a failed connection, without its internals; any other text as it is."""
    if not text.startswith(_TRANSPORT_TEXTS):
        return text
    return next((words for part, words in _CAUSES if part in text), "no connection could be made")


def is_worth_retrying(error: BaseException) -> bool:
    """Return whether the same request may succeed later, without any change."""
    return isinstance(error, _WORTH_RETRYING)


def copy_error(error: PenstockError) -> PenstockError:
    """Copy an error for one more waiter, because each raised error has its own traceback."""
    return type(error)(*error.args)


def error_from_call(error: "grpc.aio.AioRpcError") -> PenstockError:
    """The error to raise for a failed gRPC call."""
    trailers = dict(error.trailing_metadata() or ())
    return error_from_status(error.code().name, error.details() or "", str(trailers.get(_CODE_KEY, "")))


def error_from_status(status: str, text: str, code: str = "") -> PenstockError:
    """The error of the catalogue for a gRPC status.

    The server names it in the trailers (`code`), or in front of the text; otherwise the status decides.
    """
    head, colon, rest = text.partition(": ")
    if not code and colon and head in CATALOGUE:
        code, text = head, rest
    kind = CATALOGUE.get(code) or _BY_STATUS.get(status) or PenstockError
    if text == _CORE_FAILED:
        kind = ConnectionLost
    if kind is errors.QuotaExceeded and any(part in text for part in _TOO_LARGE_TEXTS):
        kind = errors.TooLarge
    return kind(_in_plain_words(text) or status)


def error_from_code(code: str, text: str) -> PenstockError:
    """The error of the catalogue for a code; `RequestRefused` if the code is unknown."""
    return CATALOGUE.get(code, RequestRefused)(text or code)


def describe_reason(reason: int, detail: str | None = None) -> str:
    """An MQTT reason code as text, with the server's detail."""
    known = reason in ReasonCode.__members__.values()
    name = ReasonCode(reason).name.replace("_", " ").lower() if known else "unknown reason"
    return f"{name} (0x{reason:02x})" + (f": {detail}" if detail else "")


def describe_connect_error(error: OSError) -> str | None:
    """Cause of a failed connect in plain words; None if the system's own text has to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'})"
    if isinstance(error, gaierror):
        return "there is no host of that name"
    return None
