"""One server and the requests to it: calls, windows both ways, goodbyes."""

import pytest

from penstock.wire.http2 import (
    PREFACE,
    BodyReceived,
    ClientConnection,
    Drained,
    ErrorCode,
    GoneAway,
    Limits,
    MalformedHead,
    Ponged,
    RequestUnprocessed,
    ResponseHead,
    ResponseStarted,
    StreamRefused,
    StreamReset,
    TrailersReceived,
    encode_headers,
    encode_request,
)
from penstock.wire.http2.frames import MAX_STREAM_ID
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
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    body_of,
    frame,
    frames_of,
    goodbye_of,
    kinds_of,
    reset,
    settings,
    window_update,
)
from tests.wire.http2.raw_server import ASK, GREETING, OK, greeted, response, trailers, written

OK_HEAD = ResponseHead(200, ((b"content-type", b"application/grpc"),))


def go_away(last_id: int, code: int = 0, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, last_id.to_bytes(4) + code.to_bytes(4) + text)


# The greeting


def test_the_first_thing_that_is_written_are_preface_settings_and_a_window() -> None:
    limits = Limits(stream_window_bytes=100_000, connection_window_bytes=200_000, header_list_bytes=9_000)
    data = ClientConnection(limits).drain()
    assert data.startswith(PREFACE)
    (kind, flags, stream_id, payload), update = frames_of(data.removeprefix(PREFACE))
    assert (kind, flags, stream_id) == (SETTINGS, 0, 0)
    pairs = {
        int.from_bytes(payload[at : at + 2]): int.from_bytes(payload[at + 2 : at + 6])
        for at in range(0, len(payload), 6)
    }
    assert pairs == {2: 0, 4: 100_000, 5: 16_384, 6: 9_000}
    assert update == (WINDOW_UPDATE, 0, 0, (200_000 - 65_535).to_bytes(4))


def test_settings_of_the_server_are_confirmed_and_ours_are_settled_when_it_confirms() -> None:
    client = ClientConnection()
    client.drain()
    assert client.feed(GREETING, 0.0) == []
    assert written(client) == [(SETTINGS, ACK, 0, b"")]
    assert not client.is_settled
    assert client.feed(frame(SETTINGS, ACK), 0.0) == []
    assert client.is_settled


# Calls


def test_a_call_is_head_and_body_out_and_head_body_and_trailers_in() -> None:
    client = greeted()
    stream_id = client.request(ASK)
    assert client.send(stream_id, b"question") == 0
    client.finish(stream_id)
    assert written(client) == [
        (HEADERS, END_HEADERS, 1, ASK),
        (DATA, 0, 1, b"question"),
        (DATA, END_STREAM, 1, b""),
    ]
    assert client.feed(response(1) + frame(DATA, 0, 1, b"answer"), 0.0) == [
        ResponseStarted(1, OK_HEAD, False),
        BodyReceived(1, b"answer", False),
    ]
    assert client.open_streams == 1
    assert client.feed(trailers(1), 0.0) == [TrailersReceived(1, ((b"grpc-status", b"0"),))]
    assert client.open_streams == 0
    assert client.drain() == b""


def test_requests_have_odd_streams_in_order() -> None:
    client = greeted()
    assert [client.request(ASK, is_last=True) for _ in range(3)] == [1, 3, 5]
    assert [(flags, stream_id) for _, flags, stream_id, _ in written(client)] == [(5, 1), (5, 3), (5, 5)]


def test_a_request_may_be_sent_before_the_server_has_said_anything() -> None:
    client = ClientConnection()
    client.request_whole(ASK, b"early")
    assert [kind for kind, *_ in written(client)] == [SETTINGS, WINDOW_UPDATE, HEADERS, DATA]


@pytest.mark.parametrize("body", [b"x", b"y" * 16_384])
def test_a_whole_request_ends_with_its_only_frame_of_data(body: bytes) -> None:
    client = greeted()
    assert client.request_whole(ASK, body) == 1
    assert written(client) == [(HEADERS, END_HEADERS, 1, ASK), (DATA, END_STREAM, 1, body)]
    with pytest.raises(ValueError, match="finished"):
        client.send(1, b"more")


