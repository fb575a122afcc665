"""Damaged bytes between shards: a message, or the one coded error of the wire."""

from random import Random

from penstock.wire.peer import FrameReader, MalformedMessage, decode_message, encode_frame, encode_message
from tests.fuzz.damage import damaged, pieces
from tests.fuzz.verdict import judge
from tests.wire.peer.peer_messages import MESSAGES

BODIES = [encode_message(message) for message in MESSAGES]
FRAMES = [encode_frame(message) for message in MESSAGES]


def test_messages_are_read_or_refused(dice: Random, many: int) -> None:
    def make(dice: Random) -> bytes:
        return damaged(dice.choice(BODIES), dice, BODIES)

    def parse(data: bytes) -> None:
        message = decode_message(data)
        assert decode_message(encode_message(message)) is not None, "what was read can be sent on"

    tally = judge(parse, make, dice, many, steps_per_unit=10, error=MalformedMessage)
    assert tally.taken > many // 20 and tally.refused > many // 10


def test_streams_of_frames_are_read_or_refused(dice: Random, many: int) -> None:
    def make(dice: Random) -> bytes:
        stream = b"".join(dice.choices(FRAMES, k=dice.randrange(1, 5)))
        return damaged(stream, dice, FRAMES) if dice.random() < 0.8 else stream

    def parse(data: bytes) -> None:
        reader = FrameReader(limit_bytes=10_000)
        for piece in pieces(data, dice):
            reader.feed(piece)
            assert reader.buffered_bytes <= 10_004

    tally = judge(parse, make, dice, many, steps_per_unit=40, error=MalformedMessage)
    assert tally.taken > many // 20 and tally.refused > many // 10
