"""Plan of a replay: slices in log order within limits, loads, and the state file."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.cursor import Position
from penstock.spark.errors import InvalidOption
from penstock.spark.jobs.replay import plan
from penstock.spark.jobs.replay.plan import Load, Slice, State, plan_loads, plan_slices


def group(first: int, last: int, moment: int = 0, rows: int | None = None, size: int = 10) -> Slice:
    count = last - first + 1 if rows is None else rows
    return Slice(first, last, count, size, moment * 1_000_000, moment)


def test_groups_are_joined_up_to_the_limits() -> None:
    groups = [group(1, 10), group(11, 20), group(25, 30), group(31, 40)]
    assert [(part.first, part.last, part.rows) for part in plan_slices(groups, rows=26)] == [
        (1, 30, 26),
        (31, 40, 10),
    ]
    assert [(part.first, part.last, part.bytes) for part in plan_slices(groups, size=25)] == [
        (1, 20, 20),
        (25, 40, 20),
    ]


def test_groups_of_different_moments_stay_apart() -> None:
    assert len(plan_slices([group(1, 10, 1), group(11, 20, 1), group(21, 30, 2)])) == 2


def test_what_overlaps_because_a_clock_was_set_back_is_one_slice() -> None:
    (part,) = plan_slices([group(1, 10, 5, rows=6), group(4, 9, 3, rows=4)], rows=1)
    assert part == Slice(1, 10, 10, 20, 3_000_000, 5)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(0, 3)), max_size=30))
def test_slices_hold_every_group_once_and_in_order(shapes: list[tuple[int, int, int]]) -> None:
    groups, at = [], 1
    for gap, length, moment in shapes:
        groups.append(group(at + gap, at + gap + length - 1, moment))
        at += gap + length
    found = plan_slices(groups[::-1], rows=12)
    assert sum(part.rows for part in found) == sum(each.rows for each in groups)
    assert all(one.last < next.first for one, next in pairwise(found))
    assert all(part.rows <= 12 for part in found)
    assert all(any(part.first <= each.first and each.last <= part.last for part in found) for each in groups)


def test_loads_hold_every_slice_once_within_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "LOAD_ROWS", 25)
    monkeypatch.setattr(plan, "LOAD_BYTES", 45)
    all_slices = [group(number * 10, number * 10 + 9) for number in range(7)]
    all_slices[5] = group(50, 59, size=100)
    assert list(plan_loads(all_slices, 0, None)) == [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7)]
    assert list(plan_loads(all_slices, 6, None)) == [Load(6, 7)]
    assert not list(plan_loads(all_slices, 7, None))


def test_no_stage_waits_long_for_its_time() -> None:
    all_slices = [group(number * 10, number * 10 + 9, moment=number * 100) for number in range(8)]
    assert list(plan_loads(all_slices, 0, 1.0)) == [(0, 4), (4, 8)]
    assert list(plan_loads(all_slices, 0, 2.0)) == [(0, 7), (7, 8)]
    assert list(plan_loads(all_slices, 0, None)) == [(0, 8)]


WHAT = {"prefix": "replay/", "from": "earliest"}
LOG = Position("0102030405060708", 1, 99)
SLICES = [Slice(1, 10, 10, 500, 7, 0), Slice(11, 30, 15, 900, 8, 1), Slice(31, 40, 5, 100, 9, 2)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "_replays" / "x.jsonl"


def test_nothing_is_remembered_of_what_never_began(file: Path) -> None:
    assert State.load(file, WHAT) is None


def test_a_plan_and_what_is_done_of_it_are_remembered(file: Path) -> None:
    begun = State.begin(file, WHAT, LOG, SLICES)
    assert (begun.rows, begun.rows_done, begun.is_finished) == (30, 0, False)
    begun.advance()
    begun.advance()
    known = State.load(file, WHAT)
    assert known is not None
    assert known.plan == begun.plan
    assert (known.done, known.rows_done, known.is_finished) == (2, 25, False)
    known.advance()
    again = State.load(file, WHAT)
    assert again is not None
    assert again.is_finished
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_line_that_was_cut_short_counts_as_not_there(file: Path) -> None:
    begun = State.begin(file, WHAT, LOG, SLICES)
    begun.advance()
    whole = file.read_bytes()
    begun.advance()
    torn = file.read_bytes()
    for length in range(len(whole), len(torn)):
        file.write_bytes(torn[:length])
        known = State.load(file, WHAT)
        assert known is not None
        assert known.done == 1
    assert known is not None
    known.advance()  # behind what is left of it
    again = State.load(file, WHAT)
    assert again is not None
    assert again.done == 2


def test_keys_of_two_plans_are_never_the_same(file: Path) -> None:
    one, other = (State.begin(file, WHAT, LOG, SLICES).plan for _ in range(2))
    assert {one.key(0), one.key(1)}.isdisjoint({other.key(0), other.key(1)})


def test_a_file_of_another_replay_is_refused_by_what_differs(file: Path) -> None:
    State.begin(file, WHAT, LOG, SLICES)
    with pytest.raises(InvalidOption, match="another replay, with prefix replay/ instead of b/"):
        State.load(file, {**WHAT, "prefix": "b/"})
    with pytest.raises(InvalidOption, match="with speed - instead of 2"):
        State.load(file, {**WHAT, "speed": "2"})


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"done": 1}'])
def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine"
    file.write_bytes(content)
    with pytest.raises(InvalidOption, match="not the state of a replay"):
        State.load(file, WHAT)
    assert file.read_bytes() == content


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="directory"):
        State.load(tmp_path, WHAT)
