"""One client and the answers to it: calls, windows both ways, goodbyes."""

import pytest

from penstock.wire.http2 import (
    BodyReceived,
    Drained,
    Envelope,
    ErrorCode,
    GoneAway,
    Limits,
    Ponged,
    RequestStarted,
    ServerConnection,
    StreamReset,
    encode_headers,
)
from penstock.wire.http2.hpack import EMPTY_TABLE
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
    HEAD,
    HEADERS,
    PADDED,
    PING,
    POST,
    PRIORITY,
    SETTINGS,
    TRAILERS,
    WINDOW_UPDATE,
    body_of,
    frame,
    frames_of,
    goodbye_of,
    greeted,
    kinds_of,
    request,
    reset,
    resets_of,
    settings,
    window_update,
    written,
)

NO_WINDOW = settings((4, 0))
WIDE = window_update(0, 1_000_000)


def test_the_first_thing_that_is_written_are_our_settings_and_a_window() -> None:
    limits = Limits(
        streams=7, stream_window_bytes=100_000, connection_window_bytes=200_000, header_list_bytes=9_000
    )
    (kind, flags, stream_id, payload), update = written(ServerConnection(limits))
    assert (kind, flags, stream_id) == (SETTINGS, 0, 0)
    pairs = {
        int.from_bytes(payload[at : at + 2]): int.from_bytes(payload[at + 2 : at + 6])
        for at in (0, 6, 12, 18)
    }
    assert pairs == {3: 7, 4: 100_000, 5: 16_384, 6: 9_000}
    assert update == (WINDOW_UPDATE, 0, 0, (200_000 - 65_535).to_bytes(4))


def test_settings_of_the_client_are_confirmed_and_ours_are_settled_when_it_confirms() -> None:
    connection = ServerConnection()
    connection.drain()
    assert connection.feed(GREETING, 0.0) == []
    assert written(connection) == [(SETTINGS, ACK, 0, b"")]
    assert not connection.is_settled
    assert connection.feed(frame(SETTINGS, ACK), 0.0) == []
    assert connection.is_settled


