"""Routes of the streams door: POST send, GET receive, GET health, below /api/v1/streams.

Each message goes to exactly one waiting receiver. A receive consumes its message. So a client that has
disconnected must not get one, nor a web page that could not read it, nor a HEAD request.

Decoding is strict: unknown fields and wrong types are refused. Clients expect one text for every malformed
body, so a header has the detail; texts about values are specific.
"""

import re
from asyncio import get_running_loop
from functools import partial
from typing import Annotated
from uuid import UUID

from msgspec import DecodeError, Meta, Raw, Struct, field
from msgspec.json import Decoder

from penstock.core.broker import Broker
from penstock.core.publishing.outcome import Receipt
from penstock.core.settings import StreamSettings
from penstock.core.streams.send_request import Sending
from penstock.core.streams.waiters import Handover
from penstock.doors.streams.log import LogPolls
from penstock.doors.streams.parameters import Queries, seconds_of
from penstock.doors.streams.responses import HEALTHY, INVALID, SENT, InvalidForm, fail, give, shape_of
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, WaitTimeout
from penstock.model import NEVER
from penstock.net.http.errors import STREAMS
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes
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
FOREIGN = frozenset({"cross-site", "same-site"})
"""Values of `Sec-Fetch-Site` for pages of other origins."""


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


class Receiver:
    """Hands messages to waiting requests."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._queries = Queries(broker)
        self._history = broker.history
        self._counters = broker.counters
        self._polls = LogPolls(broker)

    def take(self, request: Request) -> None:
        """Receive for a request; the response comes now or later."""
        if request.reader is None and request.header(b"sec-fetch-site") in FOREIGN:
            raise NotAuthorized("a page of another origin may not receive: see http.cors_origins")
        asked = self._queries.read(request)
        if asked.reads_log:
            self._polls.begin(request, asked)
            return

        def is_here() -> bool:
            is_here = not request.has_hung_up()
            if not is_here:  # later, because a message may be on its way back into its stream
                get_running_loop().call_soon(request.abandon)
            return is_here

        def hand_over(handover: Handover) -> bool:
            if not is_here():
                return False
            give(request, shape_of(handover.run, 0, self._history), has_position=asked.has_position)
            return True

        miss = partial(self._miss, request)
        wait = self._streams.receive(asked.topic, request.identity, asked.wait_s, hand_over, miss, is_here)
        if wait is not None:
            request.on_disconnect = wait.cancel

    def _miss(self, request: Request, error: PenstockError) -> None:
        self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)


def add_routes(table: Routes, broker: Broker) -> None:
    """Fill the listener's table. The paths without a version are older, and mean the same."""
    sender, receiver = Sender(broker), Receiver(broker)
    for prefix in STREAMS:
        table.add("POST", f"{prefix}/send", sender.take)
        table.add("GET", f"{prefix}/receive", receiver.take, waits_its_turn=True, takes_away=True)
        table.add("GET", f"{prefix}/health", respond_health, is_open=True, max_body_bytes=0)


def respond_health(request: Request) -> None:
    """Respond that streams are served."""
    request.respond(200, HEALTHY)
