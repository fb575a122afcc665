"""Cursors that clients made up: an error of ours, or a position that reads back as the same text."""

from random import Random

from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidCursor
from tests.fuzz.damage import damaged_text
from tests.fuzz.verdict import judge

TOKENS = ("=", "==", "A", "AQ", "_", "-", "+", "/", "\n", "%3D", "\0", "é", "\ud800", "A" * 27, "Ⅷ")
SHARDED_TOKENS = (*TOKENS, "Ag", "_w", "gA", "A" * 140)


def test_cursors_are_refused_or_exact(dice: Random, many: int) -> None:
    def make(dice: Random) -> str:
        positions = [
            Position(dice.randbytes(8).hex(), dice.randrange(2**32), dice.randrange(2**64))
            for _ in range(dice.randrange(1, 4))
        ]
        text = Cursor(tuple(positions)).encode()
        return damaged_text(text, dice, TOKENS) if dice.random() < 0.9 else text

    def parse(text: str) -> None:
        assert Cursor.decode(text).encode() == text.rstrip("=")

    tally = judge(parse, make, dice, many, steps_per_unit=10, error=InvalidCursor)
    assert tally.taken > many // 20 and tally.refused > many // 10


def test_cursors_of_several_shards_are_refused_or_exact(dice: Random, many: int) -> None:
    def make(dice: Random) -> str:
        shards = dice.choice((2, 3, 16, 64))
        named = sorted(dice.sample(range(shards), dice.randrange(1, min(shards, 20) + 1)))
        log_id = dice.randbytes(8).hex()
        places = [
            Position(
                log_id,
                dice.choice((0, 1, 127, 128, 2**32 - 1)),
                dice.randrange(2 ** dice.choice((7, 35, 64))),
                n,
            )
            for n in named
        ]
        text = Cursor.of_shards(log_id, shards, places, dice.randrange(2**40)).encode()
        return damaged_text(text, dice, SHARDED_TOKENS) if dice.random() < 0.9 else text

    def parse(text: str) -> None:
        assert Cursor.decode(text, None).encode() == text.rstrip("=")

    tally = judge(parse, make, dice, many, steps_per_unit=10, error=InvalidCursor)
    assert tally.taken > many // 20 and tally.refused > many // 10
