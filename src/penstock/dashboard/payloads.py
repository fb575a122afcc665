"""Payloads as people can read them: JSON in lines, text, or bytes in hexadecimal.

Whatever is shown is cut to a bounded length, with the true size told beside it. What has no form of its own,
such as control characters and marks that turn the direction of text, is written as its number, so that a
payload cannot look like something else than it is.
"""

from enum import StrEnum

import msgspec
from msgspec import Struct

SHOWN_BYTES = 16 << 10
"""How much of a payload is shown in full."""
SHOWN_HEX_BYTES = 1 << 10
LINE_CHARACTERS = 160
"""How much of it stands in one row of a table."""

_HEX_COLUMNS = 16
_LONGEST_CHARACTER = 4


class Kind(StrEnum):
    """What a payload seems to be."""

    EMPTY = "empty"
    JSON = "JSON"
    TEXT = "text"
    BYTES = "bytes"


class Preview(Struct, frozen=True):
    """The beginning of a payload, or all of it."""

    kind: Kind
    text: str
    size_bytes: int
    """Of the whole payload."""
    is_cut: bool


def preview(payload: bytes) -> Preview:
    """A payload in lines."""
    size = len(payload)
    if not payload:
        return Preview(Kind.EMPTY, "", 0, is_cut=False)
    head = payload[:SHOWN_BYTES]
    text = _text_of(head, is_cut=size > len(head))
    if text is None:
        dump = "\n".join(_hex_line(head, at) for at in range(0, min(size, SHOWN_HEX_BYTES), _HEX_COLUMNS))
        return Preview(Kind.BYTES, dump, size, is_cut=size > SHOWN_HEX_BYTES)
    pretty = _pretty(payload) if size <= SHOWN_BYTES else None
    if pretty is not None:
        return Preview(Kind.JSON, _visible(pretty, "\n"), size, is_cut=False)
    return Preview(Kind.TEXT, _visible(text, "\n\t"), size, is_cut=size > len(head))


def one_line(payload: bytes) -> str:
    """The beginning of a payload in a single line."""
    head = payload[: LINE_CHARACTERS * _LONGEST_CHARACTER]
    text = _text_of(head, is_cut=len(payload) > len(head))
    if text is None:
        shown = payload[: LINE_CHARACTERS // 3]
        return shown.hex(" ") + (" …" if len(payload) > len(shown) else "")
    line = " ".join(text.split())
    is_cut = len(payload) > len(head) or len(line) > LINE_CHARACTERS
    return _visible(line[:LINE_CHARACTERS]) + (" …" if is_cut else "")


def _text_of(head: bytes, *, is_cut: bool) -> str | None:
    """The text that bytes are, if they are; a character at the cut may be half."""
    for missing in range(_LONGEST_CHARACTER if is_cut else 1):
        try:
            text = head[: len(head) - missing].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def _pretty(payload: bytes) -> str | None:
    """JSON with one member a line, numbers as they were written; None if it is no JSON."""
    try:
        return msgspec.json.format(payload, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _visible(text: str, kept: str = "") -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else f"\\u{ord(each):04x}" for each in text)


def _hex_line(data: bytes, at: int) -> str:
    part = data[at : at + _HEX_COLUMNS]
    letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
    return f"{at:06x}  {part.hex(' '):<{3 * _HEX_COLUMNS - 1}}  {letters}"