@pytest.mark.parametrize("body", [b"", b"z" * 16_385, b"z" * 60_000])
def test_a_whole_request_that_is_not_one_frame_is_sent_in_parts(body: bytes) -> None:
    client = greeted()
    client.request_whole(ASK, body)
    frames = written(client)
    assert body_of(frames, 1) == body
    assert [flags & END_STREAM for kind, flags, _, _ in frames if kind == DATA] == [0] * (len(frames) - 2) + [
        1
    ]


def test_a_whole_request_waits_for_the_window_of_its_stream() -> None:
    client = greeted(None, settings((4, 3)))
    client.request_whole(ASK, b"question")
    assert body_of(written(client), 1) == b"que"
    assert client.waiting_bytes(1) == 5
    assert client.feed(window_update(1, 100), 0.0) == [Drained(1)]
    assert written(client) == [(DATA, 0, 1, b"stion"), (DATA, END_STREAM, 1, b"")]


def test_a_whole_request_waits_for_the_window_of_the_connection() -> None:
    client = greeted(None, settings((4, 100_000)))
    client.request(ASK)
    client.send(1, bytes(65_530))
    client.request_whole(ASK, b"question")
    assert body_of(written(client), 3) == b"quest"
    assert client.feed(window_update(0, 100), 0.0) == [Drained(3)]
    assert written(client) == [(DATA, 0, 3, b"ion"), (DATA, END_STREAM, 3, b"")]


def test_a_whole_request_leaves_room_as_sent() -> None:
    client = greeted(None, settings((4, 100_000)))
    client.request_whole(ASK, bytes(16_384))
    client.request(ASK)
    assert client.send(3, bytes(65_535 - 16_384)) == 0
    assert client.send(3, b"x") == 1


def test_a_whole_request_may_be_given_back_to_the_largest_window() -> None:
    client = greeted(None, settings((4, 2**31 - 1)))
    client.request_whole(ASK, b"question")
    assert client.feed(window_update(1, 8), 0.0) == []
    assert client.feed(window_update(1, 1), 0.0) == [StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)]


def test_a_response_may_be_a_head_alone() -> None:
    client = greeted(calls=1)
    client.finish(1)
    client.drain()
    fields = [(b":status", b"200"), (b"grpc-status", b"5")]
    head = ResponseHead(200, ((b"grpc-status", b"5"),))
    assert client.feed(response(1, is_last=True, fields=fields), 0.0) == [ResponseStarted(1, head, True)]
    assert client.open_streams == 0
    assert client.drain() == b""


def test_a_body_may_end_without_trailers() -> None:
    client = greeted(None, response(1), calls=1)
    assert client.feed(frame(DATA, END_STREAM, 1, b"answer"), 0.0) == [BodyReceived(1, b"answer", True)]
    assert client.open_streams == 0


@pytest.mark.parametrize("waiting", [False, True])
def test_a_response_that_ends_before_the_request_ends_the_call(waiting: bool) -> None:
    client = greeted(None, settings((4, 3)), calls=1)
    if waiting:
        client.send(1, b"too much")
        client.finish(1)
        client.drain()
    assert kinds_of(client.feed(response(1, is_last=True), 0.0)) == ["ResponseStarted"]
    assert written(client) == [(RST_STREAM, 0, 1, bytes(4))]
    assert client.send(1, b"more") == client.waiting_bytes(1) == 0
    assert client.feed(window_update(1, 100) + reset(1, 0), 0.0) == []
    assert client.drain() == b""
    assert client.error is None


def test_informational_responses_are_passed_over() -> None:
    client = greeted(calls=1)
    assert client.feed(response(1, fields=[(b":status", b"103"), (b"link", b"x")]), 0.0) == []
    assert client.feed(response(1), 0.0) == [ResponseStarted(1, OK_HEAD, False)]


def test_a_response_that_was_not_modified_has_the_length_of_another() -> None:
    client = greeted(calls=1)
    fields = [(b":status", b"304"), (b"content-length", b"7")]
    assert kinds_of(client.feed(response(1, is_last=True, fields=fields), 0.0)) == ["ResponseStarted"]


