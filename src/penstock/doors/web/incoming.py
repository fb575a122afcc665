"""From JSON to runs: one message, or a list of them.

Everything about the form of a message is checked here; whether it may be published is core's to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, TypeVar

from msgspec import UNSET, DecodeError, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from penstock.core.receipts import MAX_ID_BYTES
from penstock.core.settings import TopicLimits
from penstock.core.topics import check_topic
from penstock.doors.web.sending import Refused
from penstock.errors import InvalidRequest, PenstockError, TooLarge
from penstock.model import NEVER, Door, Properties, Run, bare_shape
from penstock.wire.jsonvalue import payload_of

JSON = "application/json"
MAX_MESSAGES = 10_000
"""Most messages of one body."""
MAX_TEXTS_BYTES = 65_535
"""Most that all texts may have together that travel with a payload; MQTT has no room for a longer one."""
MAX_TTL_MS = 0xFFFFFFFF * 1000
T = TypeVar("T")

Qos = Annotated[int, Meta(ge=0, le=2)]
Lifetime = Annotated[int, Meta(ge=1, le=MAX_TTL_MS)]
TopicText = Annotated[str, Meta(extra_json_schema={"format": "topic", "minLength": 1})]
MessageId = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_ID_BYTES})]


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
    """How long it lives; without it the topic's setting counts."""
    content_type: str | None = None
    """Of `data` it is application/json, unless given."""
    correlation_id: str | None = None
    response_topic: TopicText | None = None
    message_id: MessageId | None = None
    """Published again to the same topic within a while, it is not published twice."""
    properties: dict[str, str | list[str]] | None = None


_one = Decoder(NewMessage)
_many = Decoder(list[NewMessage])
_items = Decoder(list[Raw])
_USUAL = {None: None, JSON: Properties(content_type=JSON)}
"""What travels with most messages, by their content type."""
_NOTHING = (None, None, None)


def read_message(body: bytes, limits: TopicLimits) -> Run:
    """The run of a message as JSON.

    Raises:
        PenstockError: it is none.
    """
    return run_of(_decode(_one, body), limits)


def read_messages(body: bytes, limits: TopicLimits) -> list[Run]:
    """The runs of a list of messages as JSON.

    Raises:
        PenstockError: it is no list, or too long.
        Refused: some of its messages are none.
    """
    messages: Sequence[NewMessage | Raw] | None = _try_many(body)
    if messages is None:
        messages = _decode(_items, body)  # then some are wrong, and we say which
    if len(messages) > MAX_MESSAGES:
        raise TooLarge(f"there are {len(messages)} messages and {MAX_MESSAGES} are allowed")
    runs: list[Run] = []
    errors: dict[int, PenstockError] = {}
    for index, message in enumerate(messages):
        try:
            whole = _decode(_one, message) if isinstance(message, Raw) else message
            runs.append(run_of(whole, limits))
        except PenstockError as error:
            errors[index] = error
    if errors:
        raise Refused(errors)
    return runs


def _try_many(body: bytes) -> list[NewMessage] | None:
    """All messages in one go, if nothing is wrong with any of them."""
    try:
        return _decode(_many, body)
    except InvalidRequest:
        return None


def _decode(decoder: Decoder[T], body: bytes | Raw) -> T:
    try:
        return decoder.decode(body)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(str(error)) from None
    except RecursionError:
        raise InvalidRequest("this JSON is nested too deeply") from None


def run_of(message: NewMessage, limits: TopicLimits) -> Run:
    """The run of a message.

    Raises:
        PenstockError: it has no payload or two of them, or one of its texts cannot travel.
    """
    content_type = message.content_type
    if isinstance(message.data, Raw) and message.payload is UNSET:
        payload = payload_of(message.data)
        if content_type is None and payload == bytes(message.data):
            content_type = JSON
    elif isinstance(message.payload, str) and message.data is UNSET:
        payload = message.payload.encode()
    else:
        raise InvalidRequest("a message has either data or payload")
    properties = _properties_of(message, content_type)
    check_properties(properties, limits)
    ttl = NEVER if message.ttl_ms is None else message.ttl_ms / 1000
    return make_run(message.topic, payload, message.qos, message.retain, ttl, properties)


def _properties_of(message: NewMessage, content_type: str | None) -> Properties | None:
    """What travels with the payload of a message."""
    texts = (message.message_id, message.correlation_id, message.response_topic)
    if content_type in _USUAL and message.properties is None and texts == _NOTHING:
        return _USUAL[content_type]
    return Properties(
        content_type=content_type,
        correlation_id=None if message.correlation_id is None else message.correlation_id.encode(),
        response_topic=message.response_topic,
        message_id=message.message_id,
        user=tuple(_pairs(message.properties or {})),
    )


def _pairs(properties: Mapping[str, str | list[str]]) -> Iterator[tuple[str, str]]:
    for name, value in properties.items():
        for each in (value,) if isinstance(value, str) else value:
            yield name, each


def make_run(
    topic: str, payload: bytes, qos: int, retain: bool, ttl: float, properties: Properties | None
) -> Run:
    """The run of a message that came in at this door."""
    return Run(topic, payload, 0, len(payload), 1, bare_shape(Door.WEB, qos, retain), properties, ttl)


def check_properties(properties: Properties | None, limits: TopicLimits) -> None:
    """Refuse what cannot travel with a payload to every door.

    Raises:
        PenstockError: a text is no topic and should be one, holds what it may not, or there is too much.
    """
    if properties is None or properties is _USUAL[JSON]:
        return
    if properties.response_topic is not None:
        check_topic(properties.response_topic, limits)
    texts = [text for pair in properties.user for text in pair]
    texts += [text for text in (properties.content_type, properties.response_topic) if text is not None]
    sizes = [len(text.encode()) for text in texts] + [len(properties.correlation_id or b"")]
    if sum(sizes) > MAX_TEXTS_BYTES:
        raise TooLarge(f"what travels with the payload has more than {MAX_TEXTS_BYTES} bytes")
    if any("\0" in text for text in texts):
        raise InvalidRequest("the texts that travel with a payload hold no null character")
