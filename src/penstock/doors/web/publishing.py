"""Publishes of the web door: from request bodies, as JSON or raw, to messages of the broker.

The form of a message is checked here; core decides if it may be published. Decoding blocks the loop, so
nothing large is built just because a body is short: a list that is too long is abandoned, and properties,
names with a text or a list of texts, are decoded one message at a time, if they are not too long. Their
number is limited for a whole body.

A publisher that is blocked under `block` waits before it publishes more, and before its response.
"""

import re
from collections.abc import Callable, Collection, ItemsView, Sequence
from threading import local
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote

import structlog
from msgspec import UNSET, DecodeError, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from penstock.common.topics import TopicLimits
from penstock.core.broker import Broker, ListReceipt, Receipt, Refused, Steps
from penstock.core.ports.log import Ticket
from penstock.core.publishing.properties import MAX_ID_BYTES, MAX_TTL_MS, check_properties
from penstock.core.sessions.session import Session
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, StorageUnavailable, TooLarge
from penstock.model import Door, Properties
from penstock.net.http.request import Request
from penstock.runs import NEVER, Run, bare_shape
from penstock.wire.json_values import read_value

log = structlog.get_logger("penstock.web")

T = TypeVar("T")
MAX_TEXT_BYTES = 256 * 1024
"""Most that the properties of a message may have as JSON; what can travel needs less, even with escapes."""
MAX_PAIRS = 100_000
"""Most properties of all messages of one body."""
SCHEMA = {
    "type": ["object", "null"],
    "additionalProperties": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
    },
}
"""JSON schema of properties."""

Pairs = tuple[tuple[str, str], ...]

_decoder = Decoder(dict[str, str | list[str]] | None)
JSON = "application/json"
MAX_MESSAGES = 10_000
"""Most messages of one body."""
MAX_ERRORS = 100
"""After this many invalid messages the rest is not decoded."""
MAX_CUT = 200_000
"""A list with more commas is not cut into its messages, to be decoded in steps."""
MESSAGES_A_STEP = 200
"""Messages of a list that are decoded in one step."""
Qos = Annotated[int, Meta(ge=0, le=2)]
Lifetime = Annotated[int, Meta(ge=1, le=MAX_TTL_MS)]
TopicText = Annotated[str, Meta(extra_json_schema={"format": "topic", "minLength": 1})]
MessageId = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_ID_BYTES})]
_items = Decoder(list[Raw])
_TOO_MANY = f"one body may have {MAX_MESSAGES} messages"
_PLACE = re.compile(r"(?<= - at `\$)\[(\d+)\](?=[^`]*`$)")
"""Index of a list item in an error text."""
_USUAL = {None: None, JSON: Properties(content_type=JSON)}
"""Properties of most messages, by content type."""
_NOTHING = (None, None, None)
FORM = "application/x-www-form-urlencoded"
"""Content type that curl sends by default; it is ignored."""
PREFIX = b"penstock-"
_TEXT: dict[str, Any] = {"type": "string"}
_TOPIC = _TEXT | {"format": "topic", "minLength": 1}
PARAMETERS: list[dict[str, Any]] = [
    {"name": name, "in": place, "required": False, "description": text, "schema": schema}
    for name, place, schema, text in (
        ("topic", "query", _TOPIC, "The topic, if the body is the payload and nothing else."),
        ("Penstock-Topic", "header", _TOPIC, "The same as percent-encoded UTF-8, like all texts here."),
        ("Penstock-Qos", "header", {"type": "integer", "minimum": 0, "maximum": 2}, "1 if it is not given."),
        ("Penstock-Retain", "header", {"type": "boolean"}, "Keep it as the value of its topic."),
        ("Penstock-Ttl-Ms", "header", {"type": "integer", "minimum": 1}, "How long it lives."),
        ("Penstock-Message-Id", "header", _TEXT, "Published once, however often it is sent."),
        ("Penstock-Correlation-Id", "header", _TEXT, "Travels with the payload."),
        ("Penstock-Response-Topic", "header", _TOPIC, "Travels with the payload."),
        ("Penstock-Property", "header", _TEXT, "`name=value`; the header may be repeated."),
    )
]
"""OpenAPI parameters."""
_WISHES = ("topic", "qos", "retain", "ttl-ms", "message-id", "correlation-id", "response-topic")
_YES_OR_NO = {"true": True, "1": True, "false": False, "0": False}


