"""Maintenance of tables: merging small files, deleting unneeded ones, and file sizes."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from penstock.errors import Conflict
from penstock.lake import maintenance
from penstock.lake.maintenance import Cleaned, Group, clean, file_sizes, merge, plan_groups
from penstock.lake.manifest import Change, DataFile
from penstock.lake.table import Table
from penstock.lake.writer import by_date_and_bucket, decode_dictionaries, write_batches
from tests.lake.messages import messages

HOUR = 3600


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def write(table: Table, name: str, age_s: float = 0) -> DataFile:
    path = table.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("12345")
    then = time.time() - age_s
    os.utime(path, (then, then))
    return DataFile(path=name, rows=1, bytes=5)


def commit(table: Table, *names: str, age_s: float = 0) -> None:
    added = [write(table, name, age_s) for name in names]
    table.commit(lambda manifest: Change(added=added, schema="{}"))


def test_retired_files_stay_as_long_as_readers_may_need_them(table: Table) -> None:
    commit(table, "day=1/a.parquet", "day=1/b.parquet", age_s=9 * HOUR)
    table.commit(lambda manifest: Change(removed=["day=1/a.parquet"]))
    assert clean(table, "compact", grace_s=HOUR) == Cleaned(0, 0)
    assert (table.path / "day=1/a.parquet").exists()
    assert clean(table, "compact", grace_s=0) == Cleaned(1, 5)
    assert not (table.path / "day=1/a.parquet").exists()
    assert table.manifest().retired == {}
    assert list(table.manifest().files) == ["day=1/b.parquet"]


def test_files_that_nobody_committed_are_deleted_when_they_are_old(table: Table) -> None:
    commit(table, "live.parquet", age_s=9 * HOUR)
    write(table, "day=1/old.parquet", age_s=2 * HOUR)
    write(table, "day=1/.old.parquet.draft", age_s=2 * HOUR)
    write(table, "young.parquet")
    write(table, ".young.parquet.draft")
    assert clean(table, "expire").files == 1
    left = {path.name for path in table.path.iterdir()} - {"_manifest"}
    assert left == {"live.parquet", "young.parquet", ".young.parquet.draft", "day=1"}
    assert not (table.path / "day=1" / ".old.parquet.draft").exists()


def test_an_empty_folder_goes_with_its_last_file(table: Table) -> None:
    commit(table, "day=1/a.parquet")
    table.commit(lambda manifest: Change(removed=["day=1/a.parquet"]))
    clean(table, "expire", grace_s=0)
    assert not (table.path / "day=1").exists()


def test_files_of_others_are_left_alone(table: Table) -> None:
    commit(table, "a.parquet")
    write(table, "README.md", age_s=9 * HOUR)
    clean(table, "expire", grace_s=0)
    assert (table.path / "README.md").exists()


def test_who_commits_a_file_too_late_is_refused(table: Table) -> None:
    commit(table, "live.parquet")
    late = write(table, "late.parquet", age_s=2 * HOUR)
    clean(table, "expire")
    with pytest.raises(Conflict, match="vanished"):
        table.commit(lambda manifest: Change(added=[late]))


def test_who_commits_a_file_that_is_about_to_be_deleted_is_refused(table: Table) -> None:
    commit(table, "live.parquet")
    late = write(table, "late.parquet")
    table.commit(lambda manifest: Change(retired=["late.parquet"]))
    with pytest.raises(Conflict, match="live already, or retired"):
        table.commit(lambda manifest: Change(added=[late]))


def test_a_file_that_is_committed_just_in_time_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(table, "live.parquet")
    late = write(table, "late.parquet", age_s=2 * HOUR)
    racing = Table(table.path)
    commit_of = Table.commit

    def be_second(self: Table, change: object) -> object:
        monkeypatch.undo()
        racing.commit(lambda manifest: Change(added=[late]))
        return commit_of(self, change)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "commit", be_second)
    assert clean(table, "expire") == Cleaned(0, 0)
    assert (table.path / "late.parquet").exists()
    assert set(table.manifest().files) == {"live.parquet", "late.parquet"}
    assert table.manifest().retired == {}


def test_a_table_that_is_not_there_is_clean(table: Table) -> None:
    assert clean(table, "expire") == Cleaned(0, 0)
    assert not table.path.exists()


SCHEMA = decode_dictionaries(messages(0, 1)).schema


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
    found = [row for batch in maintenance.sort_messages(rows) for row in batch.to_pylist()]
    assert [(row["epoch"], row["offset"]) for row in found] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_what_is_too_much_to_order_at_once_becomes_several_runs(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SORT_BYTES", 1)
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
    with pytest.raises(Conflict, match="have 60 rows instead of 61"):
        merge(tmp_path, wrong, SCHEMA, 1 << 20)
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_rows_without_topics_keep_their_order(tmp_path: Path) -> None:
    for name, values in (("a", [3, 1]), ("b", [2])):
        pq.write_table(pa.table({"value": values}), tmp_path / f"{name}.parquet")
    files = tuple(DataFile(path=f"{name}.parquet", rows=rows, bytes=1) for name, rows in (("a", 2), ("b", 1)))
    [made] = merge(tmp_path, Group(files), pa.schema({"value": pa.int64()}), 1 << 20)
    assert pq.ParquetFile(tmp_path / made.path).read().column(0).to_pylist() == [3, 1, 2]


def sizes(*values: int) -> dict[str, int]:
    return file_sizes(DataFile(path=str(value), rows=1, bytes=value) for value in values)


def test_sizes_are_told_in_percentiles() -> None:
    assert sizes(*range(1, 101)) == {
        "files": 100,
        "bytes": 5050,
        "p10_bytes": 10,
        "p50_bytes": 50,
        "p90_bytes": 90,
        "max_bytes": 100,
    }


def test_one_file_is_every_percentile() -> None:
    assert sizes(7) == {
        "files": 1,
        "bytes": 7,
        "p10_bytes": 7,
        "p50_bytes": 7,
        "p90_bytes": 7,
        "max_bytes": 7,
    }


def test_no_files_have_no_sizes() -> None:
    assert sizes() == {"files": 0}
