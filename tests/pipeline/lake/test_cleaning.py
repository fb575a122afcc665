import os
import time
from pathlib import Path

import pytest

from penstock.errors import Conflict
from penstock.pipeline.lake.cleaning import Cleaned, clean
from penstock.pipeline.lake.manifest import Change, DataFile
from penstock.pipeline.lake.table import Table

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
    with pytest.raises(Conflict, match="taken out"):
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
