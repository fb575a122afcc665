"""Portions of a range: contiguous, of similar size, and complete."""

import random
from collections.abc import Iterator

import pytest

from penstock.core.ports.archive import Portion
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.read.ranges import Bounds, split


def pieces_of(*counts: int, size: int = 100, skipped: int = 0) -> list[Piece]:
    """Pieces with so many rows each, of `size` bytes a row; some offsets of each belong to others."""
    found: list[Piece] = []
    for count in counts:
        first = found[-1].last + 1 if found else 1
        last = first + count + skipped - 1
        found.append(Piece(first, last, count, count * size, 0, is_sealed=True))
    return found


def count_all(piece: Piece) -> int:
    return piece.count


def spans_of(portions: tuple[Portion, ...]) -> list[tuple[int, int, int]]:
    return [(each.after, each.until, each.rows) for each in portions]


def test_equal_pieces_make_equal_portions() -> None:
    portions = split(pieces_of(10, 10, 10, 10), Bounds(0, 40), 2, count_all)
    assert portions == (Portion(0, 20, 20, 2_000), Portion(20, 40, 20, 2_000))


def test_a_large_piece_is_not_cut() -> None:
    assert spans_of(split(pieces_of(100, 1, 1), Bounds(0, 102), 2, count_all)) == [
        (0, 100, 100),
        (100, 102, 2),
    ]


def test_there_are_no_more_portions_than_pieces() -> None:
    assert spans_of(split(pieces_of(5, 5), Bounds(0, 10), 8, count_all)) == [(0, 5, 5), (5, 10, 5)]


def test_nothing_is_one_portion_without_rows() -> None:
    assert spans_of(split([], Bounds(7, 7), 4, count_all)) == [(7, 7, 0)]


def test_a_piece_that_is_asked_for_in_part_has_no_more_rows_than_offsets() -> None:
    assert spans_of(split(pieces_of(10, 10), Bounds(4, 13), 1, count_all)) == [(4, 13, 9)]
    assert spans_of(split(pieces_of(10, skipped=90), Bounds(40, 45), 1, count_all)) == [(40, 45, 5)]
    assert spans_of(split(pieces_of(10, skipped=90), Bounds(0, 100), 1, count_all)) == [(0, 100, 10)]


def test_what_is_not_asked_for_weighs_nothing() -> None:
    pieces = pieces_of(10, 10, 10, 10)
    portions = split(pieces, Bounds(0, 40), 2, lambda piece: 10 if piece.first > 20 else 0)
    assert spans_of(portions) == [(0, 30, 10), (30, 40, 10)]


def test_there_is_no_portion_without_rows() -> None:
    pieces = pieces_of(90, 10, 10, 10)
    asked = {1: 90, 101: 10}
    portions = split(pieces, Bounds(0, 120), 3, lambda piece: asked.get(piece.first, 0))
    assert spans_of(portions) == [(0, 90, 90), (90, 120, 10)]
    assert spans_of(split(pieces, Bounds(0, 120), 3, lambda _: 0)) == [(0, 120, 0)]


def test_a_limit_of_rows_ends_before_the_piece_that_has_too_many() -> None:
    three, two = pieces_of(10, 10, 10), pieces_of(10, 10)
    assert spans_of(split(three, Bounds(0, 30, 25), 4, count_all)) == [(0, 10, 10), (10, 20, 10)]
    assert spans_of(split(two, Bounds(0, 20, 20), 1, count_all)) == [(0, 20, 20)]


def test_a_limit_of_rows_that_is_less_than_a_piece_cuts_it() -> None:
    pieces = pieces_of(10, 10)
    assert split(pieces, Bounds(0, 20, 3), 4, count_all) == (Portion(0, 3, 3, 300),)
    assert spans_of(split(pieces, Bounds(5, 20, 3), 1, count_all)) == [(5, 8, 3)]


def test_a_limit_passes_what_has_no_rows() -> None:
    empty = Piece(1, 500, 0, 90, 0, is_sealed=True)
    full = Piece(501, 510, 10, 1_000, 0, is_sealed=True)
    assert spans_of(split([empty, full], Bounds(0, 510, 3), 1, count_all)) == [(0, 503, 3)]
    assert spans_of(split([empty, full], Bounds(0, 510, None, 1), 1, count_all)) == [(0, 510, 10)]
    assert spans_of(split([full], Bounds(500, 510, 3), 1, count_all)) == [(500, 503, 3)]


