"""A client's compressed message, inflated while it comes and never beyond its limit."""

import zlib

from penstock.doors.websocket.deflating import TAIL, Deflate
from penstock.doors.websocket.encoding import CloseCode
from penstock.doors.websocket.frames import FrameError

MAX_ENDINGS = 8
"""How often a message may end its stream of blocks and begin another. Nobody does so more than once, and each
time costs a copy of what is behind it."""


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
        """What some more of the message inflates to.

        Raises:
            FrameError: that is more than the limit, or it cannot be inflated.
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
        # One byte more than allowed is asked for: it tells what just fits from what does not.
        inflated = self._stream.decompress(data, self._left_bytes + 1)
        self._left_bytes -= len(inflated)
        if self._left_bytes < 0:
            text = f"message of more than {self._limit_bytes} bytes when inflated"
            raise FrameError(CloseCode.MESSAGE_TOO_BIG, text)
        return inflated
