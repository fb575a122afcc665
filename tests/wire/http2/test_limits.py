"""Floods of frames that are legal one by one: the connection ends before they cost anything."""

from collections.abc import Callable

import pytest

from penstock.wire.http2 import ErrorCode, Limits, ServerConnection, encode_headers
from penstock.wire.http2.errors import ConnectionFault
from penstock.wire.http2.limits import Allowance
from tests.wire.http2.raw_client import (
    ACK,
    BLOCK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    GREETING,
    HEAD,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    SETTINGS,
    TRAILERS,
    frame,
    greeted,
    request,
    reset,
    settings,
    window_update,
)

LIMITS = Limits(control_frames_per_s=100, light_frames_per_s=1_000, streams=10)
OPEN = request(1, is_last=False)


def rapid_reset(number: int) -> bytes:
    return request(2 * number + 3) + reset(2 * number + 3)


def made_reset(number: int) -> bytes:
    """A request whose next frame makes the server reset it (CVE-2025-8671)."""
    return request(2 * number + 3) + window_update(2 * number + 3, 0)


def malformed(number: int) -> bytes:
    return frame(HEADERS, END_HEADERS | 1, 2 * number + 3)


def oversized(number: int) -> bytes:
    return frame(HEADERS, END_HEADERS | 1, 2 * number + 3, BLOCK + b"\x90" * 400)


CONTROL: dict[str, Callable[[int], bytes]] = {
    "rapid reset (CVE-2023-44487)": rapid_reset,
    "resets of the server's making": made_reset,
    "malformed requests": malformed,
    "PING (CVE-2019-9512)": lambda number: frame(PING, 0, 0, bytes(8)),
    "answers to pings that nobody sent": lambda number: frame(PING, ACK, 0, bytes(8)),
    "SETTINGS (CVE-2019-9515)": lambda number: settings(),
    "confirmed settings": lambda number: frame(SETTINGS, ACK),
    "empty DATA (CVE-2019-9518)": lambda number: frame(DATA, 0, 1),
    "DATA of padding alone": lambda number: frame(DATA, PADDED, 1, b"\x03" + bytes(3)),
    "GOAWAY": lambda number: frame(GOAWAY, 0, 0, bytes(8)),
}
LIGHT: dict[str, Callable[[int], bytes]] = {
    "WINDOW_UPDATE of the connection": lambda number: window_update(0, 1),
    "WINDOW_UPDATE of a stream": lambda number: window_update(1, 1),
    "WINDOW_UPDATE of a closed stream": lambda number: rapid_reset(0) if not number else window_update(3, 1),
    "PRIORITY": lambda number: frame(PRIORITY, 0, 1, bytes(5)),
    "unknown frames": lambda number: frame(0x77, 0, 1, b"?"),
}


def flood(make: Callable[[int], bytes], count: int, interval_s: float = 0.0) -> ServerConnection:
    connection = greeted(LIMITS, OPEN)
    for number in range(count):
        connection.feed(make(number), number * interval_s)
    return connection


@pytest.mark.parametrize("name", CONTROL)
def test_too_many_frames_that_make_work_end_the_connection(name: str) -> None:
    assert flood(CONTROL[name], 90).error is None
    connection = flood(CONTROL[name], 110)
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("name", LIGHT)
def test_too_many_frames_that_cost_little_end_the_connection(name: str) -> None:
    assert flood(LIGHT[name], 990).error is None
    connection = flood(LIGHT[name], 1_010)
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.ENHANCE_YOUR_CALM


def test_requests_with_too_large_heads_count_twenty_times() -> None:
    assert flood(oversized, 4).error is None
    assert flood(oversized, 100, interval_s=0.25).error is None
    connection = flood(oversized, 6)
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.ENHANCE_YOUR_CALM


def oversized_trailers(number: int) -> bytes:
    stream_id = 2 * number + 3
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, stream_id, TRAILERS + b"\x90" * 400)
    return request(stream_id, is_last=False) + trailers


