"""Validation of message properties: every door must be able to forward them."""

from penstock.common.topics import TopicLimits, check_topic
from penstock.errors import InvalidRequest, TooLarge
from penstock.model import Properties

MAX_ID_BYTES = 256


MAX_TEXTS_BYTES = 65_535
"""Most that all texts may have together that travel with a payload; MQTT has no room for a longer one."""
PAIR_BYTES = 5
"""Weight of a pair beside its texts, as MQTT encodes it; it bounds the number of pairs."""
MAX_TTL_MS = 0xFFFFFFFF * 1000
"""Longest lifetime that MQTT can express."""


def check_properties(properties: Properties, limits: TopicLimits) -> list[int]:
    """Validate properties; return the bytes of each part.

    Raises:
        PenstockError: a text is not a valid topic or holds invalid characters, or there is too much.
    """
    texts = [text for pair in properties.user for text in pair]
    if properties.content_type is not None:
        texts.append(properties.content_type)
    if properties.response_topic is not None:
        check_topic(properties.response_topic, limits)
        texts.append(properties.response_topic)
    sizes = _sizes_of(texts)
    if properties.message_id is not None:
        sizes.append(_size_of(properties.message_id))
        if not 0 < sizes[-1] <= MAX_ID_BYTES:
            raise InvalidRequest(f"a message id has 1 to {MAX_ID_BYTES} bytes, and this one has {sizes[-1]}")
    if properties.correlation_id is not None:
        sizes.append(len(properties.correlation_id))
    if sum(sizes) + PAIR_BYTES * len(properties.user) > MAX_TEXTS_BYTES:
        raise TooLarge(f"what travels with the payload has more than {MAX_TEXTS_BYTES} bytes")
    return sizes


def _sizes_of(texts: list[str]) -> list[int]:
    joined = "".join(texts)
    if joined.isascii() and "\0" not in joined:  # nearly always, and there may be thousands
        return list(map(len, texts))
    return list(map(_size_of, texts))


def _size_of(text: str) -> int:
    if "\0" in text:
        raise InvalidRequest("the texts that travel with a payload hold no null character")
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:  # half a surrogate pair
        raise InvalidRequest("what travels with a payload can be written as UTF-8") from None