def test_a_call_is_head_and_body_in_and_head_body_and_trailers_out() -> None:
    connection = greeted()
    events = connection.feed(request(1, is_last=False) + frame(DATA, END_STREAM, 1, b"question"), 0.0)
    started, received = events
    assert isinstance(started, RequestStarted)
    assert (started.stream_id, started.is_last, started.head.path) == (1, False, b"/service/Method")
    assert received == BodyReceived(1, b"question", True)
    connection.respond(1, HEAD)
    assert connection.send(1, b"answer") == 0
    connection.finish(1, TRAILERS)
    assert written(connection) == [
        (HEADERS, END_HEADERS, 1, HEAD),
        (DATA, 0, 1, b"answer"),
        (HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
    ]
    assert connection.open_streams == 0
    assert connection.drain() == b""


def test_a_call_that_comes_byte_by_byte_is_the_same_call() -> None:
    data = request(1, is_last=False) + frame(DATA, END_STREAM, 1, b"question")
    connection = greeted()
    pieces = [data[index : index + 1] for index in range(len(data))]
    found = [event for piece in pieces for event in connection.feed(piece, 0.0)]
    assert found == greeted().feed(data, 0.0)


@pytest.mark.parametrize("body", [b"x", b"y" * 200, b"z" * 16_384])
def test_a_whole_answer_is_the_same_as_its_parts(body: bytes) -> None:
    whole, parts = greeted(None, request(1)), greeted(None, request(1))
    whole.respond_whole(1, Envelope(HEAD, TRAILERS), body)
    parts.respond(1, HEAD)
    parts.send(1, body)
    parts.finish(1, TRAILERS)
    assert whole.drain() == parts.drain()
    assert whole.open_streams == parts.open_streams == 0


@pytest.mark.parametrize(
    ("before", "is_last", "body"),
    [
        (NO_WINDOW, True, b"body"),  # of the stream
        (settings((4, 1_000_000)), True, bytes(70_000)),  # of the connection
        (settings((1, 0)), True, b"body"),  # the block begins with a table size
        (settings((4, 65_535)), False, b"body"),  # the client has not ended its side
        (settings((4, 65_535)), True, b""),
    ],
)
def test_a_whole_answer_without_room_or_with_more_to_say_is_sent_in_parts(
    before: bytes, is_last: bool, body: bytes
) -> None:
    whole, parts = (greeted(None, before, request(1, is_last=is_last)) for _ in range(2))
    whole.respond_whole(1, Envelope(HEAD, TRAILERS), body)
    parts.respond(1, HEAD)
    parts.send(1, body)
    parts.finish(1, TRAILERS)
    assert whole.drain() == parts.drain()
    room = window_update(0, 100_000) + window_update(1, 100_000)
    for connection in (whole, parts):
        connection.feed(room, 2.0)
    assert whole.drain() == parts.drain()
    assert whole.open_streams == parts.open_streams == 0


def test_a_whole_answer_to_a_stream_that_is_over_goes_nowhere() -> None:
    connection = greeted(None, request(1), reset(1))
    connection.respond_whole(1, Envelope(HEAD, TRAILERS), b"late")
    assert connection.drain() == b""


def test_an_envelope_fits_into_frames_of_the_smallest_size() -> None:
    with pytest.raises(ValueError, match="more than a frame"):
        Envelope(HEAD, bytes(16_385))


def test_an_answer_may_be_a_head_alone() -> None:
    connection = greeted(None, request(1))
    connection.respond(1, HEAD, is_last=True)
    assert written(connection) == [(HEADERS, END_HEADERS | END_STREAM, 1, HEAD)]
    assert connection.open_streams == 0


def test_an_answer_without_trailers_ends_with_an_empty_frame() -> None:
    connection = greeted(None, request(1))
    connection.respond(1, HEAD)
    connection.finish(1)
    assert written(connection)[1:] == [(DATA, END_STREAM, 1, b"")]


def test_a_client_that_still_sends_when_the_answer_is_finished_is_told_to_stop() -> None:
    connection = greeted(None, request(1, is_last=False))
    connection.respond(1, HEAD)
    connection.finish(1, TRAILERS)
    assert resets_of(written(connection)) == [(1, ErrorCode.NO_ERROR)]
    first, *_ = connection.feed(frame(DATA, END_STREAM, 1, b"late") + request(3), 0.0)
    assert isinstance(first, RequestStarted)
    assert first.stream_id == 3
    assert connection.error is None


def test_a_window_update_of_0_is_an_error_also_behind_the_response() -> None:
    connection = greeted(None, request(1))
    connection.respond(1, HEAD, is_last=True)
    written(connection)
    assert connection.feed(window_update(1, 0), 0.0) == []
    assert resets_of(written(connection)) == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert connection.feed(window_update(1, 1), 0.0) == []  # it may not know yet
    assert written(connection) == []
    assert connection.error is None


def test_what_is_said_to_a_stream_that_is_over_goes_nowhere() -> None:
    connection = greeted(None, request(1))
    assert connection.feed(reset(1), 0.0) == [StreamReset(1, ErrorCode.CANCEL)]
    connection.respond(1, HEAD)
    assert connection.send(1, b"answer") == 0
    connection.finish(1, TRAILERS)
    connection.reset(1)
    connection.consumed(1, 5)
    assert connection.waiting_bytes(1) == 0
    assert connection.drain() == b""


def test_an_answer_has_an_order() -> None:
    connection = greeted(None, request(1))
    with pytest.raises(ValueError, match="not begun"):
        connection.send(1, b"answer")
    with pytest.raises(ValueError, match="not begun"):
        connection.finish(1)
    connection.respond(1, HEAD)
    with pytest.raises(ValueError, match="begun already"):
        connection.respond(1, HEAD)


def test_our_reset_drops_what_waits_and_the_client_may_not_know_yet() -> None:
    connection = greeted(None, NO_WINDOW, request(1, is_last=False))
    connection.respond(1, HEAD)
    assert connection.send(1, b"answer") == 6
    connection.drain()
    connection.reset(1, ErrorCode.INTERNAL_ERROR)
    assert resets_of(written(connection)) == [(1, ErrorCode.INTERNAL_ERROR)]
    late = frame(DATA, 0, 1, b"x") + window_update(1, 9) + reset(1) + request(1) + settings((4, 1_000))
    assert connection.feed(late, 0.0) == []
    assert connection.error is None
    assert [kind for kind, *_ in written(connection)] == [SETTINGS]


def test_padding_and_priority_are_taken_off() -> None:
    connection = greeted()
    padded = frame(HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, 1, b"\x03" + bytes(5) + BLOCK + bytes(3))
    events = connection.feed(padded + frame(DATA, PADDED | END_STREAM, 1, b"\x02ab" + bytes(2)), 0.0)
    assert kinds_of(events) == ["RequestStarted", "BodyReceived"]
    assert events[1] == BodyReceived(1, b"ab", True)


def test_a_head_may_come_in_several_frames() -> None:
    connection = greeted()
    parts = [BLOCK[index : index + 7] for index in range(0, len(BLOCK), 7)]
    data = frame(HEADERS, END_STREAM, 1, parts[0])
    data += b"".join(frame(CONTINUATION, 0, 1, part) for part in parts[1:])
    data += frame(CONTINUATION, END_HEADERS, 1)
    assert connection.feed(data, 0.0) == greeted().feed(request(1), 0.0)


def test_the_same_block_means_something_else_when_the_table_has_changed() -> None:
    connection = greeted()
    others = encode_headers([field for field in POST if field[0] != b":path"])
    paths = []
    for stream_id, added in ((1, b"\x44\x02/a"), (3, b""), (5, b""), (7, b"\x44\x02/b"), (9, b"")):
        data = frame(HEADERS, END_HEADERS | END_STREAM, stream_id, (added or b"\xbe") + others)
        (started,) = connection.feed(data, 0.0)
        assert isinstance(started, RequestStarted)
        paths.append(started.head.path)
    assert paths == [b"/a", b"/a", b"/a", b"/b", b"/b"]


def test_trailers_of_a_client_end_its_body() -> None:
    connection = greeted(None, request(1, is_last=False))
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, encode_headers([(b"checksum", b"1")]))
    assert connection.feed(trailers, 0.0) == [BodyReceived(1, b"", True)]


