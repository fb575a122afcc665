"""The audit as a job: whole lakes, with everything that can be wrong with them."""

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client.messages import Gap
from penstock.errors import Conflict, InvalidRequest
from penstock.lake import Change, DataFile, InvalidLake, Manifest, lake_messages
from penstock.spark.jobs.audit import AuditOptions, Stopped, audit, audit_options
from penstock.spark.jobs.audit.job import check_all_seen, check_all_walked
from penstock.spark.jobs.audit.report import AuditResult
from penstock.spark.jobs.audit.runs import READ, Evidence, OffsetRange
from penstock.spark.jobs.audit.scan import LogSlice
from penstock.spark.jobs.audit.walk import WalkTotals
from penstock.spark.jobs.run import NoProgress, Report, run
from tests.spark.jobs.audit.lakes import RangeEnd, cursor, damage, lake_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(topic: str, first: int, last: int, offset: int, epoch: int = 1) -> list[RangeEnd]:
    return [(topic, epoch, first + n, offset + n) for n in range(last - first + 1)]


def report_of(spark: "SparkSession", lake: Path, **options: Any) -> Report:
    return run(partial(audit, AuditOptions(lake=str(lake), **options)), spark)


def ranges(report: Report, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("topic", "epoch", "first", "last")) for row in report.tables[table]]


def test_a_lake_that_has_everything_once_is_clean(spark: "SparkSession", tmp_path: Path) -> None:
    files = [
        rows("a", 1, 500, 1),
        rows("b", 1, 20, 501),
        rows("a", 501, 600, 521),
        rows("a", 601, 602, 630, 2),
    ]
    lake_with(tmp_path, files, cursor_offset=700)
    report = report_of(spark, tmp_path)
    assert report.is_clean
    assert not any(report.tables.values())
    assert (
        report.facts.items()
        >= {"rows": 622, "files": 4, "topics": 2, "epochs": 2, "last_offset": 700}.items()
    )


def test_everything_that_is_wrong_is_told_with_its_place_and_reason(
    spark: "SparkSession", tmp_path: Path
) -> None:
    behind = rows("mixed", 1, 3, 601)
    files = [
        rows("start", 4, 9, 11),
        rows("middle", 1, 2, 21) + rows("middle", 5, 6, 25),
        rows("twice", 1, 9, 31),
        rows("twice", 8, 12, 38),
        rows("same", 1, 3, 51) + rows("same", 2, 2, 52) + rows("same", 4, 5, 54),
        [behind[0], behind[2], behind[1]],
        rows("declared", 1, 2, 701) + rows("declared", 8, 9, 708),
        rows("lost", 1, 5, 801),
        rows("lost", 6, 10, 806),
        rows("lost", 11, 15, 811),
        rows("epochs", 1, 4, 901) + rows("epochs", 3, 6, 951, 2) + rows("epochs", 8, 8, 981, 3),
    ]
    manifest = lake_with(
        tmp_path, files, cursor_offset=1000, change=Change(gaps=[Gap(703, 707, "retention")])
    )
    damaged = next(path for path, file in manifest.files.items() if file.first_offset == 806)
    damage(lake_messages(tmp_path).path / damaged)
    report = report_of(spark, tmp_path)
    assert not report.is_clean
    assert [
        (*position, row["reason"])
        for position, row in zip(ranges(report, "missing"), report.tables["missing"], strict=True)
    ] == [
        ("epochs", 3, 7, 7, "unexplained"),
        ("lost", 1, 6, 10, "damaged-file"),
        ("middle", 1, 3, 4, "unexplained"),
        ("start", 1, 1, 3, "unexplained"),
    ]
    assert ranges(report, "double") == [("same", 1, 2, 2), ("twice", 1, 8, 9)]
    assert ranges(report, "out_of_order") == [("mixed", 1, 2, 2)]
    assert [row["file"] for row in report.tables["damaged"]] == [damaged]
    assert [(row["topic"], row["messages"], row["reason"]) for row in report.tables["known"]] == [
        ("declared", 5, "retention")
    ]
    counts = {"missing": 11, "double": 3, "out_of_order": 1, "damaged_files": 1, "only_in_log": 0}
    assert report.facts.items() >= counts.items()

    part = report_of(spark, tmp_path, start=cursor(600), end=cursor(800))
    assert ranges(part, "missing") == ranges(part, "double") == []
    assert ranges(part, "out_of_order") == [("mixed", 1, 2, 2)]