def test_a_body_may_be_as_long_as_announced() -> None:
    client = greeted(None, response(1, fields=[*OK, (b"content-length", b"6")]), calls=1)
    assert client.feed(frame(DATA, 0, 1, b"ans") + frame(DATA, 0, 1, b"wer") + trailers(1), 0.0)[-1] == (
        TrailersReceived(1, ((b"grpc-status", b"0"),))
    )


def test_padding_priority_and_pieces_of_heads_make_no_difference() -> None:
    client = greeted(calls=1)
    block = encode_headers(OK)
    data = frame(HEADERS, PADDED | HAS_PRIORITY, 1, b"\x02" + bytes(5) + block[:3] + bytes(2))
    data += frame(CONTINUATION, END_HEADERS, 1, block[3:])
    data += frame(DATA, PADDED | END_STREAM, 1, b"\x03answer" + bytes(3))
    assert client.feed(data, 0.0) == [ResponseStarted(1, OK_HEAD, False), BodyReceived(1, b"answer", True)]


def test_the_table_of_headers_is_kept_for_all_streams() -> None:
    client = greeted(calls=2)
    first = frame(HEADERS, END_HEADERS, 1, b"\x88\x40\x01x\x01y")  # into the table
    second = frame(HEADERS, END_HEADERS, 3, b"\x88\xbe")
    heads = [event.head for event in client.feed(first + second, 0.0) if isinstance(event, ResponseStarted)]
    assert heads == [ResponseHead(200, ((b"x", b"y"),))] * 2


def test_a_server_with_a_smaller_table_is_told_once_that_we_use_none() -> None:
    client = greeted(None, settings((1, 0)))
    client.request(ASK)
    client.request(ASK)
    assert [payload for _, _, _, payload in written(client)] == [b"\x20" + ASK, ASK]


def test_priorities_and_unknown_frames_and_settings_are_ignored() -> None:
    client = greeted(calls=1)
    data = frame(PRIORITY, 0, 1, bytes(5)) + frame(0x77, 0, 1, b"?") + settings((0x99, 1))
    assert client.feed(data, 0.0) == []
    assert client.error is None


# The end of calls


def test_a_cancelled_call_is_over_and_what_the_server_still_sends_is_ignored() -> None:
    client = greeted(None, response(1), settings((4, 0)), calls=2)
    client.send(1, b"waits")
    client.reset(1)
    assert written(client) == [(RST_STREAM, 0, 1, (8).to_bytes(4))]
    assert client.open_streams == 1
    assert client.feed(frame(DATA, 0, 1, b"late") + trailers(1) + window_update(1, 9), 0.0) == []
    assert client.error is None
    assert kinds_of(client.feed(response(3), 0.0)) == ["ResponseStarted"]


def test_a_reset_of_the_server_ends_the_call_and_drops_what_waits() -> None:
    client = greeted(None, settings((4, 0)), calls=1)
    client.send(1, b"waits")
    assert client.feed(reset(1, ErrorCode.INTERNAL_ERROR), 0.0) == [StreamReset(1, 2)]
    assert client.open_streams == 0
    client.feed(settings((4, 100)), 0.0)
    assert body_of(written(client), 1) == b""


def test_a_refused_stream_was_never_processed() -> None:
    client = greeted(None, response(3), calls=2)
    assert client.feed(reset(1, ErrorCode.REFUSED_STREAM), 0.0) == [RequestUnprocessed(1)]
    assert client.feed(reset(3, ErrorCode.REFUSED_STREAM), 0.0) == [StreamReset(3, ErrorCode.REFUSED_STREAM)]


def test_what_is_said_to_a_stream_that_is_over_goes_nowhere() -> None:
    client = greeted(None, reset(1), calls=1)
    assert client.send(1, b"x") == 0
    client.finish(1)
    client.reset(1)
    client.consumed(1, 5)
    assert client.drain() == b""


