"""Frames of the peer protocol: found in any chunks, and limited before they are buffered."""

from random import Random

import pytest

from penstock.wire.peer import Ask, FrameReader, Heartbeat, MalformedMessage, decode_message, encode_frame
from tests.fuzz.damage import pieces
from tests.wire.peer.peer_messages import MESSAGES, values_of

STREAM = b"".join(map(encode_frame, MESSAGES))
VALUES = [values_of(message) for message in MESSAGES]


@pytest.mark.parametrize("seed", range(50))
def test_messages_are_found_in_chunks_of_any_size(seed: int) -> None:
    reader, found = FrameReader(), []
    for piece in pieces(STREAM, Random(seed)):
        found += [values_of(message) for message in reader.feed(piece)]
    assert found == VALUES
    assert reader.buffered_bytes == 0


def test_a_frame_is_its_length_and_the_message() -> None:
    frame = encode_frame(Heartbeat())
    assert frame == b"\0\0\0\x02\x91\x02"
    assert decode_message(frame[4:]) == Heartbeat()


def test_what_arrived_of_a_frame_waits_for_the_rest() -> None:
    reader = FrameReader()
    assert reader.feed(STREAM[:3]) == []
    assert reader.buffered_bytes == 3
    assert reader.feed(b"") == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_length_beyond_the_limit_is_refused_before_the_body_arrives(chunked: bool) -> None:
    reader = FrameReader(limit_bytes=100)
    head = (101).to_bytes(4)
    with pytest.raises(MalformedMessage, match="a frame of 101 bytes; 1 to 100 are allowed"):
        for piece in (head[:1], head[1:]) if chunked else (head,):
            reader.feed(piece)


def test_a_frame_of_the_longest_length_is_read() -> None:
    message = Ask(0, 1, "why", bytes(50), 1)
    size = len(encode_frame(message)) - 4
    assert FrameReader(limit_bytes=size).feed(encode_frame(message)) == [message]
    with pytest.raises(MalformedMessage):
        FrameReader(limit_bytes=size - 1).feed(encode_frame(message))
    with pytest.raises(ValueError, match=f"a frame of {size} bytes"):
        encode_frame(message, limit_bytes=size - 1)


def test_an_empty_frame_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        FrameReader().feed(bytes(4))


def test_never_more_than_one_frame_is_buffered() -> None:
    reader = FrameReader(limit_bytes=10_000)
    frame = encode_frame(Ask(0, 1, "why", bytes(9_000), 1))
    for at in range(0, len(frame) * 20, 1_000):
        reader.feed((frame * 20)[at : at + 1_000])
        assert reader.buffered_bytes < len(frame)
