"""Slices of a replay: cut in the order of the log, within their limits, and staged in loads."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.jobs.replay import slices
from penstock.pipeline.jobs.replay.slices import Load, Slice, cut, loads


def group(first: int, last: int, moment: int = 0, rows: int | None = None, size: int = 10) -> Slice:
    count = last - first + 1 if rows is None else rows
    return Slice(first, last, count, size, moment * 1_000_000, moment)


def test_groups_are_joined_up_to_the_limits() -> None:
    groups = [group(1, 10), group(11, 20), group(25, 30), group(31, 40)]
    assert [(part.first, part.last, part.rows) for part in cut(groups, rows=26)] == [
        (1, 30, 26),
        (31, 40, 10),
    ]
    assert [(part.first, part.last, part.bytes) for part in cut(groups, size=25)] == [
        (1, 20, 20),
        (25, 40, 20),
    ]


def test_groups_of_different_moments_stay_apart() -> None:
    assert len(cut([group(1, 10, 1), group(11, 20, 1), group(21, 30, 2)])) == 2


def test_what_overlaps_because_a_clock_was_set_back_is_one_slice() -> None:
    (part,) = cut([group(1, 10, 5, rows=6), group(4, 9, 3, rows=4)], rows=1)
    assert part == Slice(1, 10, 10, 20, 3_000_000, 5)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(0, 3)), max_size=30))
def test_slices_hold_every_group_once_and_in_order(shapes: list[tuple[int, int, int]]) -> None:
    groups, at = [], 1
    for gap, length, moment in shapes:
        groups.append(group(at + gap, at + gap + length - 1, moment))
        at += gap + length
    found = cut(groups[::-1], rows=12)
    assert sum(part.rows for part in found) == sum(each.rows for each in groups)
    assert all(one.last < next.first for one, next in pairwise(found))
    assert all(part.rows <= 12 for part in found)
    assert all(any(part.first <= each.first and each.last <= part.last for part in found) for each in groups)


def test_loads_hold_every_slice_once_within_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LOAD_ROWS", 25)
    monkeypatch.setattr(slices, "LOAD_BYTES", 45)
    all_slices = [group(number * 10, number * 10 + 9) for number in range(7)]
    all_slices[5] = group(50, 59, size=100)
    assert list(loads(all_slices, 0, None)) == [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7)]
    assert list(loads(all_slices, 6, None)) == [Load(6, 7)]
    assert not list(loads(all_slices, 7, None))


def test_no_stage_waits_long_for_its_time() -> None:
    all_slices = [group(number * 10, number * 10 + 9, moment=number * 100) for number in range(8)]
    assert list(loads(all_slices, 0, 1.0)) == [(0, 4), (4, 8)]
    assert list(loads(all_slices, 0, 2.0)) == [(0, 7), (7, 8)]
    assert list(loads(all_slices, 0, None)) == [(0, 8)]
