"""Positions: offsets of a stream, and offsets that were assigned twice after a crash."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.client import Gap
from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidCursor
from penstock.lake import Change, lake_messages
from penstock.lake.manifest import Epoch
from penstock.spark.options import read_options
from penstock.spark.source.lake_scan import LakePart, read_lake_part
from penstock.spark.source.log_scan import LiveLog, Portion
from penstock.spark.source.planner import Planner
from penstock.spark.source.positions import Bounds, Epochs, cursor_at, cursor_in, offset_of, position_of
from penstock.spark.source.reader import StreamReader
from penstock.spark.source.schema import log_schema
from tests.spark.source.lakes import add_files

LOG = "ab" * 8
COLUMNS = pa.schema({"epoch": pa.int64(), "offset": pa.int64()})
LOST = Epoch(first=71)
KEPT = Epoch(first=71, kept=130)


def at(epoch: int, offset: int) -> Position:
    return Position(LOG, epoch, offset)


def cursor(epoch: int, offset: int) -> str:
    return cursor_at(at(epoch, offset), offset)


def rows(epoch: int, first: int, last: int) -> pa.RecordBatch:
    count = last - first + 1
    return pa.record_batch(
        {
            "offset": pa.array(range(first, last + 1), pa.int64()),
            "epoch": pa.array([epoch] * count, pa.int64()),
            "topic": ["a"] * count,
            "published_at": pa.array([epoch] * count, pa.timestamp("us", "UTC")),
        }
    )


def lake_of(folder: Path, end: str, second: Epoch, *batches: pa.RecordBatch) -> Path:
    """A lake with rows of epoch 1, and of epoch 2, which began anew at offset 71."""
    add_files(folder, batches, end, start=cursor(1, 0))
    lake_messages(folder).commit(lambda manifest: Change(epochs={1: Epoch(first=1), 2: second}))
    return folder


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """The end of epoch 1 was gone before it was archived."""
    return lake_of(tmp_path / "lake", cursor(2, 200), LOST, rows(1, 1, 70), rows(2, 71, 200))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The end of epoch 1 was archived, up to 130, before a crash took it."""
    first, tail, second = rows(1, 1, 70), rows(1, 71, 130), rows(2, 71, 200)
    return lake_of(tmp_path / "lake", cursor(2, 200), KEPT, first, tail, second)


def planner(lake: Path) -> Planner:
    return Planner(read_options({"address": "", "lake": str(lake)}, is_stream=True))


def read(portion: Portion) -> list[tuple[int, int]]:
    parts = [part for part in portion.parts if isinstance(part, LakePart)]
    batches = [batch for part in parts for batch in read_lake_part(part, (), COLUMNS)]
    return sorted((row["epoch"], row["offset"]) for batch in batches for row in batch.to_pylist())


def spots(epoch: int, first: int, last: int) -> list[tuple[int, int]]:
    return [(epoch, offset) for offset in range(first, last + 1)]


def test_an_offset_belongs_to_the_last_epoch_that_had_begun_by_then() -> None:
    epochs = Epochs({1: Epoch(first=1), 2: Epoch(first=71), 3: Epoch(first=91)})
    assert epochs.locate(at(1, 130)) == (1, 130)
    assert epochs.locate(at(2, 100)) == (2, 100)
    assert epochs.locate(at(3, 100)) == (3, 100)
    assert epochs.locate(at(3, 80)) == (2, 80)
    assert epochs.locate(at(9, 70)) == (1, 70)
    assert epochs.locate(at(3, 0)) == (0, 0)


def test_what_a_reader_has_seen_and_nobody_has_is_lost() -> None:
    assert Epochs({2: LOST}).lost(Bounds((1, 130), (2, 90))) == [Gap(71, 130, "lost-uncommitted")]
    assert Epochs({2: Epoch(first=71, kept=110)}).lost(Bounds((1, 130), (2, 90))) == [
        Gap(111, 130, "lost-uncommitted")
    ]
    assert Epochs({2: KEPT}).lost(Bounds((1, 130), (2, 90))) == []
    assert Epochs({2: LOST}).lost(Bounds((1, 70), (2, 90))) == []
    assert Epochs({2: LOST}).lost(Bounds((1, 100), (1, 130))) == []


def test_a_stream_of_a_lost_end_gets_the_rows_that_have_its_offsets_now(lost: Path) -> None:
    portion = planner(lost).portion(cursor(1, 130))
    assert read(portion) == spots(2, 71, 200)
    assert portion.gaps == [Gap(71, 130, "lost-uncommitted")]


