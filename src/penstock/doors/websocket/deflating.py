"""Compression as it was agreed on with a client (RFC 7692), and messages that are compressed once for all.

No message refers to an earlier one, in neither direction. So one compressed frame is good for everyone who
agreed, and a connection keeps nothing between its messages.
"""

import zlib

from msgspec import Struct

from penstock.doors.websocket.encoding import compressed_header, text_frame

WINDOW_BITS = 12
"""How far back a message may refer to itself, as a power of two: ours, and a client's that lets itself be
told. Setting up a larger window costs more than it saves in messages of a few kB."""
MEMORY_LEVEL = 5
WORTHWHILE_BYTES = 64
"""Smaller messages are hardly ever smaller when compressed."""
TAIL = b"\x00\x00\xff\xff"
"""What every compressed message ends with, and nobody sends."""


class Deflate(Struct, frozen=True):
    """What a client agreed to: it may compress what it sends, every message for itself."""

    client_window_bits: int
    """How far back its messages refer."""
    server_window_bits: int
    """How far back ours may refer."""

    @property
    def takes_ours(self) -> bool:
        """It can read what is compressed for all; else it gets plain frames, which are always allowed."""
        return self.server_window_bits >= WINDOW_BITS


def deflated_frame(payload: bytes) -> bytes:
    """A text frame for all who agreed to compression; a plain one if that is not larger."""
    if len(payload) >= WORTHWHILE_BYTES:
        deflater = zlib.compressobj(wbits=-WINDOW_BITS, memLevel=MEMORY_LEVEL)
        deflated = deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)
        size = len(deflated) - len(TAIL)
        if size < len(payload):
            return compressed_header(size) + deflated[:size]
    return text_frame(payload)
