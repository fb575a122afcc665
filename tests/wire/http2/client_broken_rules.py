"""Every rule of RFC 9113 that a server can break, one entry each: what it sends, and what must come of it.

The client has two open requests, on the streams 1 and 3, and has cancelled a third, on 5.
"""

from penstock.wire.http2 import Field, encode_headers
from tests.wire.http2.broken_rules import CALM, CLOSED, COMPRESSION, FLOW, PROTOCOL, SIZE, Case
from tests.wire.http2.raw_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WHOLE,
    WINDOW_UPDATE,
    frame,
    reset,
    settings,
    window_update,
)
from tests.wire.http2.raw_server import OK, response, trailers

HEAD = encode_headers(OK)
BEGUN, OVER = response(1), response(1) + trailers(1)


def _with(*fields: Field, is_last: bool = False) -> bytes:
    return response(1, is_last=is_last, fields=[*OK, *fields])


def _go_away(last_id: int) -> bytes:
    return frame(GOAWAY, 0, 0, last_id.to_bytes(4) + bytes(4))


GREETINGS = [
    Case("3.4 another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n", SIZE),
    Case("3.4 first frame is not SETTINGS", frame(PING, 0, 0, bytes(8)), PROTOCOL),
    Case("3.4 first frame is a response", BEGUN, PROTOCOL),
    Case("3.4 first frame is an unknown one", frame(0x77), PROTOCOL),
    Case("3.4 first frame is SETTINGS with ACK", frame(SETTINGS, ACK), PROTOCOL),
    Case("4.2 first frame is too long", frame(SETTINGS, payload=bytes(16_386)), SIZE),
]
"""Instead of a greeting."""

