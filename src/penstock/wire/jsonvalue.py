"""Payloads inside JSON: a payload that is JSON stands there as it is, any other as `{"$bytes": "<base64>"}`.

Every payload has exactly one such value, and the value gives the same payload back, but for blanks around
JSON and between its parts: values hold no line ends, so that whoever writes one message a line
need not look into them. Numbers stand there as they were written, whoever can reckon with them. An object
whose only key is `$bytes` always means bytes.
"""

from base64 import b64decode, b64encode
from binascii import Error

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from penstock.errors import InvalidPayload

BYTES_KEY = "$bytes"
LINE_ENDS = b"\r\n"
"""In JSON they stand only between its parts: inside texts they are escaped."""


class Wrapped(Struct, forbid_unknown_fields=True):
    """An object that means bytes."""

    text: Raw = field(name=BYTES_KEY)


_wrapped = Decoder(Wrapped)  # which looks at an object that means something else up to its first other key
_text = Decoder(str)
_any = Decoder(Raw)


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
    """The payload that a value stands for.

    Raises:
        InvalidPayload: it holds what is no UTF-8, or says `$bytes` and then no base64.
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
    """What the only member of an object says, if its key is that of bytes; a key may have escapes."""
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
