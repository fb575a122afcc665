"""Damaged bytes end in an answer, never in an exception, whatever is broken and wherever."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http2 import BodyReceived, ConnectionFault, RequestStarted, ServerConnection
from tests.support.examples import examples
from tests.wire.http2.broken_rules import ALL
from tests.wire.http2.raw_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GREETING,
    HEAD,
    HEADERS,
    PING,
    SETTINGS,
    TRAILERS,
    frame,
    frames_of,
    request,
    reset,
    window_update,
)
from tests.wire.http2.raw_client import settings as settings_frame

INSERTING = b"\x83\x86\x44\x02/a\x41\x08localhos\x40\x01x\x81\x1f"
CONVERSATION = (
    GREETING
    + frame(SETTINGS, ACK)
    + request(1, is_last=False)
    + frame(DATA, 0, 1, b"\0\0\0\0\x05hello")
    + frame(HEADERS, 1, 3, INSERTING[:9])
    + frame(CONTINUATION, END_HEADERS, 3, INSERTING[9:])
    + frame(DATA, 1, 1)
    + settings_frame((4, 20), (1, 0), (5, 20_000))
    + window_update(1, 10)
    + window_update(0, 10)
    + frame(PING, 0, 0, b"12345678")
    + request(5)
    + reset(5)
)


def serve(pieces: list[bytes]) -> ServerConnection:
    """Answer every call at once, and look at all that is written."""
    connection = ServerConnection()
    for now, piece in enumerate(pieces):
        for event in connection.feed(piece, now / 1_000):
            if isinstance(event, RequestStarted):
                connection.respond(event.stream_id, HEAD)
            if isinstance(event, BodyReceived):
                connection.consumed(event.stream_id, len(event.data))
            if isinstance(event, RequestStarted | BodyReceived) and event.is_last:
                connection.send(event.stream_id, b"answer" * 10)
                connection.finish(event.stream_id, TRAILERS)
        frames_of(connection.drain())
    assert connection.error is None or type(connection.error) is ConnectionFault
    return connection


def test_the_conversation_that_gets_damaged_is_good_itself() -> None:
    assert serve([CONVERSATION]).error is None


def test_a_conversation_cut_off_anywhere_does_no_harm() -> None:
    for length in range(len(CONVERSATION)):
        assert serve([CONVERSATION[:length]]).error is None


def test_flipped_bits_do_no_harm() -> None:
    failures = 0
    for place in range(len(CONVERSATION)):
        for bit in range(8):
            damaged = bytearray(CONVERSATION)
            damaged[place] ^= 1 << bit
            failures += serve([bytes(damaged)]).error is not None
    assert failures > len(CONVERSATION)


def test_changed_bytes_in_changed_pieces_do_no_harm(scale: int) -> None:
    dice = Random(1)
    sources = [CONVERSATION, *(case.data for case in ALL if len(case.data) < 2_000)]
    for _ in range(3_000 * scale):
        damaged = bytearray(dice.choice(sources))
        for _ in range(dice.randint(1, 6)):
            place = dice.randrange(len(damaged))
            damaged[place : place + dice.randint(0, 2)] = dice.randbytes(dice.randint(0, 2))
        cuts = sorted(dice.randrange(len(damaged) + 1) for _ in range(3))
        serve(
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
    st.sampled_from([0, 1, 1, 2, 3, 5]),
    st.binary(max_size=10) | st.sampled_from([bytes(4), bytes(8), bytes(5), INSERTING, b"\0\0\0\x09"]),
)


@examples(100)
@given(st.lists(random_frames, max_size=12))
def test_random_frames_do_no_harm(frames: list[bytes]) -> None:
    serve([GREETING, *frames])