def test_calls_behind_the_goodbye_of_a_server_were_never_processed() -> None:
    client = greeted(None, response(1), calls=4)
    assert client.feed(go_away(3, 2, b"bye"), 0.0) == [
        GoneAway(2, "bye"),
        RequestUnprocessed(5),
        RequestUnprocessed(7),
    ]
    assert client.open_streams == 2
    assert client.is_leaving
    assert client.free_streams == 0
    with pytest.raises(StreamRefused, match="closing"):
        client.request(ASK)
    assert kinds_of(client.feed(response(3) + trailers(1), 0.0)) == ["ResponseStarted", "TrailersReceived"]


def test_a_goodbye_may_come_twice_with_fewer_streams() -> None:
    client = greeted(calls=3)
    assert client.feed(go_away(MAX_STREAM_ID), 0.0) == [GoneAway(0, "")]
    assert client.feed(go_away(3), 0.0) == [GoneAway(0, ""), RequestUnprocessed(5)]
    assert client.feed(go_away(0), 0.0) == [GoneAway(0, ""), RequestUnprocessed(1), RequestUnprocessed(3)]
    assert client.error is None


def test_a_call_with_a_response_was_processed_whatever_the_goodbye_says() -> None:
    client = greeted(None, response(3), calls=3)
    assert client.feed(go_away(1), 0.0) == [
        GoneAway(0, ""),
        StreamReset(3, ErrorCode.REFUSED_STREAM),
        RequestUnprocessed(5),
    ]


def test_our_goodbye_starts_no_more_calls_and_lets_open_ones_end() -> None:
    client = greeted(calls=1)
    client.go_away()
    client.go_away()
    assert written(client) == [(GOAWAY, 0, 0, bytes(8))]
    with pytest.raises(StreamRefused, match="closing"):
        client.request(ASK)
    client.send(1, b"more")
    client.finish(1)
    assert kinds_of(client.feed(response(1) + trailers(1), 0.0)) == ["ResponseStarted", "TrailersReceived"]
    assert client.open_streams == 0


def test_the_owner_may_end_a_connection_and_says_why() -> None:
    client = greeted(calls=1)
    client.abort(ErrorCode.SETTINGS_TIMEOUT, "no settings")
    client.abort(ErrorCode.INTERNAL_ERROR, "again")
    (frame_written,) = written(client)
    assert frame_written == (GOAWAY, 0, 0, bytes(4) + (4).to_bytes(4) + b"no settings")
    assert client.error is not None
    assert client.open_streams == client.free_streams == 0
    with pytest.raises(StreamRefused, match="failed"):
        client.request(ASK)
    client.go_away()
    assert client.drain() == b""


def test_what_came_before_bad_bytes_is_still_told() -> None:
    client = greeted(calls=1)
    events = client.feed(response(1) + frame(PING, 0, 0, b"short") + trailers(1), 0.0)
    assert kinds_of(events) == ["ResponseStarted"]
    assert goodbye_of(written(client)) == (0, ErrorCode.FRAME_SIZE_ERROR)


# Heartbeats


def test_pings_are_answered_both_ways() -> None:
    client = greeted()
    client.ping(b"beat 001")
    assert written(client) == [(PING, 0, 0, b"beat 001")]
    assert client.feed(frame(PING, ACK, 0, b"beat 001") + frame(PING, 0, 0, b"beat 002"), 0.0) == [
        Ponged(b"beat 001")
    ]
    assert written(client) == [(PING, ACK, 0, b"beat 002")]


# Numbers of streams


def test_a_hundred_requests_may_be_open_before_the_server_has_said_how_many() -> None:
    client = ClientConnection()
    assert client.free_streams == 100
    for _ in range(100):
        client.request(ASK)
    with pytest.raises(StreamRefused, match="100 requests are open, 100 are allowed"):
        client.request(ASK)
    assert client.open_streams == 100
    client.feed(GREETING, 0.0)
    assert client.free_streams == 900  # it has no limit, we have


def test_requests_beyond_the_limit_of_the_server_are_refused_until_one_is_over() -> None:
    client = greeted(None, settings((3, 2)), calls=2)
    assert client.free_streams == 0
    with pytest.raises(StreamRefused) as caught:
        client.request_whole(ASK, b"x")
    assert caught.value.reason is ErrorCode.REFUSED_STREAM
    assert client.drain() == b""
    client.feed(response(1) + trailers(1), 0.0)
    assert client.free_streams == 1
    assert client.request(ASK) == 5


