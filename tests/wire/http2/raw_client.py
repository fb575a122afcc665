"""A client made of bytes: frames as nobody else would send them, and a look at what comes back."""

from collections.abc import Iterable
from struct import pack

from penstock.wire.http2 import PREFACE, ErrorCode, Event, Field, Limits, ServerConnection, encode_headers
from penstock.wire.http2.frames import Frame, FrameType

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    FrameType
)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
WHOLE = END_STREAM | END_HEADERS

POST: list[Field] = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/service/Method"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]
BLOCK = encode_headers(POST)
HEAD = encode_headers([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = encode_headers([(b"grpc-status", b"0")])


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """Header and payload, whatever they say."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + pack(">I", stream_id) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, payload=b"".join(pack(">HI", name, value) for name, value in pairs))


def window_update(stream_id: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream_id, pack(">I", increment))


def reset(stream_id: int, code: int = ErrorCode.CANCEL) -> bytes:
    """An RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, pack(">I", code))


def request(stream_id: int, *, is_last: bool = True, fields: Iterable[Field] = POST) -> bytes:
    """HEADERS of a request."""
    return frame(HEADERS, WHOLE if is_last else END_HEADERS, stream_id, encode_headers(fields))


GREETING = PREFACE + settings()


def greeted(limits: Limits | None = None, *first: bytes) -> ServerConnection:
    """A connection whose client has said hello, and these frames; nothing is left to write."""
    connection = ServerConnection(limits)
    connection.feed(GREETING + b"".join(first), 0.0)
    assert connection.error is None
    connection.drain()
    return connection


def frames_of(data: bytes) -> list[Frame]:
    """What was written, cut into frames."""
    frames: list[Frame] = []
    while data:
        size = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + size, "a frame is cut off"
        frames.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return frames


def written(connection: ServerConnection) -> list[Frame]:
    """The frames that a connection wants to write now."""
    return frames_of(connection.drain())


def body_of(frames: Iterable[Frame], stream_id: int) -> bytes:
    """All DATA of a stream, joined."""
    return b"".join(payload for kind, _, owner, payload in frames if kind == DATA and owner == stream_id)


def resets_of(frames: Iterable[Frame]) -> list[tuple[int, ErrorCode]]:
    """Which streams were reset, and why."""
    return [
        (stream_id, ErrorCode(int.from_bytes(payload, "big")))
        for kind, _, stream_id, payload in frames
        if kind == RST_STREAM
    ]


def goodbye_of(frames: Iterable[Frame]) -> tuple[int, ErrorCode] | None:
    """What the last GOAWAY said: the last stream, and why."""
    found = None
    for kind, _, _, payload in frames:
        if kind == GOAWAY:
            found = (int.from_bytes(payload[:4], "big"), ErrorCode(int.from_bytes(payload[4:8], "big")))
    return found


def kinds_of(events: Iterable[Event]) -> list[str]:
    """The names of events."""
    return [type(event).__name__ for event in events]
