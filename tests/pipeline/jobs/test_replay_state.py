"""What a replay remembers outlives it, line by line, and belongs to it alone."""

from pathlib import Path

import pytest

from penstock.core.ports import Position
from penstock.pipeline.jobs.replay.slices import Slice
from penstock.pipeline.jobs.replay.state import State
from penstock.pipeline.source.errors import InvalidOption

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
    known.advance()  # behind what is left of it
    again = State.load(file, WHAT)
    assert again is not None
    assert again.done == 2


def test_keys_of_two_plans_are_never_the_same(file: Path) -> None:
    one, other = (State.begin(file, WHAT, LOG, SLICES).plan for _ in range(2))
    assert {one.key(0), one.key(1)}.isdisjoint({other.key(0), other.key(1)})


def test_a_file_of_another_replay_is_refused_by_what_differs(file: Path) -> None:
    State.begin(file, WHAT, LOG, SLICES)
    with pytest.raises(InvalidOption, match="another replay, with prefix replay/ in place of b/"):
        State.load(file, {**WHAT, "prefix": "b/"})
    with pytest.raises(InvalidOption, match="with speed - in place of 2"):
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
