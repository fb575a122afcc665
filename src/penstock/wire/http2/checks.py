"""Rules about single frames that need no state to be checked. Section numbers are of RFC 9113."""

from penstock.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from penstock.wire.http2.frames import Setting, encode_settings
from penstock.wire.http2.limits import DEFAULT_FRAME_BYTES, MAX_FRAME_BYTES, MAX_WINDOW_BYTES, Limits
from penstock.wire.http2.streams import Stream


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


def check_length(payload: bytes, size: int, name: str) -> None:
    """Whether a frame has the one length that its type allows.

    Raises:
        ConnectionFault: it has another.
    """
    if len(payload) != size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{name} of a wrong length")  # section 4.2


def check_setting(name: int, value: int) -> None:
    """Whether a setting may have this value (section 6.5.2).

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
    """Whether a body is as long as its content-length says (section 8.1.1).

    Raises:
        StreamFault: it is longer, or has ended before.
    """
    if stream.body_left is not None and (stream.body_left < 0 or (is_last and stream.body_left)):
        raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "body of another length than announced")


def encode_limits(limits: Limits) -> bytes:
    """The SETTINGS that tell a client what it may do."""
    return encode_settings(
        (
            (Setting.MAX_CONCURRENT_STREAMS, limits.streams),
            (Setting.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (Setting.MAX_FRAME_SIZE, limits.frame_bytes),
            (Setting.MAX_HEADER_LIST_SIZE, limits.header_list_bytes),
        )
    )
