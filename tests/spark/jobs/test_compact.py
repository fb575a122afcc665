"""Compaction: tasks one after the other in this process, and once with Spark."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Conflict
from penstock.lake import Change, InvalidLake, Table, lake_insights, lake_messages
from penstock.spark.jobs import compact as module
from penstock.spark.jobs.compact import CompactOptions, compact
from penstock.spark.jobs.run import Report, run
from penstock.spark.tables import read_table
from penstock.spark.tasks import Interrupted
from tests.lake.damaging import damage
from tests.lake.lakes import add_batch, offsets_of, rows_of
from tests.lake.messages import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_here(
    spark: object, pieces: Sequence[Any], work: Callable[[Any], Iterable[bytes]], stopping: object = None
) -> list[bytes]:
    return [value for piece in pieces for value in work(piece)]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of four batches with twenty messages each, in two buckets."""
    monkeypatch.setattr(module, "run_tasks", run_here)
    for first in range(0, 80, 20):
        add_batch(tmp_path / "lake", messages(first, 20))
    return lake_messages(tmp_path / "lake")


def run_compact(table: Table, stopping: threading.Event | None = None, **other: Any) -> Report:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    options = CompactOptions(lake=str(table.path.parent), **other)
    return run(partial(compact, options), spark, stopping=stopping)


def test_small_files_become_one_in_each_partition(table: Table) -> None:
    before = rows_of(table)
    report = run_compact(table)
    manifest = table.manifest()
    assert [file.rows for file in manifest.files.values()] == [40, 40]
    after = rows_of(table)
    assert [{name: row[name] for name in before[0]} for row in after] == before
    assert (report.facts["merged_files"], report.facts["new_files"], report.facts["rows"]) == (8, 2, 80)
    assert (report.facts["before"]["files"], report.facts["after"]["files"]) == (8, 2)
    assert report.is_clean


def test_old_files_stay_for_readers_until_the_grace_is_over(table: Table) -> None:
    before = table.manifest()
    report = run_compact(table)
    assert (report.facts["waiting_to_be_deleted"], report.facts["deleted_files"]) == (8, 0)
    assert len(rows_of(table, before.files.values())) == 80
    report = run_compact(table, grace_s=0)
    assert (report.facts["merged_files"], report.facts["deleted_files"]) == (0, 8)
    assert len(list(table.path.rglob("*.parquet"))) == 2


def test_what_comes_while_files_are_merged_stays(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(*args: Any) -> list[bytes]:
        made = run_here(*args)
        add_batch(table.path.parent, messages(80, 20))
        return made

    monkeypatch.setattr(module, "run_tasks", meanwhile)
    run_compact(table)
    assert offsets_of(table) == list(range(100))
    assert len(table.manifest().files) == 4


def test_a_group_that_somebody_else_changed_is_left_out(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = next(iter(table.manifest().files.values()))

    def meanwhile(*args: Any) -> list[bytes]:
        made = run_here(*args)
        Table(table.path).commit(lambda manifest: Change(removed=[gone.path]))
        return made

    monkeypatch.setattr(module, "run_tasks", meanwhile)
    report = run_compact(table, grace_s=0)
    assert report.facts["merged_files"] == 4
    assert len(offsets_of(table)) == 80 - gone.rows
    live = {table.absolute(file) for file in table.manifest().files.values()}
    assert set(table.path.rglob("*.parquet")) == live


def test_new_files_that_vanish_before_the_commit_change_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = table.manifest()

    def lose(*args: Any) -> list[bytes]:
        made = run_here(*args)
        for path in set(table.path.rglob("*.parquet")) - {table.absolute(each) for each in before.files}:
            path.unlink()
        return made

    monkeypatch.setattr(module, "run_tasks", lose)
    assert run_compact(table).facts["merged_files"] == 0
    assert table.manifest().files == before.files


def test_a_damaged_file_is_named_and_others_are_merged(table: Table) -> None:
    victim = next(iter(table.manifest().files.values()))
    damage(table.absolute(victim), 0, "payload")
    report = run_compact(table)
    assert not report.is_clean
    [row] = report.tables["damaged"]
    assert victim.path in str(row["problem"])
    assert report.facts["merged_files"] == 4
    assert victim.path in table.manifest().files


def test_a_compaction_that_dies_before_its_commit_changes_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = table.manifest()

    def die(*args: Any) -> None:
        raise Conflict("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "_publish", die)
        run_compact(table)
    assert Table(table.path).manifest() == before
    run_compact(table)
    assert offsets_of(table) == list(range(80))


def test_a_compaction_stops_between_rounds(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_PER_TASK_SLOT", 1)
    stopping = threading.Event()

    def stop(*args: Any) -> list[bytes]:
        stopping.set()
        return run_here(*args)

    monkeypatch.setattr(module, "run_tasks", stop)
    report = run_compact(table, stopping)
    assert (report.was_stopped, report.facts["merged_files"]) == (True, 4)
    assert offsets_of(table) == list(range(80))


def test_a_round_that_is_cut_short_is_dropped(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*args: Any) -> list[bytes]:
        raise Interrupted

    monkeypatch.setattr(module, "run_tasks", cut)
    assert run_compact(table).facts["merged_files"] == 0
    assert offsets_of(table) == list(range(80))


def test_a_lake_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidLake, match=f"^{tmp_path}: there is no lake here$"):
        CompactOptions(lake=str(tmp_path)).check()
    lake_insights(tmp_path, "hot").commit(lambda manifest: Change(by="test", schema="{}"))
    with pytest.raises(InvalidLake, match=r"insights/hto: there is no table here; there are hot$"):
        CompactOptions(lake=str(tmp_path), table="insights/hto").check()
    with pytest.raises(InvalidLake, match="outside of the lake"):
        CompactOptions(lake=str(tmp_path / "lake"), table="../other").check()
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    with pytest.raises(InvalidLake, match="OPTIMIZE"):
        CompactOptions(lake=str(tmp_path)).check()


@pytest.mark.parametrize("wrong", [{"target_bytes": 0}, {"grace_s": -1.0}], ids=str)
def test_numbers_that_make_no_sense_are_refused(table: Table, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least 1 byte|must not be negative"):
        CompactOptions(lake=str(table.path.parent), **wrong).check()


# With Spark


def test_spark_compacts_messages_and_other_tables(spark: "SparkSession", tmp_path: Path) -> None:
    from penstock.spark.tables import write_table  # noqa: PLC0415

    for first in range(0, 80, 20):
        add_batch(tmp_path, messages(first, 20))
    table = lake_messages(tmp_path)
    old = read_table(spark, table.manifest(), table, ["offset", "payload", "date", "bucket"])
    report = run(partial(compact, CompactOptions(lake=str(tmp_path))), spark)
    assert report.facts["new_files"] == 2
    new = read_table(spark, None, table, ["offset", "payload", "date", "bucket"])
    assert sorted(new.collect()) == sorted(old.collect())  # who began before reads on

    insights = lake_insights(tmp_path, "topics")
    frame = spark.createDataFrame([("a", 1, "10s"), ("b", 2, "1h")], "topic string, count long, grain string")
    for _ in range(3):
        files = write_table(frame, insights, ["grain"])
        insights.commit(lambda manifest, files=files: Change(added=files, schema=frame.schema.json()))  # type: ignore[misc]
    run(partial(compact, CompactOptions(lake=str(tmp_path), table="insights/topics", grace_s=0)), spark)
    assert len(insights.manifest().files) == 2
    rows = read_table(spark, None, insights).collect()
    assert sorted(tuple(row) for row in rows) == sorted([("a", 1, "10s"), ("b", 2, "1h")] * 3)