def test_trailers_that_are_too_large_count_as_such_heads() -> None:
    assert flood(oversized_trailers, 4).error is None
    connection = flood(oversized_trailers, 6)
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("name", [*CONTROL, *LIGHT])
def test_the_same_frames_over_a_longer_time_are_no_flood(name: str) -> None:
    assert flood((CONTROL | LIGHT)[name], 1_500, interval_s=0.011).error is None


def test_room_that_is_given_back_for_what_was_sent_is_no_flood() -> None:
    connection = greeted(LIMITS, OPEN)
    connection.respond(1, HEAD)
    for _ in range(5_000):
        connection.send(1, b"x")
        connection.feed(window_update(0, 1) + window_update(1, 1), 0.0)
    assert connection.error is None
    for _ in range(15_000):
        connection.feed(window_update(0, 1), 0.0)
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.ENHANCE_YOUR_CALM


def test_requests_that_are_refused_are_counted_too() -> None:
    connection = greeted(LIMITS, *(request(2 * number + 1) for number in range(10)))
    for number in range(10, 1_020):
        connection.feed(request(2 * number + 1), 0.0)
    assert connection.error is not None


def test_late_data_is_counted_too() -> None:
    connection = greeted(LIMITS, OPEN)
    connection.reset(1)
    for _ in range(1_010):
        connection.feed(frame(DATA, 0, 1, b"x"), 0.0)
    assert connection.error is not None


@pytest.mark.parametrize("size", [0, 1])
def test_a_head_that_never_ends_ends_the_connection(size: int) -> None:
    connection = greeted(LIMITS)
    connection.feed(frame(HEADERS, 0, 1, BLOCK), 0.0)
    for _ in range(110):
        connection.feed(frame(CONTINUATION, 0, 1, bytes(size)), 0.0)
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.ENHANCE_YOUR_CALM


def test_a_new_window_for_many_streams_costs_more_than_one_for_few() -> None:
    def changes(streams: int) -> int:
        limits = Limits(control_frames_per_s=1_000, streams=1_000)
        connection = greeted(limits, *(request(2 * number + 1) for number in range(streams)))
        count = 0
        while connection.error is None:
            connection.feed(settings((4, count)), 0.0)
            count += 1
        return count

    assert changes(streams=1_000) < 11
    assert changes(streams=1) > 900


def test_many_values_in_one_settings_frame_move_the_windows_once() -> None:
    connection = greeted(Limits(streams=1_000), *(request(2 * number + 1) for number in range(1_000)))
    assert connection.feed(settings(*[(4, 70_000), (4, 60_000)] * 1_300), 0.0) == []
    assert connection.error is None


def test_calls_themselves_are_no_flood() -> None:
    connection = greeted(LIMITS)
    for number in range(5_000):
        stream_id = 2 * number + 1
        connection.feed(request(stream_id, is_last=False) + frame(DATA, 1, stream_id, b"question"), 0.0)
        connection.respond(stream_id, HEAD)
        connection.finish(stream_id, TRAILERS)
    assert connection.error is None


def test_what_a_silent_reader_is_owed_stays_small() -> None:
    connection = ServerConnection(LIMITS)
    connection.feed(GREETING, 0.0)
    for number in range(200):
        connection.feed(frame(PING, 0, 0, bytes(8)) + rapid_reset(number), 0.0)
    assert len(connection.drain()) < 10_000


def test_an_allowance_fills_with_time_and_never_beyond_a_second() -> None:
    allowance = Allowance(10)
    for _ in range(10):
        allowance.use(100.0)
    with pytest.raises(ConnectionFault):
        allowance.use(100.0)
    allowance = Allowance(10)
    allowance.use(100.0, 10)
    allowance.use(100.5, 5)
    allowance.use(1_000.0, 10)
    with pytest.raises(ConnectionFault):
        allowance.use(999.0)  # a clock that runs back gives nothing


def test_known_blocks_do_not_pile_up() -> None:
    connection = greeted(Limits(streams=10_000))
    for number in range(1_000):
        fields = encode_headers([(b"x", b"%d" % number)])
        assert connection.feed(frame(HEADERS, END_HEADERS | 1, 2 * number + 1, BLOCK + fields), 0.0)
    assert len(connection._blocks._known) <= 64
