"""HTTP/2 frames (RFC 9113 section 4): reading, encoding, and the rules that need no connection state.

A frame is a plain tuple, because a busy connection has a hundred thousand of them a second. Its length is
checked from its header, before its payload is buffered. Section numbers are of RFC 9113.
"""

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from penstock.wire.http2.limits import DEFAULT_FRAME_BYTES, MAX_FRAME_BYTES, MAX_WINDOW_BYTES, Limits
from penstock.wire.http2.streams import Stream

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""First bytes of a client (section 3.4)."""
HEADER_BYTES: Final = 9
MAX_STREAM_ID: Final = 2**31 - 1
PING_BYTES = 8
PRIORITY_BYTES = 5

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream identifier and payload."""
HEADER = Layout(">IBI")
"""Length and type together, flags, stream identifier."""
_NUMBER = Layout(">I")
_SETTING = Layout(">HI")
_GOAWAY = Layout(">II")


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


class FrameReader:
    """Finds frames, behind the preface if the peer is a client.

    After bad bytes `error` is set and nothing more is read; earlier frames are still returned.

    Args:
        limit_bytes: of a frame's payload.
        has_preface: the preface is behind us, as it always is where the peer is a server.
    """

    __slots__ = ("_has_preface", "_limit_bytes", "_rest", "error")

    def __init__(self, limit_bytes: int, *, has_preface: bool = False) -> None:
        self.error: ConnectionFault | None = None
        self._limit_bytes = limit_bytes
        self._has_preface = has_preface
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
            head: tuple[int, int, int] = unpack(data, position)
            size, flags, stream_id = head
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
    payload = b"".join([_SETTING.pack(name, value) for name, value in settings])
    return encode_frame(FrameType.SETTINGS, 0, 0, payload)


def encode_ping(payload: bytes, *, is_ack: bool = False) -> bytes:
    """PING with its eight bytes, or the response to one."""
    if len(payload) != PING_BYTES:
        raise ValueError(f"a ping carries {PING_BYTES} bytes")
    return encode_frame(FrameType.PING, Flag.ACK if is_ack else 0, 0, payload)


def encode_go_away(last_stream_id: int, code: int, text: str = "") -> bytes:
    """Encode GOAWAY; streams above `last_id` are not processed."""
    return encode_frame(FrameType.GOAWAY, 0, 0, _GOAWAY.pack(last_stream_id, code) + text.encode())


def decode_number(payload: bytes) -> int:
    """The four bytes of RST_STREAM and WINDOW_UPDATE, all bits."""
    number: int = _NUMBER.unpack_from(payload)[0]
    return number


def decode_settings(payload: bytes) -> list[tuple[int, int]]:
    """Names and values of SETTINGS, in their order.

    Raises:
        ConnectionFault: there are not whole pairs of them.
    """
    if len(payload) % _SETTING.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
    return list(_SETTING.iter_unpack(payload))


def decode_go_away(payload: bytes) -> tuple[int, int, str]:
    """The last stream, the error code and the text of GOAWAY.

    Raises:
        ConnectionFault: it is too short.
    """
    if len(payload) < _GOAWAY.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong length")
    last_stream_id, code = _GOAWAY.unpack_from(payload)
    return last_stream_id & MAX_STREAM_ID, code, payload[_GOAWAY.size :].decode("utf-8", "replace")


SETTINGS_ACK = encode_frame(FrameType.SETTINGS, Flag.ACK, 0)


def protocol_error(text: str) -> ConnectionFault:
    """The fault that most broken rules are."""
    return ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)


def strip_padding(payload: bytes) -> bytes:
    """The payload of a padded frame.

    Raises:
        ConnectionFault: there is more padding than payload.
    """
    if not payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "frame too short for its padding")
    stop = len(payload) - payload[0]
    if stop < 1:
        raise protocol_error("more padding than payload")  # sections 6.1, 6.2
    return payload[1:stop]


def strip_priority(payload: bytes) -> bytes:
    """The payload of HEADERS behind its priority.

    Raises:
        ConnectionFault: it is too short for one.
    """
    if len(payload) < PRIORITY_BYTES:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
    return payload[PRIORITY_BYTES:]


def check_length(payload: bytes, size: int, name: str) -> None:
    """Check that a frame has the one length that its type allows.

    Raises:
        ConnectionFault: it has another.
    """
    if len(payload) != size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{name} of a wrong length")  # section 4.2


def check_setting(name: int, value: int) -> None:
    """Check that a setting may have this value (section 6.5.2).

    Raises:
        ConnectionFault: it may not.
    """
    if name == Setting.ENABLE_PUSH and value > 1:
        raise protocol_error("ENABLE_PUSH is neither 0 nor 1")
    if name == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW_BYTES:
        raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE beyond 2^31-1")
    if name == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME_BYTES <= value <= MAX_FRAME_BYTES:
        raise protocol_error("MAX_FRAME_SIZE out of range")


def check_body(stream: Stream, *, is_last: bool) -> None:
    """Check that a body is as long as its content-length says (section 8.1.1).

    Raises:
        StreamFault: it is longer, or has ended before.
    """
    if stream.body_left is not None and (stream.body_left < 0 or (is_last and stream.body_left)):
        raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "body of another length than announced")


def encode_limits(limits: Limits, *, is_client: bool = False) -> bytes:
    """Encode the SETTINGS that announce our limits; a client's, that it takes no pushed streams."""
    streams = (Setting.ENABLE_PUSH, 0) if is_client else (Setting.MAX_CONCURRENT_STREAMS, limits.streams)
    return encode_settings(
        (
            streams,
            (Setting.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (Setting.MAX_FRAME_SIZE, limits.frame_bytes),
            (Setting.MAX_HEADER_LIST_SIZE, limits.header_list_bytes),
        )
    )
