"""Payloads as JSON values: JSON as it is, any other payload as `{"$bytes": "<base64>"}`; and JSON lines.

Every payload has exactly one value, and the value gives the same payload back, except for white space around
and within JSON: values hold no line ends, so that they can be written one message a line. Numbers stay as
written. An object whose only key is `$bytes` always means bytes.

A JSON line ends with a line feed; the last one need not. White space around a value, a carriage return
included, and blank lines are skipped. The values themselves are not checked.
"""

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterator
from io import BytesIO

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from penstock.errors import InvalidPayload

BYTES_KEY = "$bytes"
LINE_ENDS = b"\r\n"
"""In JSON they stand only between its parts: inside texts they are escaped."""
_text = Decoder(str)
_any = Decoder(Raw)
MEDIA_TYPE = "application/x-ndjson"


class Wrapped(Struct, forbid_unknown_fields=True):
    """An object that means bytes."""

    text: Raw = field(name=BYTES_KEY)


_wrapped = Decoder(Wrapped)  # which reads an object with other keys up to its first other key


def value_of(payload: bytes) -> Raw:
    """The value that stands for a payload."""
    try:
        _any.decode(payload)  # walks over it and builds nothing: there may be megabytes
        _check_text(payload)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return _bytes_value(payload)
    value = payload.strip()
    if value.startswith(b"{") and _unwrap(value) is not None:
        return _bytes_value(payload)  # it must not be taken for what it would mean
    return Raw(value.translate(None, LINE_ENDS) if b"\n" in value or b"\r" in value else value)


def payload_of(value: Raw) -> bytes:
    """Return the payload that a value stands for.

    Raises:
        InvalidPayload: not UTF-8, or `$bytes` without valid base64.
    """
    data = bytes(value)
    try:
        _check_text(data)
    except UnicodeDecodeError:
        raise InvalidPayload("JSON is UTF-8, and this is not") from None
    wrapped = _unwrap(data) if data.startswith(b"{") else None
    return data if wrapped is None else _bytes_of(wrapped)


def _check_text(data: bytes) -> None:
    if not data.isascii():
        data.decode()


def _unwrap(value: bytes) -> Raw | None:
    """Return the value of an object's only member if its key is `$bytes`, also with escapes."""
    if b'"$bytes"' not in value and b"\\u" not in value:
        return None
    try:
        return _wrapped.decode(value).text
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
