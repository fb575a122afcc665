"""Floods of a server, legal frame by frame: the connection ends before they cost anything."""

from collections.abc import Callable

import pytest

from penstock.wire.http2 import ClientConnection, ErrorCode, Limits
from tests.wire.http2.raw_client import (
    ACK,
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    SETTINGS,
    WHOLE,
    frame,
    reset,
    settings,
    window_update,
)
from tests.wire.http2.raw_server import ASK, greeted, response, trailers

LIMITS = Limits(control_frames_per_s=100, light_frames_per_s=1_000)
EARLY_HINTS = response(3, fields=[(b":status", b"103")])

CONTROL: dict[str, bytes] = {
    "PING (CVE-2019-9512)": frame(PING, 0, 0, bytes(8)),
    "answers to pings that nobody sent": frame(PING, ACK, 0, bytes(8)),
    "SETTINGS (CVE-2019-9515)": settings(),
    "confirmed settings": frame(SETTINGS, ACK),
    "empty DATA (CVE-2019-9518)": frame(DATA, 0, 1),
    "DATA of padding alone": frame(DATA, PADDED, 1, b"\x03" + bytes(3)),
    "GOAWAY": frame(GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4)),
    "informational responses": EARLY_HINTS,
}
LIGHT: dict[str, bytes] = {
    "WINDOW_UPDATE of the connection": window_update(0, 1),
    "WINDOW_UPDATE of a stream": window_update(1, 1),
    "WINDOW_UPDATE of a closed stream": window_update(5, 1),
    "RST_STREAM of a closed stream": reset(5),
    "late DATA": frame(DATA, 0, 5, b"x"),
    "late HEADERS": trailers(5),
    "PRIORITY": frame(PRIORITY, 0, 1, bytes(5)),
    "unknown frames": frame(0x77, 0, 1, b"?"),
}


def flood(data: bytes, count: int, interval_s: float = 0.0) -> ClientConnection:
    client = greeted(LIMITS, response(1), calls=3)
    client.reset(5)
    for number in range(count):
        client.feed(data, number * interval_s)
    return client


def check_ended(client: ClientConnection) -> None:
    assert client.error is not None
    assert client.error.reason is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("name", CONTROL)
def test_too_many_frames_that_make_work_end_the_connection(name: str) -> None:
    assert flood(CONTROL[name], 90).error is None
    check_ended(flood(CONTROL[name], 110))


@pytest.mark.parametrize("name", LIGHT)
def test_too_many_frames_that_cost_little_end_the_connection(name: str) -> None:
    assert flood(LIGHT[name], 990).error is None
    check_ended(flood(LIGHT[name], 1_010))


@pytest.mark.parametrize("name", [*CONTROL, *LIGHT])
def test_the_same_frames_over_a_longer_time_are_no_flood(name: str) -> None:
    assert flood((CONTROL | LIGHT)[name], 1_500, interval_s=0.011).error is None


def oversized(stream_id: int) -> bytes:
    return frame(HEADERS, WHOLE, stream_id, b"\x88" + b"\x90" * 400)


@pytest.mark.parametrize("make", [oversized, lambda stream_id: response(stream_id) + oversized(stream_id)])
def test_fields_that_are_too_large_count_twenty_times(make: Callable[[int], bytes]) -> None:
    client = greeted(LIMITS, calls=6)
    client.feed(b"".join(make(stream_id) for stream_id in (1, 3, 5, 7)), 0.0)
    assert client.error is None
    client.feed(make(9), 0.0)
    check_ended(client)


def test_a_head_that_never_ends_ends_the_connection() -> None:
    client = greeted(LIMITS, frame(HEADERS, 0, 1), calls=1)
    for _ in range(110):
        client.feed(frame(CONTINUATION, 0, 1), 0.0)
    check_ended(client)


def test_calls_that_the_server_makes_us_reset_are_counted() -> None:
    client = greeted(LIMITS)
    for _ in range(110):
        if client.free_streams:
            client.feed(window_update(client.request(ASK), 0), 0.0)
    check_ended(client)


def test_refused_calls_and_calls_that_end_early_are_no_flood() -> None:
    client = greeted(LIMITS)
    for _ in range(400):
        client.feed(reset(client.request(ASK), ErrorCode.REFUSED_STREAM), 0.0)
        stream_id = client.request(ASK)
        client.feed(response(stream_id, is_last=True) + reset(stream_id, ErrorCode.NO_ERROR), 0.0)
    assert client.error is None
    assert client.open_streams == 0


def test_room_that_is_given_back_for_what_was_sent_is_no_flood() -> None:
    client = greeted(LIMITS, calls=1)
    for _ in range(5_000):
        client.send(1, b"x")
        client.feed(window_update(0, 1) + window_update(1, 1), 0.0)
    assert client.error is None
    for _ in range(15_000):
        client.feed(window_update(0, 1), 0.0)
    check_ended(client)


def test_calls_themselves_are_no_flood() -> None:
    client = greeted(LIMITS)
    for _ in range(5_000):
        stream_id = client.request_whole(ASK, b"question")
        client.feed(response(stream_id) + frame(DATA, 0, stream_id, b"answer") + trailers(stream_id), 0.0)
        client.drain()
        client.feed(window_update(0, 8), 0.0)
    assert client.error is None


def test_what_a_server_that_does_not_read_is_owed_stays_small() -> None:
    client = flood(CONTROL["PING (CVE-2019-9512)"] + LIGHT["RST_STREAM of a closed stream"], 200)
    assert len(client.drain()) < 10_000