def test_a_body_may_be_as_long_as_announced() -> None:
    announced = [*POST, (b"content-length", b"5")]
    connection = greeted(None, request(1, is_last=False, fields=announced))
    events = connection.feed(frame(DATA, 0, 1, b"123") + frame(DATA, END_STREAM, 1, b"45"), 0.0)
    assert events == [BodyReceived(1, b"123", False), BodyReceived(1, b"45", True)]


def test_priorities_and_unknown_frames_and_settings_are_ignored() -> None:
    connection = greeted()
    data = frame(PRIORITY, 0, 5, bytes(5)) + frame(0xBE, 0xFF, 3, b"?") + settings((0x99, 1), (0x8, 1))
    assert connection.feed(data, 0.0) == []
    assert connection.error is None
    assert written(connection) == [(SETTINGS, ACK, 0, b"")]


def test_pings_are_answered_both_ways() -> None:
    connection = greeted()
    assert connection.feed(frame(PING, 0, 0, b"12345678"), 0.0) == []
    assert written(connection) == [(PING, ACK, 0, b"12345678")]
    connection.ping(b"87654321")
    assert written(connection) == [(PING, 0, 0, b"87654321")]
    assert connection.feed(frame(PING, ACK, 0, b"87654321"), 0.0) == [Ponged(b"87654321")]


def test_streams_beyond_the_limit_are_refused_until_one_is_over() -> None:
    connection = greeted(Limits(streams=2), request(1), request(3))
    assert connection.feed(request(5), 0.0) == []
    assert resets_of(written(connection)) == [(5, ErrorCode.REFUSED_STREAM)]
    connection.reset(1)
    assert kinds_of(connection.feed(request(7), 0.0)) == ["RequestStarted"]
    assert connection.open_streams == 2


def test_a_refused_request_still_counts_in_the_table_of_headers() -> None:
    connection = greeted(Limits(streams=1), request(1))
    first = frame(HEADERS, END_HEADERS | END_STREAM, 3, BLOCK + b"\x40\x01x\x01y")
    assert connection.feed(first, 0.0) == []
    connection.reset(1)
    (started,) = connection.feed(frame(HEADERS, END_HEADERS | END_STREAM, 5, BLOCK + b"\xbe"), 0.0)
    assert isinstance(started, RequestStarted)
    assert started.head.fields[-1] == (b"x", b"y")


def test_a_request_with_too_many_headers_is_answered_431_and_others_go_on() -> None:
    connection = greeted(Limits(header_list_bytes=500))
    large = [*POST, (b"x", b"y" * 500)]
    for stream_id, is_last in ((1, True), (3, False)):
        assert connection.feed(request(stream_id, is_last=is_last, fields=large), 0.0) == []
        answer, *resets = written(connection)
        assert answer == (
            HEADERS,
            END_HEADERS | END_STREAM,
            stream_id,
            encode_headers([(b":status", b"431")]),
        )
        assert resets_of(resets) == ([] if is_last else [(stream_id, ErrorCode.NO_ERROR)])
    assert kinds_of(connection.feed(request(5), 0.0)) == ["RequestStarted"]


