"""Every rule of RFC 9113 that a client can break, one entry each: what it sends, and what must come of it."""

from msgspec import Struct

from penstock.wire.http2 import PREFACE, ErrorCode, Field, encode_headers
from tests.wire.http2.raw_client import (
    ACK,
    BLOCK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    GREETING,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    POST,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WHOLE,
    WINDOW_UPDATE,
    frame,
    request,
    reset,
    settings,
    window_update,
)

PROTOCOL, FLOW, SIZE = ErrorCode.PROTOCOL_ERROR, ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.FRAME_SIZE_ERROR
CLOSED, COMPRESSION, CALM = ErrorCode.STREAM_CLOSED, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM
OPEN, ENDED = request(1, is_last=False), request(1)


class Case(Struct, frozen=True):
    """Bytes behind a greeting and how they end: a connection, or the stream of that number."""

    name: str
    data: bytes
    code: ErrorCode
    stream_id: int = 0

    def __str__(self) -> str:
        return self.name


def _with(*fields: Field) -> bytes:
    return request(1, is_last=False, fields=[*POST, *fields])


GREETINGS = [
    Case("3.4 another protocol", b"GET / HTTP/1.1\r\n\r\n", PROTOCOL),
    Case("3.4 preface with one byte wrong", PREFACE[:-2] + b"\r\r", PROTOCOL),
    Case("3.4 first frame is not SETTINGS", PREFACE + frame(PING, 0, 0, bytes(8)), PROTOCOL),
    Case("3.4 first frame is an unknown one", PREFACE + frame(0x77), PROTOCOL),
    Case("3.4 first frame is SETTINGS with ACK", PREFACE + frame(SETTINGS, ACK), PROTOCOL),
    Case("4.2 first frame is too long", PREFACE + frame(SETTINGS, payload=bytes(16_386)), SIZE),
]
"""Instead of a greeting."""

CONNECTION_ERRORS = [
    Case("4.2 frame beyond our limit", frame(DATA, 0, 1, bytes(16_385)), SIZE),
    Case("4.2 unknown frame beyond our limit", frame(0x77, 0, 1, bytes(16_385)), SIZE),
    Case("4.3 block that cannot be decoded", frame(HEADERS, WHOLE, 1, b"\x80"), COMPRESSION),
    Case("4.3 trailers that cannot be decoded", OPEN + frame(HEADERS, WHOLE, 1, b"\xff"), COMPRESSION),
    Case(
        "4.3 late block that cannot be decoded",
        _with((b"A", b"")) + frame(HEADERS, WHOLE, 1, b"\x80"),
        COMPRESSION,
    ),
    Case("5.1 DATA on an idle stream", frame(DATA, 0, 1, b"x"), PROTOCOL),
    Case("5.1 RST_STREAM on an idle stream", reset(1), PROTOCOL),
    Case("5.1 WINDOW_UPDATE on an idle stream", window_update(1, 1), PROTOCOL),
    Case("5.1 CONTINUATION on an idle stream", frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL),
    Case("5.1 DATA behind the client's own reset", OPEN + reset(1) + frame(DATA, 0, 1, b"x"), CLOSED),
    Case("5.1 HEADERS behind the client's own reset", OPEN + reset(1) + request(1), CLOSED),
    Case("5.1.1 HEADERS on a stream of the server", request(2), PROTOCOL),
    Case("5.1.1 DATA on a stream of the server", OPEN + frame(DATA, 0, 2, b"x"), PROTOCOL),
    Case("5.1.1 WINDOW_UPDATE on a stream of the server", request(5) + window_update(2, 1), PROTOCOL),
    Case("5.1.1 HEADERS on a stream that was left out", request(1) + request(5) + request(3), PROTOCOL),
    Case("5.1.1 HEADERS on a first stream that was left out", request(3) + request(1), PROTOCOL),
    Case("5.1.1 DATA on a stream that was left out", request(5) + frame(DATA, 0, 3, b"x"), PROTOCOL),
    Case("6.1 DATA on stream 0", frame(DATA, 0, 0, b"x"), PROTOCOL),
    Case("6.1 DATA with more padding than payload", OPEN + frame(DATA, PADDED, 1, b"\x02x"), PROTOCOL),
    Case("6.1 DATA too short for its padding", OPEN + frame(DATA, PADDED, 1), SIZE),
    Case("6.2 HEADERS on stream 0", frame(HEADERS, WHOLE, 0, BLOCK), PROTOCOL),
    Case(
        "6.2 HEADERS with more padding than payload", frame(HEADERS, WHOLE | PADDED, 1, b"\x05abcd"), PROTOCOL
    ),
    Case("6.2 HEADERS too short for its padding", frame(HEADERS, WHOLE | PADDED, 1), SIZE),
    Case("6.2 HEADERS too short for its priority", frame(HEADERS, WHOLE | HAS_PRIORITY, 1, bytes(4)), SIZE),
    Case("6.3 PRIORITY on stream 0", frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    Case("6.3 PRIORITY of a wrong length, stream idle", frame(PRIORITY, 0, 1, bytes(4)), SIZE),
    Case(
        "6.3 PRIORITY of a wrong length, stream of the server", OPEN + frame(PRIORITY, 0, 2, bytes(4)), SIZE
    ),
    Case("6.4 RST_STREAM on stream 0", reset(0), PROTOCOL),
    Case("6.4 RST_STREAM of a wrong length", OPEN + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
    Case("6.5 SETTINGS on a stream", OPEN + frame(SETTINGS, 0, 1), PROTOCOL),
    Case("6.5 SETTINGS of a wrong length", frame(SETTINGS, payload=bytes(5)), SIZE),
    Case("6.5 SETTINGS with ACK and values", frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    Case("6.5.2 ENABLE_PUSH of 2", settings((2, 2)), PROTOCOL),
    Case("6.5.2 INITIAL_WINDOW_SIZE of 2^31", settings((4, 2**31)), FLOW),
    Case("6.5.2 MAX_FRAME_SIZE of 16383", settings((5, 16_383)), PROTOCOL),
    Case("6.5.2 MAX_FRAME_SIZE of 2^24", settings((5, 2**24)), PROTOCOL),
    Case(
        "6.6 PUSH_PROMISE from a client",
        OPEN + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + BLOCK),
        PROTOCOL,
    ),
    Case("6.7 PING on a stream", OPEN + frame(PING, 0, 1, bytes(8)), PROTOCOL),
    Case("6.7 PING of a wrong length", frame(PING, 0, 0, bytes(7)), SIZE),
    Case("6.8 GOAWAY on a stream", OPEN + frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    Case("6.8 GOAWAY of a wrong length", frame(GOAWAY, 0, 0, bytes(7)), SIZE),
    Case("6.9 WINDOW_UPDATE of 0", window_update(0, 0), PROTOCOL),
    Case("6.9 WINDOW_UPDATE of a wrong length", frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    Case("6.9.1 window of the connection beyond 2^31-1", window_update(0, 2**31 - 65_535), FLOW),
    Case(
        "6.9.1 DATA beyond the window of the connection", _with() + frame(DATA, 0, 1, bytes(16_384)) * 5, FLOW
    ),
    Case("6.9.2 windows beyond 2^31-1", OPEN + window_update(1, 1) + settings((4, 2**31 - 1)), FLOW),
    Case("6.10 CONTINUATION of nothing", OPEN + frame(CONTINUATION, END_HEADERS, 1), PROTOCOL),
    Case(
        "6.10 block interrupted by a PING",
        frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)),
        PROTOCOL,
    ),
    Case("6.10 block interrupted by an unknown frame", frame(HEADERS, 0, 1, BLOCK) + frame(0x77), PROTOCOL),
    Case("6.10 block interrupted by HEADERS", frame(HEADERS, 0, 1, BLOCK) + request(3), PROTOCOL),
    Case(
        "6.10 block goes on elsewhere",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, END_HEADERS, 3, BLOCK),
        PROTOCOL,
    ),
    Case(
        "10.5.1 block that is too long",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, bytes(16_384)) * 5,
        CALM,
    ),
]
"""With windows of 65,535 bytes."""

