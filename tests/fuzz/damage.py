"""Ways to spoil what was good: bits, bytes, lengths, ends, and pieces of something else in between."""

from collections.abc import Callable, Sequence
from random import Random

EDGES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
"""Where lengths and flags change their meaning."""
LENGTHS = (b"\x00", b"\x7f", b"\x80\x00", b"\x80\x01", b"\xff\x7f", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff")
"""Variable byte integers, some of them longer than they may be."""

Damage = Callable[[bytearray, Random], None]


def flip_bit(data: bytearray, dice: Random) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def set_byte(data: bytearray, dice: Random) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.choice((*EDGES, dice.randrange(256)))


def cut_end(data: bytearray, dice: Random) -> None:
    del data[dice.randrange(len(data) + 1) :]


def cut_span(data: bytearray, dice: Random) -> None:
    start = dice.randrange(len(data) + 1)
    del data[start : start + dice.randrange(1, 9)]


def repeat_span(data: bytearray, dice: Random) -> None:
    start = dice.randrange(len(data) + 1)
    span = data[start : start + dice.randrange(1, 17)]
    data[start:start] = span * dice.choice((1, 1, 2, 40))


def insert_bytes(data: bytearray, dice: Random) -> None:
    place = dice.randrange(len(data) + 1)
    data[place:place] = dice.randbytes(dice.randrange(1, 5))


def lie_about_length(data: bytearray, dice: Random) -> None:
    """Most packets have their length in the second byte, and texts theirs anywhere."""
    place = 1 if dice.random() < 0.5 else dice.randrange(len(data) + 1)
    lie = dice.choice(LENGTHS)
    data[place : place + len(lie)] = lie


EVERY: tuple[Damage, ...] = (
    flip_bit,
    set_byte,
    cut_end,
    cut_span,
    repeat_span,
    insert_bytes,
    lie_about_length,
)


def damaged(data: bytes, dice: Random, others: Sequence[bytes] = ()) -> bytes:
    """The same with one to three kinds of damage; now and then the end is that of something else."""
    spoilt = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3))):
        dice.choice(EVERY)(spoilt, dice)
    if others and dice.random() < 0.1:
        other = dice.choice(others)
        spoilt[dice.randrange(len(spoilt) + 1) :] = other[dice.randrange(len(other) + 1) :]
    return bytes(spoilt)


def damaged_text(text: str, dice: Random, tokens: Sequence[str]) -> str:
    """The same for text: words of its language where they do not belong, and characters lost or doubled."""
    spoilt = text
    for _ in range(dice.choice((1, 1, 2, 4))):
        start = dice.randrange(len(spoilt) + 1)
        stop = start + dice.choice((0, 0, 1, 1, 3, 20))
        put = dice.choice((dice.choice(tokens), dice.choice(tokens), "", spoilt[start:stop] * 2))
        spoilt = spoilt[:start] + put + spoilt[stop:]
    return spoilt


def pieces(data: bytes, dice: Random) -> list[bytes]:
    """The same bytes cut at random, sometimes into single ones."""
    if dice.random() < 0.1:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(1, 6)))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
