"""HTTP/2 frames (RFC 9113 section 4): found in a stream of bytes however it is cut, and made.

A frame that came is a plain tuple, because a busy connection has a hundred thousand of them in a second. What
it means is decided elsewhere; here only its length is checked, from its header, before its payload is kept.
"""

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct as Layout

from penstock.wire.http2.errors import ConnectionFault, ErrorCode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client's first bytes must be (section 3.4)."""
HEADER_BYTES = 9
MAX_STREAM_ID = 2**31 - 1
PING_BYTES = 8

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream identifier and payload."""


class FrameType(IntEnum):
    """Section 6; any other is ignored."""

    DATA = 0x0
    HEADERS = 0x1
    PRIORITY = 0x2
    RST_STREAM = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    PING = 0x6
    GOAWAY = 0x7
    WINDOW_UPDATE = 0x8
    CONTINUATION = 0x9


class Flag(IntEnum):
    """Flags of all frame types, of which some share a bit. Combined they are plain numbers."""

    END_STREAM = 0x1
    ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    PRIORITY = 0x20


class Setting(IntEnum):
    """Section 6.5.2; any other is ignored."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


HEADER = Layout(">IBI")
"""Length and type together, flags, stream identifier."""
_NUMBER = Layout(">I")
_SETTING = Layout(">HI")
_GOAWAY = Layout(">II")


class FrameReader:
    """Finds the client's preface, and then frames.

    After bad bytes `error` is set and nothing more is read; what came before them is still returned.

    Args:
        limit_bytes: of a frame's payload.
    """

    __slots__ = ("_has_preface", "_limit_bytes", "_rest", "error")

    def __init__(self, limit_bytes: int) -> None:
        self.error: ConnectionFault | None = None
        self._limit_bytes = limit_bytes
        self._has_preface = False
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are whole now."""
        if self.error is not None:
            return []
        if self._rest:
            data = self._rest + data
        position = 0
        if not self._has_preface:
            self._check_preface(data)
            if not self._has_preface:
                self._rest = data
                return []
            position = len(PREFACE)
        frames: list[Frame] = []
        limit, end, unpack = self._limit_bytes, len(data), HEADER.unpack_from
        while end - position >= HEADER_BYTES:
            size, flags, stream_id = unpack(data, position)
            start = position + HEADER_BYTES
            stop = start + (size >> 8)
            if stop - start > limit:
                text = f"frame of {stop - start} bytes, at most {limit} are taken"
                self.error = ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, text)  # section 4.2
                break
            if stop > end:
                break
            frames.append((size & 0xFF, flags, stream_id & MAX_STREAM_ID, data[start:stop]))
            position = stop
        self._rest = data[position:] if position < end else b""
        return frames

    def _check_preface(self, data: bytes) -> None:
        if not PREFACE.startswith(data[: len(PREFACE)]):
            self.error = ConnectionFault(ErrorCode.PROTOCOL_ERROR, "not the preface of HTTP/2")
        self._has_preface = self.error is None and len(data) >= len(PREFACE)


def encode_header(kind: int, flags: int, stream_id: int, size: int) -> bytes:
    """The nine bytes before a payload of that size."""
    return HEADER.pack(size << 8 | kind, flags, stream_id)


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Header and payload."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def encode_reset(stream_id: int, code: int) -> bytes:
    """RST_STREAM: a stream ends at once."""
    return encode_frame(FrameType.RST_STREAM, 0, stream_id, _NUMBER.pack(code))


def encode_window_update(stream_id: int, increment: int) -> bytes:
    """WINDOW_UPDATE: that many bytes more may be sent, on a stream or, with 0, on the connection."""
    return encode_frame(FrameType.WINDOW_UPDATE, 0, stream_id, _NUMBER.pack(increment))


def encode_settings(settings: Iterable[tuple[int, int]]) -> bytes:
    """SETTINGS with these values."""
    payload = b"".join(_SETTING.pack(name, value) for name, value in settings)
    return encode_frame(FrameType.SETTINGS, 0, 0, payload)


def encode_ping(payload: bytes, *, is_ack: bool = False) -> bytes:
    """PING with its eight bytes, or the answer to one."""
    if len(payload) != PING_BYTES:
        raise ValueError(f"a ping carries {PING_BYTES} bytes")
    return encode_frame(FrameType.PING, Flag.ACK if is_ack else 0, 0, payload)


def encode_go_away(last_stream_id: int, code: int, text: str = "") -> bytes:
    """GOAWAY: streams above this one were and will not be looked at."""
    return encode_frame(FrameType.GOAWAY, 0, 0, _GOAWAY.pack(last_stream_id, code) + text.encode())


def decode_number(payload: bytes) -> int:
    """The four bytes of RST_STREAM and WINDOW_UPDATE, all bits."""
    return int.from_bytes(payload[:4], "big")


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """Names and values of SETTINGS, in their order; the length was checked."""
    return list(_SETTING.iter_unpack(payload))


def decode_go_away(payload: bytes) -> tuple[int, int, str]:
    """The last stream, the error code and the text of GOAWAY; the length was checked."""
    last_stream_id, code = _GOAWAY.unpack_from(payload)
    return last_stream_id & MAX_STREAM_ID, code, payload[_GOAWAY.size :].decode("utf-8", "replace")


SETTINGS_ACK = encode_frame(FrameType.SETTINGS, Flag.ACK, 0)
