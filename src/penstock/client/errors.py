"""What can go wrong between a client and its server, with the reason the server gave."""

from collections.abc import Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.wire.mqtt.reasons import ReasonCode


class _WithReason(PenstockError):
    """An error that may carry an MQTT 5 reason code; what 3.1.1 answers is translated to one."""

    def __init__(self, text: str, reason: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason


class ConnectionRefused(_WithReason):
    """No connection came about: nobody answered, or not who should (`reason` is None), or with a no."""

    code = "connection-refused"


class ConnectionLost(_WithReason):
    """The connection is over; `reason` is the server's, if it gave one."""

    code = "connection-lost"
    retryable = True


class RequestRefused(_WithReason):
    """The server took the request and said no; the connection stays."""

    code = "request-refused"


class HttpRefused(RequestRefused):
    """The server answered an HTTP request with an error: `code` and `retryable` are those it gave.

    The code is `request-refused` if it gave none, because something between us and it answered.
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
        """What is wrong with each part of the request, where there is more than one."""
        self.code = code  # type: ignore[misc]
        self.retryable = retryable  # type: ignore[misc]


class UnknownService(PenstockError):
    """The server answers, and does not offer what is asked for."""

    code = "unknown-service"


class NoAnswer(PenstockError, TimeoutError):
    """Nobody has answered a request in time; somebody may have got it nevertheless."""

    code = "no-answer"


def again(error: PenstockError) -> PenstockError:
    """The same error for one more who waited: a traceback belongs to one, so each gets one of its own."""
    return type(error)(*error.args)


def describe(reason: int, detail: str | None = None) -> str:
    """A reason code in words, with what the server added to it."""
    known = reason in ReasonCode.__members__.values()
    words = ReasonCode(reason).name.replace("_", " ").lower() if known else "unknown reason"
    return f"{words} (0x{reason:02x})" + (f": {detail}" if detail else "")
