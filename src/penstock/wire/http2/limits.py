"""Limits of one connection: buffers, windows, and rates of frames that carry nothing.

Each such frame is legal, but thousands of them are an attack.
"""

from typing import Final

from msgspec import Struct

from penstock.wire.http2.errors import ConnectionFault, ErrorCode

DEFAULT_WINDOW_BYTES = 65_535
"""Initial size of every window (RFC 9113 section 6.9.2)."""
MAX_WINDOW_BYTES = 2**31 - 1
DEFAULT_FRAME_BYTES = 16_384
MAX_FRAME_BYTES = 2**24 - 1
DEFAULT_TABLE_BYTES = 4_096
"""Size of both dynamic header tables; we never announce another."""
TOO_LARGE_COST: Final = 20
"""Control frames that a header list beyond its limit counts as: it was decoded for nothing."""
STREAMS_PER_CHARGE: Final = 10
"""A new window for all streams costs as many control frames more as there are tens of them."""


class Limits(Struct, frozen=True, kw_only=True):
    """Limits that one side announces and enforces.

    If bodies wait until a message is complete, the windows must hold it. Windows are at least 65,535 bytes: a
    peer uses that much before it has read the announcement.

    Args:
        streams: open at once; a server refuses more, which may be sent again, and a client starts no more.
        stream_window_bytes: of a body that its owner has not consumed.
        connection_window_bytes: of all bodies together that their owners have not consumed.
        frame_bytes: of a frame's payload.
        header_list_bytes: of a message's decoded header fields, each counted with 32 bytes more.
        control_frames_per_s: frames that cause work and carry nothing: RST_STREAM, PING, SETTINGS, GOAWAY,
            CONTINUATION, empty DATA, and frames that make us reset a stream.
        light_frames_per_s: cheap frames: PRIORITY, unknown ones, WINDOW_UPDATEs beyond those that acknowledge
            DATA, and RST_STREAM of a server.
    """

    streams: int = 1_000
    stream_window_bytes: int = 1_048_576
    connection_window_bytes: int = 16_777_216
    frame_bytes: int = DEFAULT_FRAME_BYTES
    header_list_bytes: int = 16_384
    control_frames_per_s: int = 2_000
    light_frames_per_s: int = 20_000

    def __post_init__(self) -> None:
        for name in ("stream_window_bytes", "connection_window_bytes"):
            if not DEFAULT_WINDOW_BYTES <= getattr(self, name) <= MAX_WINDOW_BYTES:
                raise ValueError(f"{name} must be from {DEFAULT_WINDOW_BYTES} to {MAX_WINDOW_BYTES}")
        if not DEFAULT_FRAME_BYTES <= self.frame_bytes <= MAX_FRAME_BYTES:
            raise ValueError(f"frame_bytes must be from {DEFAULT_FRAME_BYTES} to {MAX_FRAME_BYTES}")
        for name in ("streams", "header_list_bytes", "control_frames_per_s", "light_frames_per_s"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

    @property
    def header_block_bytes(self) -> int:
        """Of header fields as they come: no coding of an allowed list is longer (RFC 7541 section 5.2)."""
        return 4 * self.header_list_bytes


class Allowance:
    """This many of something in a second, and as many at once; time is handed in with each."""

    __slots__ = ("_left", "_per_s", "_updated_at")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._updated_at: float | None = None

    def use(self, now: float, count: float = 1) -> None:
        """Use some of it.

        Raises:
            ConnectionFault: too little is left.
        """
        if self._updated_at is not None and now > self._updated_at:
            self._left = min(self._left + (now - self._updated_at) * self._per_s, float(self._per_s))
        self._updated_at = now if self._updated_at is None else max(now, self._updated_at)
        self._left -= count
        if self._left < 0:
            text = f"more than {self._per_s} frames in a second that carry nothing"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
