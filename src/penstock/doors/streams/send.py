"""POST /api/v1/streams/send: decodes and publishes a message, and responds when that is certain.

Decoding is strict: unknown fields and wrong types are refused. Clients expect one text for every malformed
body, so a header has the detail; texts about values are specific.
"""

import re
from typing import Annotated
from uuid import UUID

from msgspec import DecodeError, Meta, Raw, Struct, field
from msgspec.json import Decoder

from penstock.core.broker import Broker
from penstock.core.publishing.outcome import Receipt
from penstock.core.settings import StreamSettings
from penstock.core.streams.send_request import Sending
from penstock.doors.streams.parameters import seconds_of
from penstock.doors.streams.responses import INVALID, SENT, InvalidForm, fail
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, WaitTimeout
from penstock.model import NEVER
from penstock.net.http.request import Request
from penstock.net.log_throttle import shortened
from penstock.wire.json_values import payload_of

JSON = "application/json"
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
"""Error texts where the decoder has none."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


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
    """Decode the body of a request.

    Raises:
        PenstockError: malformed, or an invalid value.
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
    """Return how long the sender would wait; the query may set it instead of the body."""
    asked = request.parameters() if request.query else {}
    text = asked.pop("timeout", None)
    if asked:
        raise InvalidRequest(f"there is no parameter {next(iter(asked))!r} here")
    if text is None:
        return float(new.timeout_s or 0)
    if new.timeout_s is not None:
        raise InvalidRequest("blockingSendTimeoutSeconds and timeout exclude each other: give one of them")
    return seconds_of(text)


class Sender:
    """Sends messages for requests, and responds to them."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._broker = broker
        self._counters = broker.counters

    def take(self, request: Request) -> None:
        """Send the message of a request; the response comes now or later."""

        def done(outcome: Receipt | PenstockError) -> None:
            if isinstance(outcome, PenstockError):
                self._refuse(request, outcome)
            else:
                request.respond(200, SENT)

        try:
            sending = read_send(request, self._broker.settings.streams)
        except InvalidForm as error:
            fail(request, error)
            return
        wait = self._streams.send(sending, done)
        if wait is not None:
            request.on_disconnect = wait.cancel

    def _refuse(self, request: Request, error: PenstockError) -> None:
        if not isinstance(error, WaitTimeout):  # which has a counter of its own
            self._counters.publishes_refused += 1
            self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)
