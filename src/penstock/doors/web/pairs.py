"""User properties as JSON: names with a text each, or with a list of texts.

A small text may hold very many of them, and reading it cannot be interrupted. So they are left as they stand
until their message is looked at, and read if they are not too long; those of one body are counted together.
"""

from collections.abc import ItemsView
from typing import cast

from msgspec import Raw
from msgspec.json import Decoder

from penstock.doors.web.decoding import decode
from penstock.errors import InvalidRequest, TooLarge

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
"""What the description of the API says of them."""

Pairs = tuple[tuple[str, str], ...]

_decoder = Decoder(dict[str, str | list[str]] | None)


class PairReader:
    """Reads the properties of the messages of one body."""

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
