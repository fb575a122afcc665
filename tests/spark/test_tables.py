"""Frames as tables, with Spark."""

import json
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.lake import Change, InvalidLake, Table, drop_files
from penstock.spark.tables import read_table, schema_of, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "topic string, count bigint, sizes array<bigint>, seen timestamp, grain string, date date"


def test_a_frame_is_a_table_once_it_is_committed(spark: "SparkSession", tmp_path: Path) -> None:
    noon = datetime(2026, 11, 16, 12)  # as Spark gives times back
    rows = [
        ("a", 1, [1, 2], noon, "10s", date(2026, 11, 16)),
        ("b/ö", 2, None, None, "1 h/x", date(2026, 11, 16)),
        (None, 3, [], noon, None, date(2026, 11, 17)),
    ]
    frame = spark.createDataFrame(rows, COLUMNS).repartition(2)
    table = Table(tmp_path / "odd [1] {a,b}*" / "table")
    files = write_table(frame, table, ["grain", "date"])
    assert not table.exists()
    assert sum(file.rows for file in files) == 3
    table.commit(lambda manifest: Change(added=files, schema=frame.schema.json(), progress={"query": 1}))
    with pytest.raises(InvalidLake, match="no table here"):
        schema_of(Table(tmp_path / "other").manifest(), Table(tmp_path / "other"))

    read = read_table(spark, None, table)
    assert read.columns == frame.columns
    by_count = sorted(read.collect(), key=lambda row: row["count"])
    assert [tuple(row) for row in by_count] == rows
    assert set(read_table(spark, table.manifest(), table, ["topic"]).collect()) == {("a",), ("b/ö",), (None,)}

    # What is written and not committed is not seen, and can be dropped.
    more = write_table(frame, table, ["grain", "date"])
    assert read_table(spark, None, table).count() == 3
    drop_files(table, more)
    assert set(table.path.rglob("*.parquet")) == {table.absolute(file) for file in files}

    # An older reader goes on with what it began with; a new one sees what is live.
    table.commit(lambda manifest: Change(removed=[file.path for file in files]))
    assert read.count() == 3
    assert read_table(spark, None, table).collect() == []

    with pytest.raises(ValueError, match="no column 'nothing'"):
        write_table(frame, table, ["nothing"])


def test_a_reader_whose_files_vanish_takes_the_newer_manifest(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.createDataFrame([(1,), (2,)], "value int").coalesce(1)
    table, other = Table(tmp_path), Table(tmp_path)
    [old] = write_table(frame, table)
    table.commit(lambda manifest: Change(added=[old], schema=frame.schema.json()))
    [new] = write_table(frame, table)
    manifest_of = Table.manifest

    def look_and_be_late(self: Table) -> object:
        monkeypatch.undo()
        seen = manifest_of(self)
        other.commit(lambda manifest: Change(added=[new], removed=[old.path]))
        table.absolute(old).unlink()
        return seen

    monkeypatch.setattr(Table, "manifest", look_and_be_late)
    assert sorted(row.value for row in read_table(spark, None, table).collect()) == [1, 2]


def test_spark_notices_a_damaged_page(spark: "SparkSession", tmp_path: Path) -> None:
    from tests.lake.damaging import damage  # noqa: PLC0415

    frame = spark.createDataFrame([(f"name {number}" * 9,) for number in range(50)], "value string").coalesce(
        1
    )
    table = Table(tmp_path)
    [file] = write_table(frame, table)
    table.commit(lambda manifest: Change(added=[file], schema=json.dumps(frame.schema.jsonValue())))
    damage(table.absolute(file), 0, "value")
    with pytest.raises(Exception, match=r"(?i)checksum|crc"):
        read_table(spark, None, table).collect()
