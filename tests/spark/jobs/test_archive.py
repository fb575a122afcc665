"""The archive with a real server; Spark only where it matters, and tasks one after the other elsewhere."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from typer.testing import CliRunner

from penstock.cli import build
from penstock.client import ConnectionLost, Gap
from penstock.common.cursor import Cursor
from penstock.errors import PenstockError
from penstock.lake import Change, InvalidLake, Manifest, Table, lake_messages, read_file
from penstock.lake.manifest import Epoch
from penstock.spark.errors import DataLoss, InvalidOption
from penstock.spark.jobs.archive import ArchiveOptions, archive, job, writers
from penstock.spark.jobs.archive.delta import DeltaWriter, with_partitions
from penstock.spark.jobs.archive.job import ArchiveStats, preflight
from penstock.spark.jobs.archive.writers import Written
from penstock.spark.jobs.run import Report, run
from penstock.spark.source.log_scan import LiveLog, Portion
from penstock.spark.source.positions import cursor_at, position_of
from penstock.spark.tables import read_table
from penstock.spark.tasks import Interrupted
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[Any], Iterable[bytes]]


class Notes:
    """Progress that is remembered."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[str] = []

    def show(self, text: str) -> None:
        self.lines.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Archiver:
    """Archives what comes into a log from now on, without Spark."""

    def __init__(self, lake: Path, server: LogServer, start: str | None = None) -> None:
        self.lake = lake
        self.server = server
        self.start = start or server.cursor
        self.table = lake_messages(lake)
        self.progress = Notes()
        self.stopping = threading.Event()
        self.flags: dict[str, str] = {}

    def run(self, **other: Any) -> Report:
        if not self.table.exists():
            other = {"start": self.start, **other}
        server = {"address": self.server.address, **self.flags}
        options = ArchiveOptions(lake=str(self.lake), server=server, **other)
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        return run(partial(archive, options), spark, self.progress, self.stopping)

    def rows(self) -> list[dict[str, Any]]:
        """What is live, by offset."""
        files = self.table.manifest().files.values()
        batches = [batch for file in files for batch in read_file(self.table.absolute(file))]
        return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["offset"])

    def log(self) -> list[dict[str, Any]]:
        """What the log has."""
        with self.server.client() as client:
            return list(client.read_log(after=self.start).table().to_pylist())


def run_here(
    spark: object, pieces: Sequence[Any], work: Work, stopping: threading.Event | None = None
) -> list[bytes]:
    """What `run_tasks` does, in this process."""
    return [value for piece in pieces for value in work(piece)]


