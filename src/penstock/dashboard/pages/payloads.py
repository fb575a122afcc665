"""Payload preview: JSON with line breaks, text, or a hex dump.

A preview is cut to a bounded length and names the true size. Control characters and marks that change the
text direction are written as numbers, so that a payload cannot disguise itself.
"""

from enum import StrEnum

import msgspec
from msgspec import Struct

SHOWN_BYTES = 16 << 10
"""Maximum length of a preview."""
SHOWN_HEX_BYTES = 1 << 10
LINE_CHARACTERS = 160
"""Maximum length of a preview in one table row."""

_HEX_COLUMNS = 16
_LONGEST_CHARACTER = 4


class PayloadKind(StrEnum):
    """Detected kind of a payload."""

    EMPTY = "empty"
    JSON = "JSON"
    TEXT = "text"
    BYTES = "bytes"


class Preview(Struct, frozen=True):
    """Readable form of a payload, or of its beginning."""

    kind: PayloadKind
    text: str
    size_bytes: int
    """Size of the whole payload."""
    is_cut: bool


def preview(payload: bytes) -> Preview:
    """Preview of a payload, with line breaks."""
    size = len(payload)
    if not payload:
        return Preview(PayloadKind.EMPTY, "", 0, is_cut=False)
    head = payload[:SHOWN_BYTES]
    text = _text_of(head, is_cut=size > len(head))
    if text is None:
        dump = "\n".join(_hex_line(head, at) for at in range(0, min(size, SHOWN_HEX_BYTES), _HEX_COLUMNS))
        return Preview(PayloadKind.BYTES, dump, size, is_cut=size > SHOWN_HEX_BYTES)
    pretty = _pretty(payload) if size <= SHOWN_BYTES else None
    if pretty is not None:
        return Preview(PayloadKind.JSON, _visible(pretty, "\n"), size, is_cut=False)
    return Preview(PayloadKind.TEXT, _visible(text, "\n\t"), size, is_cut=size > len(head))


def one_line(payload: bytes) -> str:
    """Preview of a payload in a single line."""
    head = payload[: LINE_CHARACTERS * _LONGEST_CHARACTER]
    text = _text_of(head, is_cut=len(payload) > len(head))
    if text is None:
        shown = payload[: LINE_CHARACTERS // 3]
        return shown.hex(" ") + (" …" if len(payload) > len(shown) else "")
    line = " ".join(text.split())
    is_cut = len(payload) > len(head) or len(line) > LINE_CHARACTERS
    return _visible(line[:LINE_CHARACTERS]) + (" …" if is_cut else "")


def _text_of(head: bytes, *, is_cut: bool) -> str | None:
    """Bytes decoded as text, or None; at the cut, an incomplete character is dropped."""
    for missing in range(_LONGEST_CHARACTER if is_cut else 1):
        try:
            text = head[: len(head) - missing].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def _pretty(payload: bytes) -> str | None:
    """JSON with one member per line and numbers unchanged; None if it is not JSON."""
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