def test_a_limit_of_rows_continues_after_a_gap() -> None:
    assert spans_of(split(pieces_of(10, 10)[1:], Bounds(0, 20, 3), 1, count_all)) == [(0, 13, 3)]


def test_a_limit_of_bytes_ends_before_the_piece_that_has_too_many() -> None:
    pieces = pieces_of(10, 10, 10)
    assert spans_of(split(pieces, Bounds(0, 30, None, 2_999), 2, count_all)) == [(0, 10, 10), (10, 20, 10)]
    assert spans_of(split(pieces, Bounds(0, 30, None, 3_000), 1, count_all)) == [(0, 30, 30)]


def test_a_limit_of_bytes_that_is_less_than_a_piece_lets_it_pass() -> None:
    pieces = pieces_of(10, 10)
    assert spans_of(split(pieces, Bounds(0, 20, None, 1), 4, count_all)) == [(0, 10, 10)]
    assert spans_of(split(pieces, Bounds(7, 20, None, 1), 4, count_all)) == [(7, 10, 3)]


def test_the_smaller_of_two_limits_counts() -> None:
    pieces = pieces_of(10, 10, 10)
    assert spans_of(split(pieces, Bounds(0, 30, 15, 2_000), 1, count_all)) == [(0, 10, 10)]
    assert spans_of(split(pieces, Bounds(0, 30, 25, 1_000), 1, count_all)) == [(0, 10, 10)]
    assert spans_of(split(pieces, Bounds(0, 30, 5, 1), 1, count_all)) == [(0, 5, 5)]


@pytest.mark.parametrize("bounds", [Bounds(0, 40, 15), Bounds(0, 40, None, 1_500)])
def test_nothing_is_counted_behind_a_limit(bounds: Bounds) -> None:
    def looked_at() -> Iterator[Piece]:
        yield from pieces_of(10, 10)
        raise AssertionError("nobody asked for this one")

    assert spans_of(split(looked_at(), bounds, 1, count_all)) == [(0, 10, 10)]


@pytest.mark.parametrize("seed", range(30))
def test_portions_within_limits_follow_one_another_and_have_every_row(seed: int) -> None:
    chance = random.Random(seed)
    pieces = pieces_of(*(chance.randint(0, 30) + 1 for _ in range(chance.randint(1, 60))), skipped=seed % 3)
    limit_rows = chance.choice([None, 1, 7, 40])
    limit_bytes = chance.choice([None, 1, 700, 4_000])
    after, rows, steps = 0, 0, 0
    while after < pieces[-1].last:
        inside = [piece for piece in pieces if piece.last > after]
        found = split(inside, Bounds(after, pieces[-1].last, limit_rows, limit_bytes), 3, count_all)
        assert (found[0].after, found[-1].until > after) == (after, True)
        after, rows, steps = found[-1].until, rows + sum(each.rows for each in found), steps + 1
        assert limit_rows is None or sum(each.rows for each in found) <= limit_rows
        assert limit_bytes is None or len(found) == 1 or sum(each.bytes for each in found) <= limit_bytes
    assert rows >= sum(piece.count for piece in pieces)
    assert steps == 1 or not limit_rows is limit_bytes is None


@pytest.mark.parametrize("seed", range(30))
def test_portions_meet_and_have_every_row(seed: int) -> None:
    chance = random.Random(seed)
    pieces = pieces_of(*(chance.randint(0, 30) + 1 for _ in range(chance.randint(1, 60))), skipped=seed % 3)
    last = pieces[-1].last
    after = chance.randint(0, last)
    until = chance.randint(after, last)
    parts = chance.randint(1, 9)
    inside = [piece for piece in pieces if piece.last > after and piece.first <= until]
    portions = split(inside, Bounds(after, until), parts, count_all)
    assert 1 <= len(portions) <= parts
    assert (portions[0].after, portions[-1].until) == (after, until)
    assert [each.after for each in portions[1:]] == [each.until for each in portions[:-1]]
    assert sum(each.rows for each in portions) <= sum(piece.count for piece in inside)
    whole = [piece for piece in inside if after < piece.first and piece.last <= until]
    assert sum(each.rows for each in portions) >= sum(piece.count for piece in whole)