@pytest.fixture
def archiver(log_server: LogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archiver:
    monkeypatch.setattr(writers, "run_tasks", run_here)
    return Archiver(tmp_path / "lake", log_server)


def with_gaps(monkeypatch: pytest.MonkeyPatch, *gaps: Gap) -> None:
    """Let the log miss something in everything that is planned."""
    plan = LiveLog.portion

    def portion(self: LiveLog, *args: Any) -> Portion:
        found = plan(self, *args)
        return structs.replace(found, gaps=gaps) if found.parts else found

    monkeypatch.setattr(LiveLog, "portion", portion)


def test_the_lake_has_every_row_of_the_log_once(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a", "b/c", "größe"], 300)
    report = archiver.run(buckets=3)
    assert archiver.rows() == archiver.log()
    assert report.is_clean
    assert (report.facts["batches"], report.facts["rows"], report.facts["lag_rows"]) == (1, 300, 0)
    assert report.facts["written"]["files"] == len(archiver.table.manifest().files)
    assert report.facts["cursor"] == archiver.table.manifest().cursor == archiver.server.cursor


def test_the_next_archive_adds_what_is_new(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a"], 10)
    archiver.run()
    before = set(archiver.table.manifest().files)
    archiver.server.publish_numbers(["b"], 5)
    assert archiver.run().facts["rows"] == 5
    assert archiver.rows() == archiver.log()
    assert before < set(archiver.table.manifest().files)
    assert archiver.run().facts["batches"] == 0


def test_batches_are_as_large_as_they_may_be(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a", "b"], 100)
    report = archiver.run(batch_rows=30)
    assert report.facts["batches"] == archiver.table.manifest().batch >= 4
    assert archiver.rows() == archiver.log()


def test_an_empty_log_makes_an_empty_lake_with_columns(archiver: Archiver) -> None:
    report = archiver.run()
    assert (report.facts["rows"], report.facts["lake_files"]) == (0, {"files": 0})
    assert "logged_at" in str(archiver.table.manifest().schema)


def test_only_the_topics_of_the_filters_are_archived(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["wanted/a", "other", "wanted/b"], 30)
    archiver.run(filters=("wanted/#",))
    assert {row["topic"] for row in archiver.rows()} == {"wanted/a", "wanted/b"}
    archiver.server.publish_numbers(["other"], 5)
    assert archiver.run().facts["rows"] == 0  # the lake knows its filters
    assert archiver.table.manifest().cursor == archiver.server.cursor


def test_a_new_lake_begins_where_it_is_told_to(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a"], 10)
    cursor = archiver.server.cursor
    archiver.server.publish_numbers(["a"], 3)
    archiver.run(start=cursor)
    assert len(archiver.rows()) == 3
    assert archiver.table.manifest().start == cursor
    archiver.run(start="earliest")
    assert len(archiver.rows()) == 3
    assert "--from is ignored: this lake exists" in archiver.progress.notes[0]


@pytest.mark.parametrize(
    "other", [{"filters": ("b/#",)}, {"filters": ("a/#", "b/#")}, {"buckets": 4}], ids=str
)
def test_a_lake_keeps_its_settings(archiver: Archiver, other: dict[str, Any]) -> None:
    archiver.run(filters=("a/#",), buckets=2)
    with pytest.raises(InvalidLake, match=r"this lake has a/#; archive .*b/# into another|has 2 buckets"):
        archiver.run(**other)
    archiver.run(filters=("a/#",), buckets=2)


def test_the_log_of_another_server_is_refused(lake_server: LogServer, archiver: Archiver) -> None:
    archiver.run()
    other = Archiver(archiver.lake, lake_server)
    with pytest.raises(InvalidLake, match="archive it into another lake"):
        other.run()


def test_the_log_keeps_what_is_not_archived(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a"], 10)
    published = archiver.server.cursor
    archiver.run(batch_rows=4)
    with archiver.server.client() as client:
        holds = {hold.name: hold for hold in client.holds()}
    held = holds[f"lake-{archiver.table.manifest().id}"].cursor
    ends = [Cursor.decode(text).positions[0].offset for text in (published, held, archiver.server.cursor)]
    assert ends == sorted(ends)  # statistics may be published meanwhile


def test_a_hold_is_left_out_if_nobody_wants_it(archiver: Archiver) -> None:
    archiver.run(hold=False)
    with archiver.server.client() as client:
        assert f"lake-{archiver.table.manifest().id}" not in {hold.name for hold in client.holds()}


def test_a_batch_that_dies_while_it_is_written_is_written_again(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a", "b"], 50)

    def die(*args: Any) -> list[bytes]:
        run_here(*args)
        raise RuntimeError("killed")

    monkeypatch.setattr(writers, "run_tasks", die)
    with pytest.raises(RuntimeError, match="killed"):
        archiver.run()
    assert archiver.rows() == []
    monkeypatch.setattr(writers, "run_tasks", run_here)
    archiver.run()
    assert archiver.rows() == archiver.log()


def test_a_batch_that_dies_before_its_commit_is_not_there(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.run()
    archiver.server.publish_numbers(["a"], 20)

    def die(*args: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "_publish", die)
        with pytest.raises(OSError, match="no space"):
            archiver.run()
    assert archiver.rows() == []
    archiver.run()
    assert archiver.rows() == archiver.log()


def test_of_two_archives_one_is_faster_and_rows_are_there_once(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a", "b"], 50)
    faster = Archiver(archiver.lake, archiver.server)

    def be_slow(*args: Any) -> list[bytes]:
        monkeypatch.setattr(writers, "run_tasks", run_here)
        made = run_here(*args)
        faster.run()
        return made

    monkeypatch.setattr(writers, "run_tasks", be_slow)
    report = archiver.run()
    assert (report.facts["rows"], report.facts["lake_rows"]) == (0, 50)
    assert "another archive committed this batch first" in archiver.progress.notes[0]
    assert archiver.rows() == archiver.log()
    there = {path.name for path in archiver.table.path.rglob("*.parquet")}
    assert there == {Path(path).name for path in archiver.table.manifest().files}


def test_files_that_were_taken_for_left_over_are_written_again(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)

    def lose(*args: Any) -> list[bytes]:
        monkeypatch.setattr(writers, "run_tasks", run_here)
        made = run_here(*args)
        for path in archiver.table.path.rglob("*.parquet"):
            path.unlink()
        return made

    monkeypatch.setattr(writers, "run_tasks", lose)
    archiver.run()
    assert "archived again" in archiver.progress.notes[0]
    assert archiver.rows() == archiver.log()


def test_rows_that_left_the_log_are_a_loud_failure(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)
    with_gaps(monkeypatch, Gap(1, 800, "retention"))
    with pytest.raises(DataLoss, match=r"offsets 1 to 800 are no longer in the log \(retention\)"):
        archiver.run()
    assert archiver.rows() == []


def test_rows_that_a_task_does_not_find_are_a_failure_too(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)

    def lossy(part: Any, connection: Any, filters: Any, columns: Any, losses: Any) -> Iterator[Any]:
        losses.declare([Gap(3, 4, "damaged")], part.after, part.until)
        return iter(())

    monkeypatch.setattr(writers, "read_log_part", lossy)
    with pytest.raises(DataLoss, match=r"offsets 3 to 4 .*\(damaged\)"):
        archiver.run()
    archiver.run(keep_going=True)
    assert archiver.table.manifest().gaps == (Gap(3, 4, "damaged"),)


def test_who_keeps_going_finds_what_is_missing_in_the_lake(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)
    with_gaps(monkeypatch, Gap(1, 800, "retention"))
    report = archiver.run(keep_going=True)
    assert report.facts["missing_rows"] == 800
    assert report.tables["missing"] == [{"first": 1, "last": 800, "reason": "retention"}]
    assert archiver.table.manifest().gaps == (Gap(1, 800, "retention"),)
    declared = [path for path in (archiver.lake / "missing").iterdir() if "retention" in path.name]
    assert len(declared) == 1
    assert archiver.rows() == archiver.log()


def test_rows_that_only_the_lake_still_has_are_no_loss(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)
    with_gaps(monkeypatch, Gap(15, 20, "lost-uncommitted"))
    archiver.run()
    assert archiver.progress.notes == ["the log lost offsets 15 to 20, which the lake has"]
    assert archiver.table.manifest().gaps == ()


def test_what_was_never_stored_is_declared_and_stops_nobody(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)
    with_gaps(monkeypatch, Gap(7, 9, "never-stored"))
    archiver.run()
    assert archiver.table.manifest().gaps == (Gap(7, 9, "never-stored"),)
    assert archiver.progress.notes == ["the log never stored offsets 7 to 9; this is recorded"]
    assert len(list((archiver.lake / "missing").glob("*never-stored*"))) == 1
    assert archiver.rows() == archiver.log()


def test_only_what_is_committed_is_declared_missing(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)
    with_gaps(monkeypatch, Gap(1, 8, "retention"))
    with monkeypatch.context() as patched:
        patched.setattr(job._Archive, "_commit", lambda *_: archiver.stopping.set())
        archiver.run(keep_going=True)
    assert list((archiver.lake / "missing").glob("*retention*")) == []


def test_what_nobody_lived_to_declare_is_declared_by_the_next_archive(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 20)
    with monkeypatch.context() as patched:
        with_gaps(patched, Gap(1, 8, "retention"))
        archiver.run(keep_going=True)
    (declared,) = (archiver.lake / "missing").glob("*retention*")
    declared.unlink()
    archiver.run()
    assert declared.exists()


def test_a_lake_knows_where_epochs_begin_and_what_it_kept_of_lost_ones(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a"], 20)
    archiver.run()
    manifest = archiver.table.manifest()
    rows = archiver.rows()
    assert manifest.epochs == {rows[0]["epoch"]: Epoch(first=rows[0]["offset"])}
    assert manifest.cursor is not None
    place = position_of(manifest.cursor)
    cut = Portion(after=cursor_at(place, place.offset - 5), until=manifest.cursor, rows=0, bytes=0)
    assert job._new_epochs(manifest, cut, Written(rows=0)) == {
        place.epoch + 1: Epoch(first=place.offset - 4, kept=place.offset)
    }
    whole = structs.replace(cut, after=manifest.cursor)
    assert job._new_epochs(manifest, whole, Written(rows=0, epochs=manifest.epochs)) == {}


def test_an_archive_stops_between_batches(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a"], 100)
    shown = archiver.progress.show

    def stop(text: str) -> None:
        shown(text)
        archiver.stopping.set()

    archiver.progress.show = stop  # type: ignore[method-assign]
    report = archiver.run(batch_rows=10)
    assert report.was_stopped
    assert report.facts["batches"] == 1
    assert report.facts["lag_rows"] > 0
    archiver.stopping.clear()
    archiver.progress.show = shown  # type: ignore[method-assign]
    archiver.run()
    assert archiver.rows() == archiver.log()


def test_a_batch_that_is_cut_short_is_dropped(archiver: Archiver, monkeypatch: pytest.MonkeyPatch) -> None:
    archiver.server.publish_numbers(["a"], 10)

    def interrupt(*args: Any) -> list[bytes]:
        archiver.stopping.set()
        raise Interrupted

    monkeypatch.setattr(writers, "run_tasks", interrupt)
    report = archiver.run()
    assert (report.was_stopped, report.facts["batches"]) == (True, 0)
    assert archiver.rows() == []


def test_an_archive_that_follows_takes_what_comes(archiver: Archiver) -> None:
    archiver.server.publish_numbers(["a"], 10)
    sent = threading.Event()
    shown = archiver.progress.show

    def react(text: str) -> None:
        shown(text)
        if archiver.table.manifest().rows == 10 and not sent.is_set():
            sent.set()
            archiver.server.publish_numbers(["b"], 5)
        if archiver.table.manifest().rows == 15:
            archiver.stopping.set()

    archiver.progress.show = react  # type: ignore[method-assign]
    report = archiver.run(follow=True, interval_s=0.1)
    assert report.facts["rows"] == 15
    assert archiver.rows() == archiver.log()


def test_an_archive_ends_where_the_log_ended_when_it_began(
    archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver.server.publish_numbers(["a"], 10)

    def meanwhile(*args: Any) -> list[bytes]:
        archiver.server.publish_numbers(["late"], 5)
        return run_here(*args)

    monkeypatch.setattr(writers, "run_tasks", meanwhile)
    report = archiver.run(batch_rows=4)
    assert {row["topic"] for row in archiver.rows()} == {"a"}
    assert (report.facts["rows"], report.facts["lag_rows"]) == (10, report.facts["batches"] * 5)


def test_a_server_that_comes_back_is_waited_for(archiver: Archiver, monkeypatch: pytest.MonkeyPatch) -> None:
    archiver.server.publish_numbers(["a"], 10)
    monkeypatch.setattr(job, "UNAVAILABLE_PAUSE_S", 0.01)
    plan, failures = LiveLog.portion, iter(range(3))

    def portion(self: LiveLog, *args: Any) -> Portion:
        if next(failures, None) is not None:
            raise ConnectionLost("gone for a moment")
        return plan(self, *args)

    monkeypatch.setattr(LiveLog, "portion", portion)
    archiver.run()
    assert archiver.rows() == archiver.log()
    assert f"waiting for {archiver.server.address}: gone for a moment" in archiver.progress.lines


def test_an_archive_can_be_stopped_while_the_server_is_away(archiver: Archiver) -> None:
    archiver.run()
    archiver.server = SimpleNamespace(address="http://127.0.0.1:9")  # type: ignore[assignment]
    shown = archiver.progress.show

    def stop(text: str) -> None:
        shown(text)
        archiver.stopping.set()

    archiver.progress.show = stop  # type: ignore[method-assign]
    assert archiver.run(follow=True).facts["lag_rows"] is None
    assert archiver.progress.lines[-1] == "waiting for http://127.0.0.1:9: Connection refused"


def test_a_server_that_is_away_ends_an_archive_that_does_not_follow(archiver: Archiver) -> None:
    archiver.run()
    archiver.server = SimpleNamespace(address="http://127.0.0.1:9")  # type: ignore[assignment]
    archiver.flags["retryFor"] = "0"
    with pytest.raises(PenstockError, match=r"127\.0\.0\.1"):
        archiver.run()


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"format": "csv"}, ValueError, "use parquet or delta"),
        ({"buckets": 0}, ValueError, "1 to 256 buckets"),
        ({"batch_rows": 0}, ValueError, "at least 1 row"),
        ({"start": "yesterday"}, InvalidOption, "--from: "),
        ({"start": "2026-01-31T12:00:00"}, InvalidOption, "time zone"),
        ({"filters": ("a/#/b",)}, InvalidOption, "last level"),
        ({"server": {"address": "ftp://x"}}, InvalidOption, "not a valid address"),
        ({"server": {"address": ""}}, PenstockError, "address"),
        ({"lake": "s3://bucket/lake"}, InvalidLake, "mount it"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    wrong: dict[str, Any], error: type[Exception], words: str
) -> None:
    options = {"lake": "/nowhere", "server": {"address": "http://127.0.0.1:9"}, **wrong}
    with pytest.raises(error, match=words):
        ArchiveOptions(**options).check()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--lake", "s3://bucket/lake"], "error: s3://bucket/lake: a lake is a directory"),
        (["--lake", "/nowhere", "--from", "soon"], "error: --from: "),
        (["--lake", "/nowhere", "--address", "http://127.0.0.1:9"], "error: no connection to"),
    ],
)
def test_the_command_says_what_is_wrong_before_spark_starts(flags: list[str], words: str) -> None:
    result = CliRunner().invoke(build(["pipeline"]), ["pipeline", "archive", *flags])
    assert result.exit_code == 1
    assert result.output.startswith(words)


def test_a_lake_that_will_not_do_is_told_before_spark_starts(archiver: Archiver, tmp_path: Path) -> None:
    def told(lake: Path, *flags: str, address: str = archiver.server.address) -> str:
        words = ["pipeline", "archive", "--lake", str(lake), "--address", address, *flags]
        result = CliRunner().invoke(build(["pipeline", "health"]), words)
        assert result.exit_code == 1
        return result.output

    archiver.run()
    assert told(archiver.lake, "--filter", "garden/#") == (
        "error: this lake has all topics; archive garden/# into another lake\n"
    )
    (tmp_path / "file").touch()
    lake = tmp_path / "file" / "lake"
    assert told(lake, "--follow") == f"error: the lake {lake} cannot be created: Not a directory\n"


def test_who_follows_waits_for_a_server_and_others_hear_at_once(tmp_path: Path) -> None:
    server = {"address": "http://127.0.0.1:9"}
    with pytest.raises(PenstockError, match="no connection"):
        preflight(ArchiveOptions(lake=str(tmp_path / "lake"), server=server))
    assert not (tmp_path / "lake").exists()
    preflight(ArchiveOptions(lake=str(tmp_path / "lake"), server=server, follow=True))
    assert (tmp_path / "lake").is_dir()


def test_another_log_is_refused_before_spark_starts(lake_server: LogServer, archiver: Archiver) -> None:
    archiver.run()
    options = ArchiveOptions(lake=str(archiver.lake), server={"address": lake_server.address})
    with pytest.raises(InvalidLake, match="archive it into another lake"):
        preflight(options)


@pytest.mark.parametrize(
    ("rows", "line"),
    [(0, "1 batch, 0 rows; 1 row behind"), (1, "1 batch, 1 row; 1 row behind")],
)
def test_what_is_one_is_told_as_one(rows: int, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = ArchiveStats()
    tally.count(Written(rows=rows), [])
    monkeypatch.setattr(ArchiveStats, "_rate", lambda self: 0.2)
    assert tally.line(1) == line


def test_a_table_of_delta_is_left_alone(archiver: Archiver) -> None:
    (archiver.table.path / "_delta_log").mkdir(parents=True)
    with pytest.raises(InvalidLake, match="--format delta"):
        archiver.run()


# With Spark


def test_spark_archives_and_reads_the_lake(
    spark: "SparkSession", lake_server: LogServer, tmp_path: Path
) -> None:
    topics = [f"site/{number}" for number in range(20)]
    lake_server.publish_numbers(topics, 2_000)
    options = ArchiveOptions(
        lake=f"file://{tmp_path}/lake%20[1]", server={"address": lake_server.address}, batch_rows=700
    )
    report = run(partial(archive, options), spark)
    assert report.facts["rows"] == 2_000
    table = lake_messages(options.lake)
    frame = read_table(spark, None, table)
    assert frame.columns[-3:] == ["logged_at", "date", "bucket"]
    rows = frame.orderBy("offset").collect()
    with lake_server.client() as client:
        logged = client.read_log().table().to_pylist()
    assert [row.offset for row in rows] == [row["offset"] for row in logged]
    assert [bytes(row.payload) for row in rows] == [row["payload"] for row in logged]
    assert {row.date for row in rows} == {row["published_at"].date() for row in logged}
    same = with_partitions(frame.drop("date", "bucket"), 8).select("offset", "date", "bucket")
    assert sorted(same.collect()) == [(row.offset, row.date, row.bucket) for row in rows]


def test_delta_is_refused_where_spark_has_no_jars(spark: "SparkSession", tmp_path: Path) -> None:
    options = ArchiveOptions(lake=str(tmp_path), server={"address": "http://127.0.0.1:9"}, format="delta")
    with pytest.raises(InvalidLake, match="Delta's jars"):
        DeltaWriter(options, spark, threading.Event()).prepare()


def test_a_batch_for_a_table_with_commits_of_its_own_is_announced_first(
    spark: "SparkSession", lake_server: LogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.jobs.archive import delta  # noqa: PLC0415

    monkeypatch.setattr(delta, "FORMAT", "parquet")  # which takes the same options and ignores two of them
    lake_server.publish_numbers(["a", "b"], 20)
    options = ArchiveOptions(
        lake=str(tmp_path / "lake"), server={"address": lake_server.address}, format="delta"
    )
    commit = Table.commit

    def die(self: Table, change: Callable[[Manifest], Change | None]) -> Manifest:
        wanted = change(self.manifest())
        if wanted is not None and wanted.batch:
            raise RuntimeError("killed")
        return commit(self, change)

    with monkeypatch.context() as patched:
        patched.setattr(Table, "commit", die)
        with pytest.raises(RuntimeError, match="killed"):
            run(partial(archive, options), spark)
    state = Table(tmp_path / "lake" / "_archive")
    intent = state.manifest().intent
    assert intent is not None
    assert intent.batch == 1
    lake_server.publish_numbers(["c"], 5)
    run(partial(archive, options), spark)
    assert (state.manifest().batch, state.manifest().intent) == (2, None)
    rows = spark.read.parquet(str(tmp_path / "lake" / "messages")).collect()
    # Parquet cannot skip what it has: the first batch is there twice, with the very same rows.
    counts = Counter(row.offset for row in rows if row.topic != "c")
    assert sorted(counts.values()) == [2] * 20
    assert sum(row.topic == "c" for row in rows) == 5
