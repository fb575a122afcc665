"""One family of errors with stable codes.

Codes are public and never change their meaning; texts may improve. A door maps each code to its
own protocol's response (a reason code, a status, an error frame) in one table of its own.
"""

from typing import ClassVar


class PenstockError(Exception):
    """An error that callers distinguish by its code."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class InvalidTopic(PenstockError):
    """The topic name breaks a rule or a limit."""

    code = "invalid-topic"


class InvalidFilter(PenstockError):
    """The topic filter breaks a rule or a limit."""

    code = "invalid-filter"


class BadCredentials(PenstockError):
    """Unknown user, wrong password, failed proof, or anonymous where a user is required."""

    code = "bad-credentials"


class NotAuthorized(PenstockError):
    """Known, but not allowed to do this."""

    code = "not-authorized"


class InvalidPayload(PenstockError):
    """The payload is not the UTF-8 text that it is said to be."""

    code = "invalid-payload"


class TooLarge(PenstockError):
    """A message, packet or body exceeds its limit in bytes."""

    code = "too-large"


class QuotaExceeded(PenstockError):
    """A limit by count or rate is used up."""

    code = "quota-exceeded"
    retryable = True


class InvalidCursor(PenstockError):
    """A cursor that cannot be read, of another log, or ahead of it; for a hold also one that has left it."""

    code = "invalid-cursor"


class InvalidHold(PenstockError):
    """The name or the lapse time of a hold breaks a rule."""

    code = "invalid-hold"


class UnknownHold(PenstockError):
    """There is no hold of that name, or it has lapsed."""

    code = "unknown-hold"


class InvalidRequest(PenstockError):
    """A request whose parameters or body are not what this call takes."""

    code = "invalid-request"


class UnsupportedMedia(PenstockError):
    """The body is of a kind that this call does not read."""

    code = "unsupported-media"


class NotAcceptable(PenstockError):
    """No media type that the caller accepts is available."""

    code = "not-acceptable"


class UnknownTopic(PenstockError):
    """There is no topic of that name."""

    code = "unknown-topic"


class UnknownClient(PenstockError):
    """There is no session of that client."""

    code = "unknown-client"


class ClientIdTaken(PenstockError):
    """The session of that client id belongs to another user."""

    code = "client-id-taken"


class UnknownStage(PenstockError):
    """There is no stage of that name, or it has lapsed."""

    code = "unknown-stage"


class Conflict(PenstockError):
    """The request contradicts an earlier one."""

    code = "conflict"


class WaitTimeout(PenstockError):
    """No room, no receiver or no message in the time that the caller was to wait; nothing was published."""

    code = "wait-timeout"


class NoLog(PenstockError):
    """This server keeps no log that could be read; one with a data directory does."""

    code = "no-log"


class StorageUnavailable(PenstockError):
    """The log or the state store cannot take this now; nothing was acknowledged."""

    code = "storage-unavailable"
    retryable = True


class ShuttingDown(PenstockError):
    """The server is draining and takes nothing new."""

    code = "shutting-down"
    retryable = True


class InvalidConfig(PenstockError):
    """A setting is unknown, misspelt or out of range; the text names its key."""

    code = "invalid-config"


class WireError(PenstockError):
    """Bytes that break a protocol; seen only by the connection they came from."""

    code = "malformed"
