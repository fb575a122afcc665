"""Payloads as JSON values: JSON as it is, text as a string, any other payload as `{"$bytes": "<base64>"}`.

A string alone could be JSON or text, so text has an encoding beside its value (`"encoding": "text"`). Where a
value stands alone, text is `$bytes` too. Every payload has exactly one value, and the value gives the same
payload back, except for white space around and within JSON: values hold no line ends, so that they can be
written one message a line. Numbers stay as written. An object whose only key is `$bytes` always means bytes.
Text is UTF-8 that is not JSON and has no control characters but tabs and line ends: those are in binary
formats, which may be UTF-8 by chance.

A JSON line ends with a line feed; the last one need not. White space around a value, a carriage return
included, and blank lines are skipped. The values themselves are not checked.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterator
from io import BytesIO
from typing import Literal

from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, encode

from penstock.errors import InvalidPayload

BYTES_KEY = "$bytes"
LINE_ENDS = b"\r\n"
"""In JSON they stand only between its parts: inside texts they are escaped."""
TEXT: Literal["text"] = "text"
"""Encoding of a value that is a payload's text. JSON and `$bytes` have none."""
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_text = Decoder(str)
_any = Decoder(Raw)
MEDIA_TYPE = "application/x-ndjson"


_wrapped: Decoder[dict[str, Raw]] = Decoder(dict[Literal["$bytes"], Raw])
"""Decodes an object that means bytes, and reads one with other keys up to its first other key."""


def value_of(payload: bytes) -> Raw:
    """Return the value that stands for a payload without an encoding beside it: JSON or `$bytes`."""
    value = json_value(payload)
    return _bytes_value(payload) if value is None else value


def encode_value(payload: bytes) -> tuple[Raw, Literal["text"] | None]:
    """Return the value that stands for a payload, and the encoding beside it: `TEXT`, or None."""
    value = json_value(payload)
    return text_value(payload) if value is None else (value, None)


def text_value(payload: bytes) -> tuple[Raw, Literal["text"] | None]:
    """Return value and encoding of a payload that is not JSON: text if it is, else `$bytes`."""
    if _CONTROL.search(payload) is None:
        try:
            return Raw(encode(payload.decode())), TEXT
        except UnicodeDecodeError:
            pass
    return _bytes_value(payload), None


def json_value(payload: bytes) -> Raw | None:
    """Return a payload as a JSON value; None if it is not, or would be taken for `$bytes`."""
    try:
        _any.decode(payload)  # walks over it and builds nothing: there may be megabytes
        _check_text(payload)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    value = payload.strip()
    if value.startswith(b"{") and _unwrap(value) is not None:
        return None  # it must not be taken for what it would mean
    return Raw(value.translate(None, LINE_ENDS) if b"\n" in value or b"\r" in value else value)


def payload_of(value: Raw, encoding: str | None = None) -> bytes:
    """Return the payload that a value stands for.

    Raises:
        InvalidPayload: not UTF-8, `$bytes` without valid base64, or text that is not a string.
    """
    if encoding != TEXT:
        return read_value(value)[0]
    try:
        return _text.decode(value).encode()
    except (DecodeError, UnicodeDecodeError):
        raise InvalidPayload("a text is a JSON string") from None


def read_value(value: Raw) -> tuple[bytes, bool]:
    """Return the payload that a value without an encoding stands for, and whether that is the JSON itself.

    Raises:
        InvalidPayload: not UTF-8, or `$bytes` without valid base64.
    """
    data = memoryview(value).tobytes()  # `bytes` would take it for a number first, at ten times the cost
    try:
        _check_text(data)
    except UnicodeDecodeError:
        raise InvalidPayload("JSON is UTF-8, and this is not") from None
    wrapped = _unwrap(data) if data.startswith(b"{") else None
    return (data, True) if wrapped is None else (_bytes_of(wrapped), False)


def _check_text(data: bytes) -> None:
    if not data.isascii():
        data.decode()


def _unwrap(value: bytes) -> Raw | None:
    """Return the value of an object's only member if its key is `$bytes`, also with escapes."""
    if b'"$bytes"' not in value and b"\\u" not in value:
        return None
    try:
        return _wrapped.decode(value).get(BYTES_KEY)
    except ValidationError:
        return None


def _bytes_of(value: Raw) -> bytes:
    try:
        return b64decode(_text.decode(value), validate=True)
    except (DecodeError, Error, ValueError):
        raise InvalidPayload(f"{BYTES_KEY} is followed by base64 text") from None


def _bytes_value(payload: bytes) -> Raw:
    return Raw(b'{"$bytes":"%b"}' % b64encode(payload))


def lines_of(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Each value as it stands there, and the number of its line, from 1."""
    for number, line in enumerate(BytesIO(body), 1):  # which shares the body's bytes
        value = line.strip()
        if value:
            yield number, value
