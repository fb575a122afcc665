"""permessage-deflate (RFC 7692): frames compressed once for all clients, and inflation up to a limit.

No message refers to an earlier one, in either direction. So one compressed frame suits every client that
agreed, and a connection keeps no state between messages.
"""

import zlib

from msgspec import Struct

from penstock.wire.websocket.encoding import CloseCode, FrameError, compressed_header, text_frame

WINDOW_BITS = 12
"""Window as a power of two, for our messages and those of clients that accept one. A larger window costs
more to set up than it saves in messages of a few kB.
"""
MEMORY_LEVEL = 5
WORTHWHILE_BYTES = 64
"""Smaller messages are hardly ever smaller when compressed."""
TAIL = b"\x00\x00\xff\xff"
"""End of every compressed message, which is never sent."""
MAX_ENDINGS = 8
"""Limit of deflate streams in one message. No client needs more than two, and each costs a copy of the
rest."""


class Deflate(Struct, frozen=True):
    """Agreed compression: each message of the client may be compressed by itself."""

    client_window_bits: int
    """Window of the client's messages."""
    server_window_bits: int
    """Window of our messages."""

    @property
    def takes_ours(self) -> bool:
        """It can read what is compressed for all; else it gets plain frames, which are always allowed."""
        return self.server_window_bits >= WINDOW_BITS


def deflated_frame(payload: bytes) -> bytes:
    """Encode a compressed text frame; a plain one if that is not larger."""
    if len(payload) >= WORTHWHILE_BYTES:
        deflater = zlib.compressobj(wbits=-WINDOW_BITS, memLevel=MEMORY_LEVEL)
        deflated = deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)
        size = len(deflated) - len(TAIL)
        if size < len(payload):
            return compressed_header(size) + deflated[:size]
    return text_frame(payload)


class Inflater:
    """Inflates one message.

    Args:
        limit_bytes: of all that it inflates to.
    """

    __slots__ = ("_endings", "_left_bytes", "_limit_bytes", "_stream", "_window_bits")

    def __init__(self, deflate: Deflate, limit_bytes: int) -> None:
        self._window_bits = deflate.client_window_bits
        self._limit_bytes = self._left_bytes = limit_bytes
        self._stream = zlib.decompressobj(-self._window_bits)
        self._endings = 0

    def feed(self, data: bytes, *, is_last: bool) -> bytes:
        """Inflate some more of the message.

        Raises:
            FrameError: more than the limit, or invalid.
        """
        if is_last:
            data += TAIL
        try:
            inflated = self._inflate(data)
        except zlib.error as error:
            raise FrameError(CloseCode.INVALID_DATA, f"not inflatable: {error}") from None
        return inflated

    def _inflate(self, data: bytes) -> bytes:
        parts = [self._inflate_some(data)]
        while self._stream.eof and self._stream.unused_data:  # its last block had the flag for that
            self._endings += 1
            if self._endings > MAX_ENDINGS:
                raise FrameError(CloseCode.INVALID_DATA, "too many streams in one compressed message")
            data = self._stream.unused_data
            self._stream = zlib.decompressobj(-self._window_bits)
            parts.append(self._inflate_some(data))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _inflate_some(self, data: bytes) -> bytes:
        # One byte more than allowed is requested, to detect a larger message.
        inflated = self._stream.decompress(data, self._left_bytes + 1)
        self._left_bytes -= len(inflated)
        if self._left_bytes < 0:
            text = f"message of more than {self._limit_bytes} bytes when inflated"
            raise FrameError(CloseCode.MESSAGE_TOO_BIG, text)
        return inflated
