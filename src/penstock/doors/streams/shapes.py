"""Bodies of the streams door: a send as its sender writes it, and messages as receivers get them.

They are not compiled, as the functions that read and write them are: their class keywords are the format, and
the docstring of an error is in the reference.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from penstock.errors import InvalidRequest
from penstock.model import Reason

INVALID = "invalid request schema"
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class InvalidForm(InvalidRequest):
    """A body that is not a send; `detail` says what is wrong with it."""

    def __init__(self, detail: str) -> None:
        super().__init__(INVALID)
        self.detail = detail


class NewSend(Struct, forbid_unknown_fields=True, kw_only=True):
    """A send, as its sender writes it."""

    stream_id: str = field(name="streamId")
    message_uuid: str = field(name="messageUuid")
    message: Raw
    """Any JSON value, `null` as well."""
    size: Int32 | None = field(name="inMemoryStreamSize", default=None)
    timeout_s: Int32 | None = field(name="blockingSendTimeoutSeconds", default=None)
    is_stored: bool | None = field(name="writeToDB", default=None)
    ttl_s: Int32 | None = field(name="dbTTLSeconds", default=None)


class MissingShape(Struct, frozen=True):
    """Messages between the token and what is served that are not there; `first` is null if not known."""

    first: int | None
    last: int
    reason: Reason


class Received(Struct, omit_defaults=True, kw_only=True):
    """One message with the keys that clients of iPubSub know: their decoder refuses any other.

    Position, encoding and gaps are keys only on request or in a page, which iPubSub does not have: `give`.
    """

    message_id: str | None = field(name="messageUuid", default=None)
    message: Raw
    timestamp: str
    encoding: str | None = None
    sequence: int = 0
    cursor: str = ""
    token: str | None = field(name="dbResumeToken", default=None)
    missing: tuple[MissingShape, ...] = ()


class ReceivedPage(Struct, omit_defaults=True, kw_only=True):
    """Several messages of the log, and where the next page begins."""

    messages: Sequence[Received]
    token: str = field(name="dbResumeToken")
    missing: tuple[MissingShape, ...] = ()