def decode(decoder: Decoder[T], text: bytes | Raw, where: str = "") -> T:
    """Decode a text.

    Args:
        where: prefix of the error text.

    Raises:
        InvalidRequest: not JSON, or not of the decoder's type.
    """
    try:
        return decoder.decode(text)
    except DecodeError as error:
        raise InvalidRequest(f"{where}{error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{where}JSON is UTF-8, and this is not") from None
    except RecursionError:
        raise InvalidRequest(f"{where}this JSON is nested too deeply") from None


class PairReader:
    """Decodes the properties of the messages of one body."""

    def __init__(self) -> None:
        self._room = MAX_PAIRS

    def read(self, text: Raw) -> Pairs:
        """The properties of a message, in their order.

        Raises:
            InvalidRequest: they are none, or a name has no value.
            TooLarge: they are longer than any that can travel, or the body has too many.
        """
        if len(memoryview(text)) > MAX_TEXT_BYTES:
            raise TooLarge(f"the properties of a message may have {MAX_TEXT_BYTES} bytes as JSON")
        if self._room < 0:
            raise TooLarge(f"the messages of one body may have {MAX_PAIRS} properties")
        found = decode(_decoder, text, "properties: ") or {}
        pairs = _flat(found)
        self._room -= max(len(found), len(pairs))
        if self._room < 0:
            raise TooLarge(f"the messages of one body may have {MAX_PAIRS} properties")
        if [] in found.values():
            raise InvalidRequest("properties: a name has a text, or a list of at least one")
        return pairs


def _flat(found: dict[str, str | list[str]]) -> Pairs:
    if list not in map(type, found.values()):  # as usual
        return tuple(cast("ItemsView[str, str]", found.items()))
    return tuple(
        (name, each)
        for name, value in found.items()
        for each in ((value,) if isinstance(value, str) else value)
    )


class NewMessage(Struct, forbid_unknown_fields=True, kw_only=True):
    """A message to publish: a topic, either `data` or `payload`, and how it is to travel."""

    topic: TopicText
    data: Raw | UnsetType = UNSET
    """Any JSON value, and the payload is its text; `{"$bytes": "<base64>"}` is any bytes."""
    payload: str | UnsetType = UNSET
    """Text, and the payload is its UTF-8."""
    qos: Qos = 1
    retain: bool = False
    ttl_ms: Lifetime | None = None
    """Lifetime; without it the topic's setting applies."""
    content_type: str | None = None
    """Of `data` it is application/json, unless given."""
    correlation_id: str | None = None
    response_topic: TopicText | None = None
    message_id: MessageId | None = None
    """Idempotency key: repeated to the same topic within a time, it is not published twice."""
    properties: Annotated[Raw, Meta(extra_json_schema=SCHEMA)] | UnsetType = UNSET
    """A text for each name, or a list of texts."""


class _Listed(NewMessage):
    """A message of a list; the first of those that are too many ends the reading of it."""

    def __post_init__(self) -> None:
        _list.length += 1
        if _list.length > MAX_MESSAGES:
            raise TooLarge(_TOO_MANY)


class _List(local):
    """The list that is being read."""

    length = 0


_list = _List()
_one = Decoder(NewMessage)
_many = Decoder(list[_Listed])


def read_message(body: bytes, limits: TopicLimits) -> Run:
    """The run of a message as JSON.

    Raises:
        PenstockError: it is none.
    """
    return run_of(decode(_one, body), limits, PairReader())


def read_messages(body: bytes, limits: TopicLimits) -> Steps[list[Run]]:
    """The runs of a list of messages as JSON, in steps.

    Raises:
        PenstockError: it is not a list, or too long.
        Refused: some of its messages are none.
    """
    runs: list[Run] = []
    errors: dict[int, PenstockError] = {}
    pairs = PairReader()
    for index, message in enumerate(_list_of(body)):
        if index and index % MESSAGES_A_STEP == 0:
            yield
        try:
            whole = decode(_one, message) if isinstance(message, Raw) else message
            runs.append(run_of(whole, limits, pairs))
        except PenstockError as error:
            errors[index] = error
            if len(errors) == MAX_ERRORS:
                break
    if errors:
        raise Refused(errors)
    return runs


