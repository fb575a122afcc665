"""Cursors that clients made up: an error of ours, or a position that reads back as the same text."""

from random import Random

from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidCursor
from tests.fuzz.damage import damaged_text
from tests.fuzz.verdict import judge

TOKENS = ("=", "==", "A", "AQ", "_", "-", "+", "/", "\n", "%3D", "\0", "é", "\ud800", "A" * 27, "Ⅷ")


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