def test_a_limit_below_the_open_requests_lets_them_continue() -> None:
    client = greeted(None, calls=3)
    client.feed(settings((3, 1)), 0.0)
    assert client.free_streams == 0
    client.feed(settings((4, 70_000)), 0.0)
    assert client.free_streams == 0  # other settings do not change it
    assert client.open_streams == 3
    assert client.send(5, b"x") == 0


def test_our_own_limit_holds_where_the_server_takes_more() -> None:
    client = greeted(Limits(streams=2), settings((3, 1_000)))
    assert client.free_streams == 2


def test_identifiers_of_streams_end() -> None:
    client = greeted()
    client._next_id = MAX_STREAM_ID
    assert client.request(ASK) == MAX_STREAM_ID
    assert client.free_streams == 0
    with pytest.raises(StreamRefused, match="identifiers"):
        client.request(ASK)


# Windows


def test_a_request_waits_for_windows_and_the_owner_hears_when_it_is_sent() -> None:
    client = greeted(None, settings((4, 5)), calls=1)
    assert client.send(1, b"question") == 3
    assert body_of(written(client), 1) == b"quest"
    client.finish(1)
    assert client.drain() == b""
    assert client.feed(window_update(1, 2), 0.0) == []
    assert client.feed(window_update(1, 1), 0.0) == [Drained(1)]
    assert written(client) == [(DATA, 0, 1, b"io"), (DATA, 0, 1, b"n"), (DATA, END_STREAM, 1, b"")]


def test_streams_take_turns_when_the_window_of_the_connection_is_short() -> None:
    client = greeted(None, settings((4, 1_000_000)), calls=2)
    client.send(1, bytes(200_000))
    client.send(3, bytes(200_000))
    client.drain()
    client.feed(window_update(0, 65_536), 0.0)
    sizes = [(stream_id, len(payload)) for _, _, stream_id, payload in written(client)]
    assert sizes == [(1, 16_384), (3, 16_384)] * 2


def test_windows_open_again_as_bodies_are_consumed() -> None:
    limits = Limits(stream_window_bytes=65_535, connection_window_bytes=131_070)
    client = greeted(limits, response(1), calls=1)
    client.feed(frame(DATA, 0, 1, bytes(16_384)) * 3, 0.0)
    client.consumed(1, 32_766)
    assert client.drain() == b""
    client.consumed(1, 1)
    assert written(client) == [(WINDOW_UPDATE, 0, 1, (32_767).to_bytes(4))]
    client.consumed(1, 100_000)
    client.feed(frame(DATA, 0, 1, bytes(16_384)), 0.0)
    client.consumed(1, 16_384)
    assert (WINDOW_UPDATE, 0, 0, (65_536).to_bytes(4)) in written(client)


def test_a_call_that_is_over_gives_back_what_it_held() -> None:
    limits = Limits(stream_window_bytes=65_535, connection_window_bytes=65_535)
    client = greeted(limits, calls=20)
    for stream_id in range(1, 41, 2):
        client.feed(response(stream_id) + frame(DATA, 0, stream_id, bytes(16_384)) * 2, 0.0)
        client.feed(trailers(stream_id), 0.0)
    assert client.error is None
    updates = [int.from_bytes(payload) for kind, _, _, payload in written(client) if kind == WINDOW_UPDATE]
    assert sum(updates) == 20 * 2 * 16_384


def test_a_request_that_cannot_be_is_not_encoded() -> None:
    for method, path, field in (
        (b"POST", b"no/slash", (b"x", b"y")),
        (b"POST", b"/", (b"Upper", b"y")),
        (b"POST", b"/", (b"x", b"a\r\nb")),
        (b"POST", b"/", (b":status", b"200")),
        (b"HEAD", b"/", (b"x", b"y")),
        (b"CONNECT", b"/", (b"x", b"y")),
    ):
        with pytest.raises(MalformedHead):
            encode_request(method, path, b"localhost", [field])