def test_declared_losses_count_only_when_that_is_asked_for(spark: "SparkSession", tmp_path: Path) -> None:
    files = [rows("a", 1, 2, 1) + rows("a", 8, 9, 8)]
    lake_with(tmp_path, files, cursor_offset=20, change=Change(gaps=[Gap(3, 7, "retention")]))
    assert report_of(spark, tmp_path).is_clean
    assert not report_of(spark, tmp_path, is_strict=True).is_clean


def test_a_reason_that_is_used_up_explains_nothing_more(spark: "SparkSession", tmp_path: Path) -> None:
    files = [rows(topic, 1, 1, at) + rows(topic, 3, 3, at + 10) for at, topic in enumerate("abc", 1)]
    lake_with(tmp_path, files, cursor_offset=20, change=Change(gaps=[Gap(5, 6, "retention")]))
    report = report_of(spark, tmp_path)
    assert not report.is_clean
    assert report.tables["unaccounted"] == [
        {"first_offset": 5, "last_offset": 6, "messages": 1, "reason": "retention"}
    ]
    assert report.facts.items() >= {"missing": 0, "unaccounted": 1, "known": {"retention": 3}}.items()


def test_an_audit_that_did_not_see_or_compare_everything_gives_no_answer() -> None:
    manifest = Manifest(files={"x": DataFile(path="x", rows=3, bytes=1)})
    part = LogSlice(cursor(1), cursor(2))
    read, of_log = Evidence(READ, "x", first=3), Evidence(READ, "", first=2)
    check_all_seen(manifest, [part], [read, of_log])
    for seen in ([read], [of_log]):
        with pytest.raises(Conflict, match="some files or parts of the log were not scanned"):
            check_all_seen(manifest, [part], seen)
    check_all_walked([read, of_log], WalkTotals(1, 1, 5, is_all=True))
    with pytest.raises(Conflict, match="audit it again"):
        check_all_walked([read, of_log], WalkTotals(1, 1, 2, is_all=True))


def test_findings_that_were_not_all_brought_home_are_not_clean() -> None:
    told = AuditResult(
        manifest=Manifest(),
        audited=OffsetRange(0, 9),
        seen=[],
        findings=[],
        totals=WalkTotals(1, 1, 1, is_all=False),
    )
    assert not told.report(is_strict=False).is_clean


def test_a_lake_without_messages_is_clean(spark: "SparkSession", tmp_path: Path) -> None:
    lake_with(tmp_path, [], cursor_offset=20)
    report = report_of(spark, tmp_path)
    assert report.is_clean
    assert (report.facts["rows"], report.facts["topics"]) == (0, 0)


def test_files_that_vanished_because_others_replaced_them_are_no_damage(
    spark: "SparkSession", tmp_path: Path
) -> None:
    manifest = lake_with(tmp_path, [rows("a", 1, 9, 1)], cursor_offset=20)
    (path,) = manifest.files
    table = lake_messages(tmp_path)

    class Compacting(NoProgress):
        def show(self, text: str) -> None:
            if path in table.manifest().files:
                table.commit(lambda _: Change(removed=[path]))
                table.absolute(path).unlink()

    with pytest.raises(Conflict, match="audit it again"):
        run(partial(audit, AuditOptions(lake=str(tmp_path))), spark, Compacting())


def test_half_an_audit_gives_no_answer(spark: "SparkSession", tmp_path: Path) -> None:
    lake_with(tmp_path, [rows("a", 1, 9, 1)], cursor_offset=20)
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Stopped):
        run(partial(audit, AuditOptions(lake=str(tmp_path))), spark, stopping=stopping)


def test_where_there_is_no_lake_there_is_no_answer(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(InvalidLake, match="there is no lake here"):
        report_of(spark, tmp_path)


@pytest.mark.parametrize("wrong", [{"start": "noon"}, {"end": "2026-99-01"}, {"captured": ["a/#/b"]}])
def test_what_makes_no_sense_is_refused_before_anything_starts(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        audit_options("somewhere", **wrong)