def _list_of(body: bytes) -> Sequence[NewMessage | Raw]:
    """The messages of a list, each still to be decoded; a list with very many parts is decoded at once."""
    if body.count(b",") <= MAX_CUT:
        items = decode(_items, body)
        if len(items) > MAX_MESSAGES:
            raise TooLarge(_TOO_MANY)
        return items
    _list.length = 0
    try:
        return decode(_many, body)
    except InvalidRequest as error:
        place = _PLACE.search(str(error))
        if place is None:
            raise
        text = _PLACE.sub("", str(error)).removesuffix(" - at `$`")
        raise Refused({int(place[1]): InvalidRequest(text)}) from None


def run_of(message: NewMessage, limits: TopicLimits, pairs: PairReader) -> Run:
    """The run of a message.

    Raises:
        PenstockError: it has no payload or two of them, or one of its texts cannot travel.
    """
    content_type = message.content_type
    if isinstance(message.data, Raw) and message.payload is UNSET:
        payload, is_json = read_value(message.data)
        if content_type is None and is_json:
            content_type = JSON
    elif isinstance(message.payload, str) and message.data is UNSET:
        payload = message.payload.encode()
    else:
        raise InvalidRequest("a message has either data or payload")
    properties = _properties_of(message, content_type, pairs)
    if properties is not None and properties is not _USUAL[JSON]:
        check_properties(properties, limits)
    ttl = NEVER if message.ttl_ms is None else message.ttl_ms / 1000
    return make_run(message.topic, payload, message.qos, message.retain, ttl, properties)


def _properties_of(message: NewMessage, content_type: str | None, pairs: PairReader) -> Properties | None:
    """Return the properties of a message."""
    texts = (message.message_id, message.correlation_id, message.response_topic)
    if content_type in _USUAL and message.properties is UNSET and texts == _NOTHING:
        return _USUAL[content_type]
    return Properties(
        content_type=content_type,
        correlation_id=None if message.correlation_id is None else message.correlation_id.encode(),
        response_topic=message.response_topic,
        message_id=message.message_id,
        user=pairs.read(message.properties) if isinstance(message.properties, Raw) else (),
    )


def make_run(
    topic: str, payload: bytes, qos: int, retain: bool, ttl: float, properties: Properties | None
) -> Run:
    """Make a run of this door."""
    return Run(topic, payload, 0, len(payload), 1, bare_shape(Door.WEB, qos, retain), properties, ttl)


def topic_of(request: Request) -> str | None:
    """The topic of a message whose payload is the body; None if it is in the body.

    Raises:
        InvalidRequest: it is given twice, or something else is given without it.
    """
    is_described = any(name.startswith(PREFIX) for name, _ in request.headers)
    if not is_described and not request.query:
        return None
    parameters = request.parameters()
    topic, header = parameters.pop("topic", None), request.header(b"penstock-topic")
    if parameters:
        raise InvalidRequest(f"there is no parameter {next(iter(parameters))!r} here")
    if topic is not None and header is not None:
        raise InvalidRequest("the topic is given twice")
    if topic is None and header is None and is_described:
        raise InvalidRequest("with headers of this kind the topic is in the query or in Penstock-Topic")
    return topic if header is None else _text_of("topic", header)


def read_bytes(topic: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, limits: TopicLimits) -> Run:
    """The run of a message whose payload is the body.

    Raises:
        PenstockError: one of its headers says something that cannot be.
    """
    wishes, pairs = _wishes_of(headers)
    correlation_id = wishes.get("correlation-id")
    properties = Properties(
        content_type=_content_type(headers),
        correlation_id=None if correlation_id is None else correlation_id.encode(),
        response_topic=wishes.get("response-topic"),
        message_id=wishes.get("message-id"),
        user=tuple(pairs),
    )
    check_properties(properties, limits)
    qos = _number("qos", wishes.get("qos", "1"), 0, 2)
    ttl_ms = _number("ttl-ms", wishes["ttl-ms"], 1, MAX_TTL_MS) if "ttl-ms" in wishes else 0
    retain = wishes.get("retain", "false").lower()
    if retain not in _YES_OR_NO:
        raise InvalidRequest("Penstock-Retain is true or false")
    return make_run(topic, body, qos, _YES_OR_NO[retain], ttl_ms / 1000, properties)


