"""From the body of a send to what core is to publish.

Decoding is strict: what is not a field of a send is refused, and so is what only looks like one. Senders know
one text for everything that is wrong with the form of a body, and find in a header what that is; about values
they are told more in the text itself.
"""

import re
from typing import Annotated
from uuid import UUID

from msgspec import DecodeError, Meta, Raw, Struct, field
from msgspec.json import Decoder

from penstock.core.settings import StreamSettings
from penstock.core.streams.sending import Sending
from penstock.doors.http.requests import Request
from penstock.doors.notes import shortened
from penstock.doors.streams.durations import seconds_of
from penstock.errors import InvalidRequest
from penstock.model import NEVER
from penstock.wire.jsonvalue import payload_of

JSON = "application/json"
INVALID = "invalid request schema"
DEFAULT_TTL_S = 86_400
UUID_FORM = re.compile(
    r"(?:urn:uuid:)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|[0-9a-f]{32}|\{[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}",
    re.IGNORECASE | re.ASCII,
)
"""The forms in which a UUID is written."""

BAD_JSON = {
    UnicodeDecodeError: "JSON is UTF-8, and this is not",
    RecursionError: "this JSON is nested too deeply",
}
"""What is wrong with a body where its decoder has no words for it."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class InvalidForm(InvalidRequest):
    """A body that is no send; `detail` says what is wrong with it."""

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


_decoder = Decoder(NewSend)


def read_send(request: Request, settings: StreamSettings) -> Sending:
    """What a request sends, and how long it waits.

    Raises:
        PenstockError: it is no send, or has a value that cannot be.
    """
    try:
        new = _decoder.decode(request.body)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidForm(shortened(BAD_JSON.get(type(error)) or str(error))) from None
    if UUID_FORM.fullmatch(new.message_uuid) is None:
        raise InvalidRequest(f"{INVALID}: messageUuid is not a UUID")
    if new.size is not None and new.size < 0:
        raise InvalidRequest(f"{INVALID}: inMemoryStreamSize is less than 0")
    if new.ttl_s is not None and new.ttl_s < 1:
        raise InvalidRequest(f"{INVALID}: dbTTLSeconds is less than 1")
    payload, is_stored = payload_of(new.message), bool(new.is_stored)
    wait_s = min(max(_wait_of(request, new), 0.0), settings.max_timeout_s)
    return Sending(
        topic=new.stream_id,
        payload=payload,
        message_id=new.message_uuid,
        identity=request.identity,
        capacity=None if is_stored else new.size,
        wait_s=0.0 if is_stored else wait_s,
        ttl_s=float(new.ttl_s or DEFAULT_TTL_S) if is_stored else NEVER,
        is_stored=is_stored,
        content_type=JSON if payload == bytes(new.message) else None,
        known_as=str(UUID(new.message_uuid)) if is_stored else None,
    )


def _wait_of(request: Request, new: NewSend) -> float:
    """How long the sender would wait; the query may say it in place of the body."""
    asked = request.parameters() if request.query else {}
    text = asked.pop("timeout", None)
    if asked:
        raise InvalidRequest(f"there is no parameter {next(iter(asked))!r} here")
    if text is None:
        return float(new.timeout_s or 0)
    if new.timeout_s is not None:
        raise InvalidRequest("blockingSendTimeoutSeconds and timeout say the same: give one of them")
    return seconds_of(text)