def test_an_answer_waits_for_the_window_of_its_stream() -> None:
    connection = greeted(None, settings((4, 10)), request(1))
    connection.respond(1, HEAD)
    connection.drain()
    assert connection.send(1, b"0123456789abc") == 3
    assert connection.send(1, b"def") == 6
    connection.finish(1, TRAILERS)
    assert written(connection) == [(DATA, 0, 1, b"0123456789")]
    assert connection.waiting_bytes(1) == 6
    assert connection.feed(window_update(1, 4), 0.0) == []
    assert written(connection) == [(DATA, 0, 1, b"abcd")]
    assert connection.feed(window_update(1, 4), 0.0) == [Drained(1)]
    assert written(connection) == [(DATA, 0, 1, b"ef"), (HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS)]
    assert connection.open_streams == 0


def test_the_owner_is_told_when_nothing_waits_any_more() -> None:
    connection = greeted(None, NO_WINDOW, request(1))
    connection.respond(1, HEAD)
    connection.send(1, b"answer")
    assert connection.feed(window_update(1, 5), 0.0) == []
    assert connection.feed(window_update(1, 1), 0.0) == [Drained(1)]
    assert body_of(written(connection), 1) == b"answer"


def test_nothing_is_written_for_an_empty_send() -> None:
    connection = greeted(None, request(1))
    connection.respond(1, HEAD)
    connection.drain()
    assert connection.send(1, b"") == 0
    assert connection.drain() == b""


def test_a_long_answer_is_cut_into_frames_and_many_short_ones_that_waited_are_joined() -> None:
    connection = greeted(None, WIDE, settings((4, 1_000_000)), request(1))
    connection.respond(1, HEAD)
    connection.drain()
    body = bytes(range(256)) * 200
    assert connection.send(1, body) == 0
    frames = written(connection)
    assert [len(payload) for *_, payload in frames] == [16_384, 16_384, 16_384, 2_048]
    assert body_of(frames, 1) == body
    connection.feed(NO_WINDOW + settings((4, 0)), 0.0)
    for number in range(100):
        connection.send(1, bytes([number]) * 9)
    connection.drain()
    connection.feed(settings((4, 1_000_000)), 0.0)
    frames = [each for each in written(connection) if each[0] == DATA]
    assert [payload for *_, payload in frames] == [b"".join(bytes([number]) * 9 for number in range(100))]


def test_frames_are_as_large_as_the_client_takes_them_up_to_64_kibibytes() -> None:
    for allowed, expected in ((20_000, 20_000), (16_777_215, 65_536)):
        connection = greeted(None, WIDE, settings((4, 1_000_000), (5, allowed)), request(1))
        connection.respond(1, HEAD)
        connection.drain()
        connection.send(1, bytes(100_000))
        assert len(written(connection)[0][3]) == expected


def test_streams_take_turns_when_the_window_of_the_connection_is_short() -> None:
    connection = greeted(None, settings((4, 10_000_000)), *(request(stream_id) for stream_id in (1, 3, 5)))
    for stream_id in (1, 3, 5):
        connection.respond(stream_id, HEAD)
        connection.send(stream_id, bytes(1_000_000))
    connection.drain()
    connection.feed(window_update(0, 600_000), 0.0)
    frames = written(connection)
    shares = [len(body_of(frames, stream_id)) for stream_id in (1, 3, 5)]
    assert sum(shares) == 600_000
    assert max(shares) - min(shares) <= 2 * 16_384


def test_every_byte_of_room_is_used() -> None:
    connection = greeted(None, settings((4, 70_000)), request(1))
    connection.respond(1, HEAD)
    assert connection.send(1, bytes(65_535)) == 0
    connection.drain()
    assert connection.send(1, b"ab") == 2
    for expected in (b"a", b"b"):
        connection.feed(window_update(0, 1), 0.0)
        assert written(connection) == [(DATA, 0, 1, expected)]


def test_a_short_answer_does_not_wait_behind_a_long_one() -> None:
    connection = greeted(None, settings((4, 10_000_000)), request(1), request(3))
    for stream_id, size in ((1, 5_000_000), (3, 100)):
        connection.respond(stream_id, HEAD)
        connection.send(stream_id, bytes(size))
    connection.drain()
    assert connection.feed(window_update(0, 20_000), 0.0) == [Drained(3)]


