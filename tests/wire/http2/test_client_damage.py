"""Damaged bytes of a server end in an error with a code, never in an exception, and cuts change nothing."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http2 import (
    BodyReceived,
    ClientConnection,
    ConnectionFault,
    ErrorCode,
    Event,
    Http2Error,
    StreamReset,
)
from tests.support.examples import examples
from tests.wire.http2.client_broken_rules import CONNECTION_ERRORS, STREAM_ERRORS
from tests.wire.http2.raw_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    SETTINGS,
    frame,
    reset,
    window_update,
)
from tests.wire.http2.raw_client import settings as settings_frame
from tests.wire.http2.raw_server import ASK, GREETING, response, trailers, written

INSERTING = b"\x88\x5f\x10application/grpc\x40\x01x\x81\x1f"
CONVERSATION = (
    settings_frame((3, 100), (4, 100))
    + frame(SETTINGS, ACK)
    + response(1)
    + frame(DATA, 0, 1, b"\0\0\0\0\x05hello")
    + frame(HEADERS, 0, 3, INSERTING[:9])
    + frame(CONTINUATION, END_HEADERS, 3, INSERTING[9:])
    + window_update(1, 10)
    + window_update(0, 10)
    + frame(DATA, 1, 3, b"all")
    + settings_frame((4, 20), (1, 0), (5, 20_000))
    + frame(PING, 0, 0, b"12345678")
    + response(5, fields=[(b":status", b"103")])
    + reset(5, ErrorCode.REFUSED_STREAM)
    + trailers(1)
    + frame(GOAWAY, 0, 0, (7).to_bytes(4) + bytes(4) + b"bye")
)


def ask(pieces: list[bytes]) -> tuple[ClientConnection, list[Event]]:
    """Feed a client with open calls, consume what comes, and look at all that it writes."""
    client = ClientConnection()
    for size in (10, 200, 0, 70_000):
        stream_id = client.request(ASK)
        client.send(stream_id, bytes(size))
    found: list[Event] = []
    for now, piece in enumerate(pieces):
        for event in client.feed(piece, now / 1_000):
            found.append(event)
            if isinstance(event, BodyReceived):
                client.consumed(event.stream_id, len(event.data))
        if client.free_streams:
            client.request_whole(ASK, b"one more")
        written(client)
    assert client.error is None or (
        type(client.error) is ConnectionFault and client.error.reason in ErrorCode
    )
    return client, found


def test_the_conversation_that_gets_damaged_is_good_itself() -> None:
    client, events = ask([CONVERSATION])
    assert client.error is None
    assert [type(event).__name__ for event in events] == [
        *("ResponseStarted", "BodyReceived", "ResponseStarted", "BodyReceived"),
        *("RequestUnprocessed", "TrailersReceived", "GoneAway"),
    ]


def test_a_conversation_cut_off_anywhere_does_no_harm() -> None:
    for length in range(len(CONVERSATION)):
        assert ask([CONVERSATION[:length]])[0].error is None


def test_flipped_bits_do_no_harm() -> None:
    failures = resets = 0
    for place in range(len(CONVERSATION)):
        for bit in range(8):
            damaged = bytearray(CONVERSATION)
            damaged[place] ^= 1 << bit
            client, events = ask([bytes(damaged)])
            failures += client.error is not None
            resets += any(isinstance(event, StreamReset) for event in events)
    assert failures > len(CONVERSATION)
    assert resets


def test_changed_bytes_in_changed_pieces_do_no_harm(scale: int) -> None:
    dice = Random(1)
    cases = [GREETING + case.data for case in CONNECTION_ERRORS + STREAM_ERRORS if len(case.data) < 2_000]
    sources = [CONVERSATION, *cases]
    for _ in range(2_000 * scale):
        damaged = bytearray(dice.choice(sources))
        for _ in range(dice.randint(1, 6)):
            place = dice.randrange(len(damaged))
            damaged[place : place + dice.randint(0, 2)] = dice.randbytes(dice.randint(0, 2))
        cuts = sorted(dice.randrange(len(damaged) + 1) for _ in range(3))
        ask(
            [
                bytes(damaged[start:stop])
                for start, stop in zip([0, *cuts], [*cuts, len(damaged)], strict=True)
            ]
        )


kinds = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x77])
random_frames = st.builds(
    frame,
    kinds,
    st.sampled_from([0, 1, 4, 5, 8, 0x0D, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 1, 2, 3, 5, 7, 9, 11]),
    st.binary(max_size=10) | st.sampled_from([bytes(4), bytes(8), bytes(5), INSERTING, b"\0\0\0\x07"]),
)
good_frames = st.sampled_from(
    [
        *(response(1), response(3), response(5), trailers(1), trailers(3), reset(5), reset(7)),
        *(
            frame(DATA, 0, 1, b"some"),
            frame(DATA, 1, 3, b"last"),
            window_update(7, 1_000),
            window_update(0, 9),
        ),
        *(
            settings_frame((4, 1)),
            settings_frame((4, 300)),
            frame(PING, 0, 0, bytes(8)),
            frame(SETTINGS, ACK),
        ),
    ]
)


@examples(100)
@given(st.lists(random_frames | good_frames, max_size=12))
def test_random_frames_do_no_harm(frames: list[bytes]) -> None:
    ask([GREETING, *frames])


@examples(50)
@given(st.binary(max_size=200))
def test_random_bytes_do_no_harm(data: bytes) -> None:
    ask([data])
    ask([GREETING, data])


@examples(150)
@given(
    st.lists(random_frames | good_frames | good_frames, max_size=16),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_cuts_change_neither_events_nor_what_is_written(frames: list[bytes], cuts: list[int]) -> None:
    data = GREETING + b"".join(frames)
    places = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
    seen = []
    for parts in ([data], pieces):
        client = ClientConnection()
        for size in (10, 200, 0, 70_000):
            client.send(client.request(ASK), bytes(size))
        events = [event for part in parts for event in client.feed(part, 0.0)]
        error: Http2Error | None = client.error
        seen.append((events, client.drain(), error and (error.reason, str(error)), client.free_streams))
    assert seen[0] == seen[1]