def test_a_micro_batch_that_was_planned_before_the_crash_is_not_mixed_with_what_came_later(
    lost: Path,
) -> None:
    assert read(planner(lost).portion(cursor(1, 60), cursor(1, 130))) == spots(1, 61, 70)
    assert read(planner(lost).portion(cursor(1, 100), cursor(1, 130))) == []


def test_a_lost_end_that_was_archived_is_read_before_what_came_later(kept: Path) -> None:
    portion = planner(kept).portion(cursor(1, 100))
    assert read(portion) == [*spots(1, 101, 130), *spots(2, 71, 200)]
    assert list(portion.gaps) == []
    assert read(planner(kept).portion(cursor(2, 100))) == spots(2, 101, 200)
    assert read(planner(kept).portion(cursor(1, 130))) == spots(2, 71, 200)


@pytest.mark.parametrize("place", [cursor(1, 0), cursor(1, 100), cursor(1, 130), cursor(2, 60)])
def test_limits_cut_reused_offsets_so_that_each_row_comes_once(kept: Path, place: str) -> None:
    plan, seen = planner(kept), []
    whole = read(plan.portion(place))
    while position_of(place) != at(2, 200):
        portion = plan.portion(place, limit_rows=20)
        seen += read(portion)
        place = portion.until
    assert sorted(seen) == whole
    assert len(set(seen)) == len(seen)


class Log:
    """A log in its second epoch, which began at offset 71 and has come to 130."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        monkeypatch.setattr(LiveLog, "portion", lambda log, *words: self.portion(*words))

    def portion(self, after: str, until: str | None, *limits: int | None) -> Portion:
        self.asked.append(after)
        place = position_of(after)
        is_cut = place.epoch == 1 and place.offset > 70
        gaps = [Gap(71, place.offset, "lost-uncommitted")] if is_cut else []
        start = 70 if is_cut else place.offset
        return Portion(after=cursor(2, start), until=cursor(2, 130), rows=130 - start, bytes=1, gaps=gaps)


def with_log(lake: Path) -> Planner:
    return Planner(read_options({"address": "http://127.0.0.1:1", "lake": str(lake)}, is_stream=True))


def test_what_the_log_lost_and_the_lake_has_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(tmp_path / "lake", cursor(1, 130), LOST, rows(1, 1, 130))
    log = Log(monkeypatch)
    portion = with_log(lake).portion(cursor(1, 100))
    assert read(portion) == spots(1, 101, 130)
    assert log.asked == [cursor(1, 130)]
    assert (list(portion.gaps), portion.until) == ([], cursor(2, 130))


def test_who_is_behind_the_crash_reads_nothing_of_a_lake_that_ends_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    add_files(lake, [rows(1, 1, 130)], cursor(1, 130), start=cursor(1, 0))
    log = Log(monkeypatch)
    portion = with_log(lake).portion(cursor(2, 100))
    assert read(portion) == []
    assert log.asked[-1] == cursor(2, 100)
    assert (portion.rows, list(portion.gaps)) == (30, [])


def test_a_run_that_ends_is_not_over_at_a_place_that_a_crash_took() -> None:
    reader = StreamReader(read_options({}, is_stream=True), log_schema())
    reader._target = cursor(2, 100)
    assert not reader._is_at_target(cursor(1, 130))
    assert reader._is_at_target(cursor(2, 100))
    assert reader._is_at_target(cursor(3, 100))
    assert not reader._is_at_target(cursor(3, 99))


def test_new_rows_are_worth_a_micro_batch_though_their_offsets_are_lower() -> None:
    reader = StreamReader(read_options({}, is_stream=True), log_schema(), now=lambda: 0.0)
    lower = Portion(after=cursor(2, 70), until=cursor(2, 100), rows=30, bytes=1)
    assert reader._is_worth_it(cursor(1, 130), lower)
    assert not reader._is_worth_it(cursor(2, 130), lower)


PLACE = Position("ab" * 8, 3, 700)
CURSOR = Cursor((PLACE,)).encode()


def test_an_offset_is_a_cursor_and_nothing_else() -> None:
    assert offset_of(CURSOR) == {"cursor": CURSOR}
    assert cursor_in({"cursor": CURSOR}) == CURSOR


@pytest.mark.parametrize("offset", [{}, {"index": 3}, {"cursor": 3}])
def test_an_offset_of_another_source_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(InvalidCursor, match="the checkpoint belongs to another"):
        cursor_in(offset)


def test_a_place_nearby_is_of_the_same_log() -> None:
    assert position_of(cursor_at(PLACE, 12)) == Position("ab" * 8, 3, 12)


def test_a_cursor_of_several_logs_is_no_place() -> None:
    with pytest.raises(InvalidCursor, match="several"):
        position_of(Cursor((PLACE, Position("cd" * 8, 1, 1))).encode())