def test_a_window_that_shrinks_below_zero_has_to_be_opened_again() -> None:
    connection = greeted(None, settings((4, 100)), request(1))
    connection.respond(1, HEAD)
    connection.send(1, bytes(80))
    connection.feed(settings((4, 50)), 0.0)  # 30 below zero
    connection.drain()
    assert connection.send(1, b"0123456789") == 10
    assert connection.feed(window_update(1, 30), 0.0) == []
    assert body_of(written(connection), 1) == b""
    assert connection.feed(window_update(1, 4), 0.0) == []
    assert body_of(written(connection), 1) == b"0123"
    assert connection.feed(settings((4, 60)), 0.0) == [Drained(1)]
    assert body_of(written(connection), 1) == b"456789"


def test_a_stream_whose_window_closed_while_it_waited_its_turn_is_passed_over() -> None:
    connection = greeted(None, settings((4, 70_000)), request(1), request(3))
    for stream_id in (1, 3):
        connection.respond(stream_id, HEAD)
    assert connection.send(1, bytes(65_535)) == 0
    assert connection.send(3, b"answer") == 6
    connection.drain()
    connection.feed(NO_WINDOW + window_update(0, 1_000), 0.0)
    assert body_of(written(connection), 3) == b""
    assert connection.feed(settings((4, 6)), 0.0) == [Drained(3)]


def test_windows_open_again_as_bodies_are_consumed() -> None:
    limits = Limits(stream_window_bytes=100_000, connection_window_bytes=150_000)
    connection = greeted(limits, request(1, is_last=False))
    for _ in range(6):
        connection.feed(frame(DATA, 0, 1, bytes(10_000)), 0.0)
    assert written(connection) == []
    connection.consumed(1, 49_999)
    assert written(connection) == []
    connection.consumed(1, 1)
    assert written(connection) == [(WINDOW_UPDATE, 0, 1, (50_000).to_bytes(4))]
    connection.consumed(1, 1_000_000)  # more than there is counts as all there is
    connection.feed(b"".join(frame(DATA, 0, 1, bytes(10_000)) for _ in range(9)), 0.0)
    assert connection.error is None
    connection.consumed(1, 15_000)
    assert written(connection) == [(WINDOW_UPDATE, 0, 0, (75_000).to_bytes(4))]


def test_a_stream_that_is_over_gives_back_what_it_held() -> None:
    limits = Limits(stream_window_bytes=65_535, connection_window_bytes=65_535)
    connection = greeted(limits)
    for number in range(20):
        stream_id = 2 * number + 1
        data = request(stream_id, is_last=False) + frame(DATA, 0, stream_id, bytes(16_000))
        connection.feed(data + (reset(stream_id) if number % 2 else b""), 0.0)
        if number % 2 == 0:
            connection.respond(stream_id, HEAD)
            connection.finish(stream_id, TRAILERS)
    assert connection.error is None
    assert connection.open_streams == 0


def test_data_for_a_stream_that_we_have_reset_uses_no_room() -> None:
    connection = greeted(
        Limits(stream_window_bytes=65_535, connection_window_bytes=65_535), request(1, is_last=False)
    )
    connection.reset(1)
    for _ in range(50):
        connection.feed(frame(DATA, 0, 1, bytes(16_000)), 0.0)
        assert connection.error is None


def test_padding_opens_its_window_by_itself() -> None:
    connection = greeted(
        Limits(stream_window_bytes=65_535, connection_window_bytes=65_535), request(1, is_last=False)
    )
    for _ in range(1_000):
        assert connection.feed(frame(DATA, PADDED, 1, b"\xff" + b"x" + bytes(255)), 0.0)
        connection.consumed(1, 1)
    assert connection.error is None


def test_resets_are_remembered_long_enough_and_then_forgiven() -> None:
    connection = greeted(Limits(streams=1), request(1))
    for stream_id in range(3, 4_003, 2):
        connection.feed(request(stream_id, is_last=False), 0.0)
    connection.drain()
    for stream_id in (3, 4_001):
        assert connection.feed(frame(DATA, END_STREAM, stream_id, b"late"), 0.0) == []
    assert connection.error is None


