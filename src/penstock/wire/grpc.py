"""gRPC over HTTP/2 as bytes and values: messages, metadata, deadlines and status.

It follows the protocol's own description ("gRPC over HTTP2"). Requests may be compressed with gzip;
responses are not compressed. Methods and the contents of messages are not known here.
"""

import binascii
import re
import zlib
from collections.abc import Iterable
from enum import IntEnum
from struct import Struct as Layout

from penstock.errors import WireError
from penstock.wire.http2 import Field, encode_headers

PREFIX_BYTES = 5
"""Before every message: whether it is compressed, and its length."""
ACCEPTED_ENCODINGS = b"identity,gzip"

_PREFIX = Layout(">BI")
_GZIP_WINDOW_BITS = 31
_MAX_MESSAGE_TEXT = 1_024
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_CONTENT_TYPE = re.compile(rb"application/grpc(\+proto)?[ \t]*(;.*)?", re.DOTALL)
_UNQUOTED = frozenset(range(0x20, 0x7F)) - {0x25}
_NOT_METADATA = frozenset((b"te", b"content-type", b"content-length", b"host"))


class Status(IntEnum):
    """Outcome of a call. Names follow the protocol."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallFault(WireError):
    """A call that breaks the protocol; it ends with this status, and the connection continues."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class MessageReader:
    """Finds messages in a body, however it is cut.

    After bad bytes `error` is set and nothing more is read; messages before them are still returned.

    Args:
        limit_bytes: of a message, compressed or not.
        encoding: the value of the request's `grpc-encoding`, which was checked.
    """

    __slots__ = ("_buffer", "_is_gzip", "_limit_bytes", "_needed_bytes", "error")

    def __init__(self, limit_bytes: int, encoding: bytes = b"identity") -> None:
        self.error: CallFault | None = None
        self._limit_bytes = limit_bytes
        self._is_gzip = encoding == b"gzip"
        self._buffer = bytearray()  # not a list of parts: a part of a few bytes would weigh ten times as much
        self._needed_bytes = PREFIX_BYTES  # until a message arrives

    @property
    def held_bytes(self) -> int:
        """Bytes received of an incomplete message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """All messages that are whole now."""
        if self.error is not None:
            return []
        if self._buffer or len(data) < PREFIX_BYTES:
            self._buffer += data
            if len(self._buffer) < self._needed_bytes:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        messages: list[bytes] = []
        try:
            position = self._split(data, messages)
        except CallFault as fault:
            self.error = CallFault(fault.status, str(fault))  # without the frames that led to it
        else:
            self._buffer += data[position:]
        return messages

    def finish(self) -> None:
        """The body has ended; if that was within a message, `error` is set."""
        if self._buffer and self.error is None:
            self.error = CallFault(Status.INTERNAL, "the body ends within a message")

    def _split(self, data: bytes, messages: list[bytes]) -> int:
        """Position of the first incomplete message."""
        position, end = 0, len(data)
        while end - position >= PREFIX_BYTES:
            is_compressed, size = _PREFIX.unpack_from(data, position)
            start = position + PREFIX_BYTES
            stop = start + size
            if is_compressed or size > self._limit_bytes:
                self._check_prefix(is_compressed, size)
            if stop > end:
                self._needed_bytes = stop - position
                return position
            message = data[start:stop]
            messages.append(self._inflate(message) if is_compressed else message)
            position = stop
        self._needed_bytes = PREFIX_BYTES
        return position

    def _check_prefix(self, is_compressed: int, size: int) -> None:
        if is_compressed > 1:
            raise CallFault(Status.INTERNAL, f"a message with {is_compressed} where 0 or 1 belongs")
        if is_compressed and not self._is_gzip:
            raise CallFault(Status.INTERNAL, "a compressed message in a call without grpc-encoding")
        if size > self._limit_bytes:
            raise self._too_large(f"message of {size} bytes")

    def _inflate(self, data: bytes) -> bytes:
        stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            # One byte more than allowed is requested, to detect a larger message.
            message = stream.decompress(data, self._limit_bytes + 1)
        except zlib.error:
            raise CallFault(Status.INTERNAL, "a message that is not gzip") from None
        if len(message) > self._limit_bytes:
            raise self._too_large(f"message of more than {self._limit_bytes} bytes when inflated")
        if not stream.eof or stream.unused_data:
            raise CallFault(Status.INTERNAL, "a message that is more or less than one gzip stream")
        return message

    def _too_large(self, text: str) -> CallFault:
        return CallFault(
            Status.RESOURCE_EXHAUSTED, f"too-large: {text}, at most {self._limit_bytes} are taken"
        )


def check_encoding(encoding: bytes) -> None:
    """Check that messages may be compressed as a `grpc-encoding` says.

    Raises:
        CallFault: they may not.
    """
    if encoding not in (b"identity", b"gzip"):
        raise CallFault(Status.UNIMPLEMENTED, "messages may be compressed with gzip, and with nothing else")


def encode_message(message: bytes) -> bytes:
    """One message as it stands in a body."""
    return _PREFIX.pack(0, len(message)) + message


def is_grpc(content_type: bytes) -> bool:
    """True if a content type is of calls with Protocol Buffers, which no suffix means as well."""
    return _CONTENT_TYPE.fullmatch(content_type) is not None


def decode_timeout(value: bytes) -> float:
    """Seconds that a `grpc-timeout` gives.

    Raises:
        CallFault: it is not one.
    """
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise CallFault(Status.INTERNAL, "grpc-timeout is not a number of up to 8 digits and a unit")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def decode_metadata(fields: Iterable[Field]) -> list[tuple[str, str | bytes]]:
    """Decode the metadata of a call: text, and bytes where the name ends with `-bin`.

    Fields of the protocol are left out. Several values in one `-bin` field, with commas between, are several.

    Raises:
        CallFault: a value is not what its name says.
    """
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in _NOT_METADATA or name.startswith(b"grpc-"):
            continue
        text = name.decode("ascii")
        if name.endswith(b"-bin"):
            metadata += [(text, _decode_base64(text, part)) for part in value.split(b",")]
        else:
            metadata.append((text, value.decode("latin-1")))
    return metadata


def encode_trailers(status: Status, text: str = "") -> bytes:
    """The block that ends a response."""
    return encode_headers(_status_fields(status, text))


def encode_refusal(status: Status, text: str = "") -> bytes:
    """Header block of a response without messages: only the status of the call."""
    fields = [*_HEAD_FIELDS, *_status_fields(status, text)]
    if status is Status.UNIMPLEMENTED:
        fields.append((b"grpc-accept-encoding", ACCEPTED_ENCODINGS))
    return encode_headers(fields)


def _status_fields(status: Status, text: str) -> list[Field]:
    fields = [(b"grpc-status", b"%d" % status)]
    if text:
        fields.append((b"grpc-message", quote_text(text)))
    return fields


def quote_text(text: str) -> bytes:
    """UTF-8 with everything but printable ASCII, and `%`, as `%` and two digits; long text is cut."""
    text = text[:_MAX_MESSAGE_TEXT].strip()
    data = text.encode("utf-8", "replace")
    if text.isascii() and text.isprintable() and "%" not in text:
        return data
    return b"".join(b"%c" % byte if byte in _UNQUOTED else b"%%%02X" % byte for byte in data)


def _decode_base64(name: str, value: bytes) -> bytes:
    padded = value.strip().rstrip(b"=")
    try:
        return binascii.a2b_base64(padded + b"=" * (-len(padded) % 4), strict_mode=True)
    except binascii.Error:
        raise CallFault(Status.INTERNAL, f"metadata {name} is not base64") from None


_HEAD_FIELDS: tuple[Field, ...] = ((b":status", b"200"), (b"content-type", b"application/grpc"))
HEAD = encode_headers(_HEAD_FIELDS)
"""Begins every response that has messages."""
OK_TRAILERS = encode_trailers(Status.OK)
"""Ends every response that went well."""
