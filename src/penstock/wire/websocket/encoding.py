"""Encoding of WebSocket frames (RFC 6455) by a server: whole, unmasked, the same for all clients.

Nothing here loads the `websockets` package, so modules that only write frames can be imported early.
"""

import struct
from enum import IntEnum

from msgspec import Struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL = 0x80
COMPRESSED = 0x40
"""The first reserved bit, which permessage-deflate (RFC 7692) gives a meaning."""
WHOLE_TEXT = FINAL | TEXT
WHOLE_BINARY = FINAL | BINARY
SMALL_BYTES = 125
"""Longest payload with a length in the second byte; every control frame has one."""
TWO_BYTES, EIGHT_BYTES = 126, 127
"""Second byte of longer frames: the length follows in two or eight bytes."""


class CloseCode(IntEnum):
    """Close codes that a server sends."""

    NORMAL_CLOSURE = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    TRY_AGAIN_LATER = 1013


class FrameError(Exception):
    """A peer broke the protocol; the connection ends with this close code."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def _header(first: int, size: int) -> bytes:
    if size <= SMALL_BYTES:
        return bytes((first, size))
    if size < 0x10000:
        return struct.pack("!BBH", first, TWO_BYTES, size)
    return struct.pack("!BBQ", first, EIGHT_BYTES, size)


_SMALL_TEXTS = tuple(_header(WHOLE_TEXT, size) for size in range(SMALL_BYTES + 1))
_SMALL_BINARIES = tuple(_header(WHOLE_BINARY, size) for size in range(SMALL_BYTES + 1))


def text_header(size: int) -> bytes:
    """Header of a text frame of this size."""
    return _SMALL_TEXTS[size] if size <= SMALL_BYTES else _header(WHOLE_TEXT, size)


def binary_header(size: int) -> bytes:
    """Header of a binary frame of this size."""
    return _SMALL_BINARIES[size] if size <= SMALL_BYTES else _header(WHOLE_BINARY, size)


def compressed_header(size: int) -> bytes:
    """Header of a compressed text frame of this size."""
    return _header(WHOLE_TEXT | COMPRESSED, size)


def text_frame(payload: bytes) -> bytes:
    """A whole text frame of a server; the payload is UTF-8."""
    return text_header(len(payload)) + payload


def control_frame(opcode: int, payload: bytes) -> bytes:
    """A whole control frame of a server."""
    return bytes((FINAL | opcode, len(payload))) + payload


class Pinged(Struct, frozen=True):
    """A ping among messages, in order of arrival."""

    payload: bytes

    @property
    def pong(self) -> bytes:
        """The frame that responds to it."""
        return control_frame(PONG, self.payload)


def close_payload(code: int, text: str = "") -> bytes:
    """Encode the payload of a close frame; the reason is cut to fit, between characters."""
    reason = text.encode()[: SMALL_BYTES - 2]
    return code.to_bytes(2, "big") + reason.decode(errors="ignore").encode()