def test_a_client_with_a_smaller_table_is_told_once_that_we_use_none() -> None:
    connection = greeted(None, settings((1, 4_096)), *(request(stream_id) for stream_id in (1, 3, 5, 7)))
    connection.respond(1, HEAD, is_last=True)
    assert [payload for *_, payload in written(connection)] == [HEAD]
    connection.feed(settings((1, 100)) + settings((1, 0)), 0.0)
    connection.drain()
    connection.respond(3, HEAD, is_last=True)
    connection.respond(5, HEAD, is_last=True)
    assert [payload for *_, payload in written(connection)] == [EMPTY_TABLE + HEAD, HEAD]
    connection.feed(settings((1, 10)), 0.0)
    connection.drain()
    connection.respond(7, HEAD, is_last=True)
    assert [payload for *_, payload in written(connection)] == [HEAD]


def test_a_long_head_goes_out_in_several_frames() -> None:
    connection = greeted(None, request(1))
    block = encode_headers([(b":status", b"200"), (b"x", b"y" * 40_000)])
    connection.respond(1, block, is_last=True)
    frames = written(connection)
    assert [(kind, flags) for kind, flags, *_ in frames] == [
        (HEADERS, END_STREAM),
        (CONTINUATION, 0),
        (CONTINUATION, END_HEADERS),
    ]
    assert b"".join(payload for *_, payload in frames) == block


def test_our_goodbye_comes_twice_and_open_calls_go_on() -> None:
    connection = greeted(None, request(1))
    connection.go_away()
    connection.go_away()
    goodbye, ping = written(connection)
    assert goodbye == (GOAWAY, 0, 0, (2**31 - 1).to_bytes(4) + bytes(4))
    assert ping[0] == PING
    assert kinds_of(connection.feed(request(3), 0.0)) == ["RequestStarted"]  # sent before it knew
    assert connection.feed(frame(PING, ACK, 0, ping[3]), 0.0) == []
    assert goodbye_of(written(connection)) == (3, ErrorCode.NO_ERROR)
    assert connection.feed(request(5), 0.0) == []
    assert resets_of(written(connection)) == [(5, ErrorCode.REFUSED_STREAM)]
    for stream_id in (1, 3):
        connection.respond(stream_id, HEAD, is_last=True)
    assert connection.open_streams == 0
    assert connection.error is None


def test_a_client_cannot_make_us_leave() -> None:
    connection = greeted(None, request(1))
    connection.go_away()
    (_, _, _, payload) = written(connection)[1]
    other = greeted()
    assert other.feed(frame(PING, ACK, 0, payload) + request(1), 0.0)[0] == Ponged(payload)
    assert other.open_streams == 1


def test_the_goodbye_of_a_client_is_told_and_its_calls_go_on() -> None:
    connection = greeted(None, request(1))
    events = connection.feed(frame(GOAWAY, 0, 0, bytes(4) + (2).to_bytes(4) + b"tired"), 0.0)
    assert events == [GoneAway(2, "tired")]
    connection.respond(1, HEAD, is_last=True)
    assert written(connection) == [(HEADERS, END_HEADERS | END_STREAM, 1, HEAD)]


def test_the_owner_may_end_a_connection_and_says_why() -> None:
    connection = greeted(None, request(1), request(3))
    connection.abort(ErrorCode.SETTINGS_TIMEOUT, "settings not confirmed")
    connection.abort(ErrorCode.NO_ERROR, "again")
    ((kind, _, _, payload),) = written(connection)
    assert kind == GOAWAY
    assert payload == (3).to_bytes(4) + (4).to_bytes(4) + b"settings not confirmed"
    assert connection.error is not None
    assert connection.error.reason is ErrorCode.SETTINGS_TIMEOUT
    connection.go_away()
    assert connection.feed(request(5), 0.0) == []
    assert connection.drain() == b""


def test_what_came_before_bad_bytes_is_still_told() -> None:
    connection = greeted()
    events = connection.feed(request(1) + frame(PING, 0, 0, b"short") + request(3), 0.0)
    assert kinds_of(events) == ["RequestStarted"]
    assert goodbye_of(written(connection)) == (1, ErrorCode.FRAME_SIZE_ERROR)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream_window_bytes": 65_534},
        {"connection_window_bytes": 2**31},
        {"frame_bytes": 16_383},
        {"frame_bytes": 2**24},
        {"streams": 0},
    ],
    ids=str,
)
def test_limits_that_the_protocol_does_not_have_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)


def test_all_that_is_written_are_whole_frames() -> None:
    connection = ServerConnection()
    connection.feed(GREETING + request(1), 0.0)
    connection.respond(1, HEAD)
    connection.send(1, bytes(100_000))
    assert len(frames_of(connection.drain())) == 2 + 1 + 1 + 4