STREAM_ERRORS = [
    Case("5.1 DATA behind the end", ENDED + frame(DATA, 0, 1, b"x"), CLOSED, 1),
    Case("5.1 HEADERS behind the end", ENDED + frame(HEADERS, WHOLE, 1, BLOCK), CLOSED, 1),
    Case("6.3 PRIORITY of a wrong length", OPEN + frame(PRIORITY, 0, 1, bytes(6)), SIZE, 1),
    Case("6.9 WINDOW_UPDATE of 0 on a stream", OPEN + window_update(1, 0), PROTOCOL, 1),
    Case("6.9.1 window of a stream beyond 2^31-1", OPEN + window_update(1, 2**31 - 65_535), FLOW, 1),
    Case("6.9.1 DATA beyond the window of a stream", OPEN + frame(DATA, 0, 1, bytes(16_384)) * 5, FLOW, 1),
    Case("8.1 trailers that do not end the stream", OPEN + frame(HEADERS, END_HEADERS, 1), PROTOCOL, 1),
    Case("8.1 pseudo-header field in trailers", OPEN + frame(HEADERS, WHOLE, 1, b"\x82"), PROTOCOL, 1),
    Case("8.1 trailers that are too large", OPEN + frame(HEADERS, WHOLE, 1, b"\x90" * 400), PROTOCOL, 1),
    Case(
        "8.1.1 body longer than announced",
        _with((b"content-length", b"1")) + frame(DATA, 0, 1, b"xy"),
        PROTOCOL,
        1,
    ),
    Case(
        "8.1.1 body shorter than announced",
        _with((b"content-length", b"3")) + frame(DATA, END_STREAM, 1, b"xy"),
        PROTOCOL,
        1,
    ),
    Case(
        "8.1.1 trailers before all that was announced",
        _with((b"content-length", b"3")) + frame(HEADERS, WHOLE, 1),
        PROTOCOL,
        1,
    ),
]
"""Of a stream that its owner knows."""

REFUSED_REQUESTS = [
    Case(
        "8.1.1 announced body that does not come",
        request(1, fields=[*POST, (b"content-length", b"3")]),
        PROTOCOL,
        1,
    ),
    Case("8.2 upper case", _with((b"Upper", b"1")), PROTOCOL, 1),
    Case("8.2.1 line feed in a value", _with((b"x", b"a\nb")), PROTOCOL, 1),
    Case("8.2.2 connection-specific field", _with((b"connection", b"close")), PROTOCOL, 1),
    Case("8.3 pseudo-header field behind others", _with((b":path", b"/")), PROTOCOL, 1),
    Case("8.3.1 no fields at all", frame(HEADERS, WHOLE, 1), PROTOCOL, 1),
    Case("8.3.1 a response", frame(HEADERS, WHOLE, 1, encode_headers([(b":status", b"200")])), PROTOCOL, 1),
]
"""That no owner ever hears of. All other rules about fields are with the tests of header fields."""

ALL = GREETINGS + [
    Case(case.name, GREETING + case.data, case.code, case.stream_id)
    for case in CONNECTION_ERRORS + STREAM_ERRORS + REFUSED_REQUESTS
]
