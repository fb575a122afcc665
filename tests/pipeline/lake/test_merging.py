from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from penstock.errors import Conflict
from penstock.pipeline.lake import merging
from penstock.pipeline.lake.manifest import DataFile
from penstock.pipeline.lake.merging import Group, merge, plan_groups
from penstock.pipeline.lake.splitting import by_date_and_bucket, plain
from penstock.pipeline.lake.writing import write_batches
from tests.pipeline.lake.messages import messages

SCHEMA = plain(messages(0, 1)).schema


def file(name: str, size: int, first: int = 0, **partition: str) -> DataFile:
    return DataFile(
        path=name,
        rows=1,
        bytes=size,
        partition=partition or {"date": "1"},
        first_offset=first,
        last_offset=first,
    )


def names(groups: list[Group]) -> list[list[str]]:
    return [[each.path for each in group.files] for group in groups]


def test_small_files_that_follow_one_another_are_merged_up_to_the_target() -> None:
    files = [file("d", 40, 4), file("a", 40, 1), file("c", 40, 3), file("b", 40, 2), file("e", 40, 5)]
    assert names(plan_groups(files, 100)) == [["a", "b"], ["c", "d"]]


def test_large_files_are_left_alone() -> None:
    files = [file("large", 50, 1), file("a", 10, 2), file("huge", 500, 3), file("b", 10, 4)]
    assert names(plan_groups(files, 100)) == [["a", "b"]]


def test_one_small_file_is_not_worth_it() -> None:
    assert plan_groups([file("a", 10), file("large", 90)], 100) == []


def test_partitions_are_not_mixed_and_the_worst_comes_first() -> None:
    files = [
        file("a", 1, 1, date="1"),
        file("b", 1, 2, date="2"),
        file("c", 1, 3, date="1"),
        file("d", 1, 4, date="2"),
        file("e", 1, 5, date="2"),
    ]
    assert names(plan_groups(files, 100)) == [["b", "d", "e"], ["a", "c"]]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """Three files of one partition, the offsets 0 to 59."""
    made = [write_batches(tmp_path, by_date_and_bucket(1), [messages(first, 20)]) for first in (0, 20, 40)]
    return Group(tuple(each for files in made for each in files))


def test_a_merged_file_has_all_rows_by_topic_and_offset(tmp_path: Path, group: Group) -> None:
    [made] = merge(tmp_path, group, SCHEMA, 1 << 20)
    rows = pq.ParquetFile(tmp_path / made.path).read().to_pylist()
    expected = messages(0, 60).to_pylist()
    assert rows == sorted(expected, key=lambda row: (row["topic"], row["offset"]))
    assert made.partition == group.files[0].partition
    assert (made.rows, made.first_offset, made.last_offset) == (60, 0, 59)
    assert (tmp_path / group.files[0].path).exists()


def test_offsets_that_were_given_twice_are_ordered_by_their_epochs() -> None:
    rows = pa.table({"topic": ["a"] * 4, "epoch": [1, 1, 2, 2], "offset": [3, 4, 3, 4]})
    found = [row for batch in merging.ordered(rows) for row in batch.to_pylist()]
    assert [(row["epoch"], row["offset"]) for row in found] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_what_is_too_much_to_order_at_once_becomes_several_runs(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SORT_BYTES", 1)
    [made] = merge(tmp_path, group, SCHEMA, 1 << 20)
    offsets = pq.ParquetFile(tmp_path / made.path).read(["offset"]).column(0).to_pylist()
    assert offsets[:20] == [*range(0, 20, 2), *range(1, 20, 2)]
    assert sorted(offsets) == list(range(60))


def test_columns_that_are_new_are_null_in_old_rows(tmp_path: Path, group: Group) -> None:
    wider = SCHEMA.append(pa.field("logged_at", pa.timestamp("us", "UTC")))
    [made] = merge(tmp_path, group, wider, 1 << 20)
    assert pq.ParquetFile(tmp_path / made.path).read(["logged_at"]).column(0).null_count == 60


def test_rows_that_are_not_there_are_noticed(tmp_path: Path, group: Group) -> None:
    wrong = Group((structs.replace(group.files[0], rows=21), *group.files[1:]))
    with pytest.raises(Conflict, match="have 60 rows, and should have 61"):
        merge(tmp_path, wrong, SCHEMA, 1 << 20)
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_rows_without_topics_keep_their_order(tmp_path: Path) -> None:
    for name, values in (("a", [3, 1]), ("b", [2])):
        pq.write_table(pa.table({"value": values}), tmp_path / f"{name}.parquet")
    files = tuple(DataFile(path=f"{name}.parquet", rows=rows, bytes=1) for name, rows in (("a", 2), ("b", 1)))
    [made] = merge(tmp_path, Group(files), pa.schema({"value": pa.int64()}), 1 << 20)
    assert pq.ParquetFile(tmp_path / made.path).read().column(0).to_pylist() == [3, 1, 2]