def _wishes_of(headers: Sequence[tuple[bytes, bytes]]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the `Penstock-` headers by name without the prefix, and the properties among them."""
    wishes: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for header, value in headers:
        if not header.startswith(PREFIX):
            continue
        name = header.removeprefix(PREFIX).decode("latin-1")
        if name == "property":
            key, equals, rest = value.decode("latin-1").partition("=")
            if not equals:
                raise InvalidRequest("Penstock-Property is name=value")
            pairs.append((_text_of(name, key), _text_of(name, rest)))
        elif name not in _WISHES:
            raise InvalidRequest(f"there is no header Penstock-{name.title()}")
        elif name in wishes:
            raise InvalidRequest(f"Penstock-{name.title()} was given twice")
        else:
            wishes[name] = _text_of(name, value.decode("latin-1"))
    return wishes, pairs


def _text_of(name: str, value: str) -> str:
    """Decode the text of a `Penstock-` header, percent-encoded where it is not plain ASCII."""
    try:
        return unquote(value.encode("ascii").decode(), errors="strict")
    except UnicodeError:
        raise InvalidRequest(f"Penstock-{name.title()} is percent-encoded UTF-8") from None


def _content_type(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    for header, value in headers:
        if header == b"content-type":
            return None if value.startswith(FORM.encode()) else value.decode("latin-1")
    return None


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidRequest(f"Penstock-{name.title()} is a number from {least} to {most}")
    return int(text)


def send(
    broker: Broker,
    request: Request,
    run: Run,
    done: Callable[[Request, Receipt], None],
    refuse: Callable[[Request, PenstockError], None],
) -> None:
    """Publish a message, and call back after its commit, or with the error."""
    sender = broker.request_sender(request.identity, Door.WEB)

    def publish() -> None:
        if request.is_disconnected:
            return  # while it waited
        try:
            receipt = broker.publish_once(run, sender)
        except PenstockError as error:
            _count(broker, (error,))
            refuse(request, error)
        else:
            _settle(
                broker, sender, receipt.ticket, lambda: done(request, receipt), lambda e: refuse(request, e)
            )

    broker.when_unblocked(sender, publish)


def send_all(
    broker: Broker,
    request: Request,
    done: Callable[[Request, list[Receipt]], None],
    refuse: Callable[[Request, PenstockError | Refused], None],
) -> None:
    """Publish the list of a request's body: all messages or none; then the errors are reported by index.

    That is done in steps. Requests behind it on its connection begin when the list is published.
    """
    sender = broker.request_sender(request.identity, Door.WEB)
    request.is_exclusive = True

    def publish(runs: list[Run]) -> None:
        if not request.is_disconnected:  # while it waited
            broker.run_steps(broker.publish_each(runs, sender), settle, fail)

    def settle(published: ListReceipt) -> None:
        def respond(failure: Exception | None) -> None:
            error = failure or published.failure  # of the last part, or of an earlier one
            if error is None:
                broker.when_acknowledgeable(sender, lambda: done(request, published.receipts))
            else:
                refuse(request, _storage_error(error))

        if published.failure is None:
            broker.when_committed(published.ticket, respond)
        else:
            respond(published.failure)
        request.share_connection()

    def fail(error: Exception) -> None:
        if isinstance(error, Refused):
            _count(broker, error.errors.values())
            refuse(request, error)
        elif isinstance(error, PenstockError):
            refuse(request, error)
        else:
            log.error("list not published", exc_info=error)
            request.fail_internally()

    def refuse_form(error: Exception) -> None:
        if isinstance(error, Refused):  # of messages that are none, nothing was tried
            refuse(request, error)
        else:
            fail(error)

    broker.run_steps(
        read_messages(request.body, broker.settings.topic),
        lambda runs: broker.when_unblocked(sender, lambda: publish(runs)),
        refuse_form,
    )


def _settle(
    broker: Broker,
    sender: Session,
    ticket: Ticket | None,
    done: Callable[[], None],
    refuse: Callable[[PenstockError], None],
) -> None:
    def settle(failure: Exception | None) -> None:
        if failure is None:
            broker.when_acknowledgeable(sender, done)
        else:
            refuse(_storage_error(failure))

    broker.when_committed(ticket, settle)


def _storage_error(failure: Exception) -> PenstockError:
    return failure if isinstance(failure, PenstockError) else StorageUnavailable(str(failure))


def _count(broker: Broker, errors: Collection[PenstockError]) -> None:
    broker.counters.publishes_refused += len(errors)
    broker.counters.actions_forbidden += sum(isinstance(error, NotAuthorized) for error in errors)