CONNECTION_ERRORS = [
    Case("4.2 frame beyond our limit", frame(DATA, 0, 1, bytes(16_385)), SIZE),
    Case("4.2 unknown frame beyond our limit", frame(0x77, 0, 1, bytes(16_385)), SIZE),
    Case("4.3 head that cannot be decoded", frame(HEADERS, WHOLE, 1, b"\x80"), COMPRESSION),
    Case("4.3 trailers that cannot be decoded", BEGUN + frame(HEADERS, WHOLE, 1, b"\xff"), COMPRESSION),
    Case("4.3 late block that cannot be decoded", frame(HEADERS, WHOLE, 5, b"\x80"), COMPRESSION),
    Case("5.1 HEADERS on an idle stream", response(7), PROTOCOL),
    Case("5.1 DATA on an idle stream", frame(DATA, 0, 7, b"x"), PROTOCOL),
    Case("5.1 RST_STREAM on an idle stream", reset(7), PROTOCOL),
    Case("5.1 WINDOW_UPDATE on an idle stream", window_update(7, 1), PROTOCOL),
    Case("5.1 CONTINUATION on an idle stream", frame(CONTINUATION, END_HEADERS, 7, HEAD), PROTOCOL),
    Case("5.1 DATA behind the server's own reset", BEGUN + reset(1) + frame(DATA, 0, 1, b"x"), CLOSED),
    Case("5.1 HEADERS behind the server's own reset", reset(1) + response(1), CLOSED),
    Case("5.1 DATA of a call that it never processed", _go_away(1) + frame(DATA, 0, 3, b"x"), CLOSED),
    Case("5.1.1 HEADERS on a stream of the server", response(2), PROTOCOL),
    Case("5.1.1 DATA on a stream of the server", frame(DATA, 0, 2, b"x"), PROTOCOL),
    Case("5.1.1 RST_STREAM on a stream of the server", reset(2), PROTOCOL),
    Case("5.1.1 WINDOW_UPDATE on a stream of the server", window_update(2, 1), PROTOCOL),
    Case("6.1 DATA on stream 0", frame(DATA, 0, 0, b"x"), PROTOCOL),
    Case("6.1 DATA with more padding than payload", BEGUN + frame(DATA, PADDED, 1, b"\x02x"), PROTOCOL),
    Case("6.1 DATA too short for its padding", BEGUN + frame(DATA, PADDED, 1), SIZE),
    Case("6.2 HEADERS on stream 0", response(0), PROTOCOL),
    Case(
        "6.2 HEADERS with more padding than payload", frame(HEADERS, WHOLE | PADDED, 1, b"\x05ab"), PROTOCOL
    ),
    Case("6.2 HEADERS too short for its padding", frame(HEADERS, WHOLE | PADDED, 1), SIZE),
    Case("6.2 HEADERS too short for its priority", frame(HEADERS, WHOLE | HAS_PRIORITY, 1, bytes(4)), SIZE),
    Case("6.3 PRIORITY on stream 0", frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    Case("6.3 PRIORITY of a wrong length, stream idle", frame(PRIORITY, 0, 9, bytes(4)), SIZE),
    Case("6.4 RST_STREAM on stream 0", reset(0), PROTOCOL),
    Case("6.4 RST_STREAM of a wrong length", frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
    Case("6.5 SETTINGS on a stream", frame(SETTINGS, 0, 1), PROTOCOL),
    Case("6.5 SETTINGS of a wrong length", frame(SETTINGS, payload=bytes(5)), SIZE),
    Case("6.5 SETTINGS with ACK and values", frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    Case("6.5.2 ENABLE_PUSH of 1", settings((2, 1)), PROTOCOL),
    Case("6.5.2 ENABLE_PUSH of 2", settings((2, 2)), PROTOCOL),
    Case("6.5.2 INITIAL_WINDOW_SIZE of 2^31", settings((4, 2**31)), FLOW),
    Case("6.5.2 MAX_FRAME_SIZE of 16383", settings((5, 16_383)), PROTOCOL),
    Case("6.5.2 MAX_FRAME_SIZE of 2^24", settings((5, 2**24)), PROTOCOL),
    Case("6.6 PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 1, (2).to_bytes(4) + HEAD), PROTOCOL),
    Case("6.7 PING on a stream", frame(PING, 0, 1, bytes(8)), PROTOCOL),
    Case("6.7 PING of a wrong length", frame(PING, 0, 0, bytes(7)), SIZE),
    Case("6.8 GOAWAY on a stream", frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    Case("6.8 GOAWAY of a wrong length", frame(GOAWAY, 0, 0, bytes(7)), SIZE),
    Case("6.8 GOAWAY with more streams than before", _go_away(1) + _go_away(3), PROTOCOL),
    Case("6.8 GOAWAY with a stream of the server", _go_away(2), PROTOCOL),
    Case("6.9 WINDOW_UPDATE of 0", window_update(0, 0), PROTOCOL),
    Case("6.9 WINDOW_UPDATE of a wrong length", frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    Case("6.9.1 window of the connection beyond 2^31-1", window_update(0, 2**31 - 65_535), FLOW),
    Case(
        "6.9.1 DATA beyond the window of the connection", BEGUN + frame(DATA, 0, 1, bytes(16_384)) * 5, FLOW
    ),
    Case("6.9.2 windows beyond 2^31-1", window_update(1, 1) + settings((4, 2**31 - 1)), FLOW),
    Case("6.10 CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1), PROTOCOL),
    Case(
        "6.10 head interrupted by a PING", frame(HEADERS, 0, 1, HEAD) + frame(PING, 0, 0, bytes(8)), PROTOCOL
    ),
    Case("6.10 head interrupted by an unknown frame", frame(HEADERS, 0, 1, HEAD) + frame(0x77), PROTOCOL),
    Case("6.10 head interrupted by HEADERS", frame(HEADERS, 0, 1, HEAD) + response(3), PROTOCOL),
    Case(
        "6.10 head goes on elsewhere",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, END_HEADERS, 3, HEAD),
        PROTOCOL,
    ),
    Case("8.1 DATA behind the end of a call", OVER + frame(DATA, 0, 1, b"x"), CLOSED),
    Case("8.1 HEADERS behind the end of a call", OVER + trailers(1), CLOSED),
    Case(
        "10.5.1 head that is too long",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, bytes(16_384)) * 5,
        CALM,
    ),
    Case("10.5.1 fields far beyond their limit", frame(HEADERS, WHOLE, 1, b"\x90" * 2_000), CALM),
]
"""With windows of 65,535 bytes; requests that are sent to their end."""

STREAM_ERRORS = [
    Case("6.3 PRIORITY of a wrong length", frame(PRIORITY, 0, 1, bytes(6)), SIZE, 1),
    Case("6.9 WINDOW_UPDATE of 0 on a stream", window_update(1, 0), PROTOCOL, 1),
    Case("6.9.1 window of a stream beyond 2^31-1", window_update(1, 2**31 - 65_535), FLOW, 1),
    Case("6.9.1 DATA beyond the window of a stream", BEGUN + frame(DATA, 0, 1, bytes(16_384)) * 5, FLOW, 1),
    Case("8.1 DATA before the head", frame(DATA, 0, 1, b"x"), PROTOCOL, 1),
    Case("8.1 the end before the head", frame(DATA, END_STREAM, 1), PROTOCOL, 1),
    Case("8.1 trailers that do not end the stream", BEGUN + frame(HEADERS, END_HEADERS, 1), PROTOCOL, 1),
    Case("8.1 a second head", BEGUN + BEGUN, PROTOCOL, 1),
    Case("8.1 pseudo-header field in trailers", BEGUN + frame(HEADERS, WHOLE, 1, b"\x88"), PROTOCOL, 1),
    Case("8.1 trailers that are too large", BEGUN + frame(HEADERS, WHOLE, 1, b"\x90" * 400), PROTOCOL, 1),
    Case("8.1 informational response that ends", frame(HEADERS, WHOLE, 1, b"\x08\x03103"), PROTOCOL, 1),
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
        _with((b"content-length", b"3")) + trailers(1),
        PROTOCOL,
        1,
    ),
    Case(
        "8.1.1 announced body that does not come", _with((b"content-length", b"3"), is_last=True), PROTOCOL, 1
    ),
    Case(
        "8.1.1 two content lengths", _with((b"content-length", b"3"), (b"content-length", b"4")), PROTOCOL, 1
    ),
    Case("8.2 upper case", _with((b"Upper", b"1")), PROTOCOL, 1),
    Case("8.2.1 line feed in a value", _with((b"x", b"a\nb")), PROTOCOL, 1),
    Case("8.2.2 connection-specific field", _with((b"connection", b"close")), PROTOCOL, 1),
    Case("8.3 pseudo-header field behind others", _with((b":status", b"200")), PROTOCOL, 1),
    Case("8.3.1 a request", response(1, fields=[(b":method", b"GET"), (b":path", b"/")]), PROTOCOL, 1),
    Case("8.3.2 no fields at all", frame(HEADERS, WHOLE, 1), PROTOCOL, 1),
    Case("8.3.2 status of two digits", response(1, fields=[(b":status", b"20")]), PROTOCOL, 1),
    Case("8.3.2 status that is not a number", response(1, fields=[(b":status", b"2OO")]), PROTOCOL, 1),
    Case("8.6 switching protocols", response(1, fields=[(b":status", b"101")]), PROTOCOL, 1),
    Case("10.5.1 fields beyond their limit", frame(HEADERS, WHOLE, 1, HEAD + b"\x90" * 400), PROTOCOL, 1),
]
"""Of a call whose request is not at its end; the others continue."""
