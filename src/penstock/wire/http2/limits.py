"""How much one connection may ask of a server; every buffer and every rate has its limit here."""

from msgspec import Struct

DEFAULT_WINDOW_BYTES = 65_535
"""What every window is before anybody has said otherwise (RFC 9113 section 6.9.2)."""
MAX_WINDOW_BYTES = 2**31 - 1
DEFAULT_FRAME_BYTES = 16_384
MAX_FRAME_BYTES = 2**24 - 1
DEFAULT_TABLE_BYTES = 4_096
"""Of both dynamic tables of header fields; ours is never announced to be another."""


class Limits(Struct, frozen=True, kw_only=True):
    """What a server announces and enforces.

    Whoever lets bodies wait until a message is whole has to have windows that hold it. The windows are not
    below 65,535 bytes: a client uses that much before it has seen what was announced.

    Args:
        streams: open at once; more are refused, and the client may try them again.
        stream_window_bytes: of a body that its owner has not consumed.
        connection_window_bytes: of all bodies together that their owners have not consumed.
        frame_bytes: of a frame's payload.
        header_list_bytes: of a request's decoded header fields, each counted with 32 bytes more.
        control_frames_per_s: frames that make work and carry nothing: RST_STREAM, PING, SETTINGS, GOAWAY,
            CONTINUATION, empty DATA, and whatever makes us reset a stream.
        light_frames_per_s: frames that cost little: PRIORITY, unknown ones, and WINDOW_UPDATEs beyond those
            that answer what was sent.
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
