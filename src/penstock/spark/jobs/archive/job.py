"""Archive job: plans the next batch, writes and commits it, and reports."""

import threading
import time
from collections.abc import Sequence
from typing import Any

from msgspec import structs
from pyspark.sql import SparkSession

from penstock.client import Gap
from penstock.errors import Conflict, PenstockError
from penstock.lake import Change, DataFile, InvalidLake, Manifest, lake_messages, missing_folder
from penstock.lake.layout import DEFAULT_BUCKETS
from penstock.lake.maintenance import file_sizes
from penstock.lake.manifest import Epoch, join_epochs, join_gaps
from penstock.lake.table import make_lake
from penstock.model import Reason
from penstock.spark.connection import StreamHold, is_transient
from penstock.spark.errors import DataLoss
from penstock.spark.jobs.archive.delta import FORMAT, DeltaWriter, state_table
from penstock.spark.jobs.archive.options import ArchiveOptions
from penstock.spark.jobs.archive.writers import SCHEMA, BatchWriter, ParquetWriter, Written, refuse_delta
from penstock.spark.jobs.run import Progress, Report, check_server, count_text, waiting_text
from penstock.spark.options import LATEST
from penstock.spark.source.data_loss import LossPolicy
from penstock.spark.source.log_scan import LiveLog, Portion
from penstock.spark.source.positions import position_of
from penstock.spark.tasks import Interrupted

_NOT_LOST = (Reason.LOST_UNCOMMITTED, Reason.NEVER_STORED)
"""Reasons that do not stop an archive: the lake has these rows, or they never existed in the log."""
BY = "archive"
UNAVAILABLE_PAUSE_S = 1.0
"""Interval between requests to an unavailable server."""


def archive(
    options: ArchiveOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Copy the log into the lake; with `follow` also new messages, until stopped.

    Raises:
        DataLoss: the next rows are no longer in the log.
        InvalidLake: the lake belongs to another log, or has other settings.
    """
    options.check()
    running = _Archive(options, spark, progress, stopping)
    pause_s: float | None = 0.0
    while pause_s is not None and not stopping.wait(pause_s):
        pause_s = running.step()
    return running.report()


def preflight(options: ArchiveOptions) -> None:
    """Preflight check without Spark: validates options, lake and server, and creates the folder of the lake.

    Raises:
        ValueError: a number is out of range, or the format is unknown.
        PenstockError: the lake does not fit or is not writable, or the server is unavailable.
    """
    options.check()
    table = state_table(options.lake) if options.format == FORMAT else lake_messages(options.lake)
    if options.format != FORMAT:
        refuse_delta(table)
    manifest = table.manifest()
    is_new = not manifest.version
    if not is_new:
        options.check_fit(manifest)
    filters = options.filters if is_new else manifest.filters
    found = check_server(options.connection(), filters, is_patient=options.follow)
    if found is not None and not is_new:
        options.check_log(manifest, found.log_id)
    make_lake(options.lake)


class _Archive:
    """One run of the job."""

    def __init__(
        self, options: ArchiveOptions, spark: SparkSession, progress: Progress, stopping: threading.Event
    ) -> None:
        self._options = options
        self._progress = progress
        connection = options.connection()
        self._retry_for_s = float("inf") if options.follow else connection.retry_for_s
        # The job itself waits for the server, as it can be stopped meanwhile; its tasks cannot.
        self._connection = structs.replace(connection, retry_for_s=0.0)
        self._parallelism = spark.sparkContext.defaultParallelism
        self._writer: BatchWriter = (
            ParquetWriter(options.lake, spark, connection, stopping)
            if options.format == "parquet"
            else DeltaWriter(options, spark, stopping)
        )
        self._log = LiveLog(self._connection, options.filters, self._parallelism)
        self._has_begun = False
        self._goal: str | None = None
        """Cursor to stop at; None for never."""
        self._hold: StreamHold | None = None
        self._unavailable_since: float | None = None
        self._gaps = ArchiveGaps(options.lake, options.keep_going, progress)
        self._stats = ArchiveStats()

    def step(self) -> float | None:
        """Archive one batch; returns the pause before the next one, or None at the end."""
        try:
            if not self._has_begun:
                self._begin()
            did_something = self._batch()
        except Interrupted:
            self._progress.note("stopped: the current batch is dropped; the next archive begins with it")
            return None
        except PenstockError as error:
            return self._pause_after(error)
        self._unavailable_since = None
        if did_something:
            return 0.0
        return self._options.interval_s if self._options.follow else None

    def _pause_after(self, error: PenstockError) -> float:
        """The pause before the next request to an unavailable server.

        Raises:
            PenstockError: the same error, if it is permanent or the retry time has passed.
        """
        now = time.monotonic()
        self._unavailable_since = now if self._unavailable_since is None else self._unavailable_since
        if not is_transient(error) or now - self._unavailable_since >= self._retry_for_s:
            raise error
        self._progress.show(waiting_text(self._connection, error))
        return UNAVAILABLE_PAUSE_S

    def _begin(self) -> None:
        """Create the lake if it is new, check that it fits, and place the retention hold."""
        options, table = self._options, self._writer.table
        self._writer.prepare()
        is_new = not table.exists()
        if is_new:
            start = self._log.portion(options.start_position(), None, 1).after
            table.commit(lambda manifest: self._first(manifest, start))
        manifest = table.manifest()
        options.check_fit(manifest)
        self._log = LiveLog(self._connection, manifest.filters, self._parallelism)
        options.check_log(manifest, self._log.position(LATEST).log_id)
        self._gaps.declare(manifest)  # the committer may have crashed before
        if options.hold:
            self._hold = StreamHold(
                manifest.hold_name, options.hold_lapse_s, self._connection, manifest.filters
            )
            self._hold.keep(_cursor_of(manifest))
        if not options.follow:
            self._goal = self._log.position(LATEST).cursor
        if options.start is not None and not is_new:
            self._progress.note("--from is ignored: this lake exists, and continues at its own position")
        self._has_begun = True

    def _batch(self) -> bool:
        """Archive one batch; False if there was nothing to do."""
        manifest = self._writer.table.manifest()
        portion = None if self._is_caught_up(manifest) else self._next(manifest)
        if portion is None or (_is_empty(portion) and not portion.gaps):
            if self._hold is not None:
                self._hold.keep(_cursor_of(manifest))
            self._progress.show(self._stats.line(0))
            return False
        self._gaps.check(portion.gaps)
        announced = self._writer.announce(manifest, portion)
        if announced is not None:
            self._writer.table.commit(lambda now: announced if now.version == manifest.version else None)
            return True  # the next step writes it
        written = self._writer.write(manifest, portion)
        try:
            self._gaps.check(written.gaps)
        except DataLoss:
            self._writer.drop(written)
            raise
        found = [*portion.gaps, *written.gaps]
        gaps = missing_of(found)
        if self._commit(manifest, portion, written, gaps):
            self._gaps.report(found)
            if gaps:
                self._gaps.declare(self._writer.table.manifest())
            self._stats.count(written, gaps)
            if self._hold is not None:
                self._hold.move(portion.until)
            self._progress.show(self._stats.line(self._log.lag(portion.until)[1]))
        else:
            self._writer.drop(written)
        return True

    def report(self) -> Report:
        """Report of this run."""
        manifest = self._writer.table.manifest()
        facts = {
            "lake": self._options.lake,
            **self._stats.facts(),
            "cursor": manifest.cursor,
            "lag_rows": self._lag(manifest.cursor),
            "lake_batches": manifest.batch,
            "lake_rows": manifest.rows,
            "lake_files": file_sizes(manifest.files.values()),
        }
        missing = self._stats.missing()
        return Report(job=BY, facts=facts, tables={"missing": missing} if missing else {})

    def _first(self, manifest: Manifest, cursor: str) -> Change | None:
        if manifest.version:
            return None
        return Change(
            by=BY,
            filters=self._options.filters,
            buckets=self._options.buckets or DEFAULT_BUCKETS,
            schema=SCHEMA,
            start=cursor,
            cursor=cursor,
            log_id=position_of(cursor).log_id,
        )

    def _next(self, manifest: Manifest) -> Portion:
        """The next batch: an announced one, or the next rows of the log."""
        intent = manifest.intent
        if intent is not None:
            return self._log.portion(intent.after or _cursor_of(manifest), intent.until)
        limits = self._options.batch_rows, self._options.batch_bytes
        return self._log.portion(_cursor_of(manifest), self._goal, *limits)

    def _is_caught_up(self, manifest: Manifest) -> bool:
        """The lake has everything that was in the log when the job began."""
        if self._goal is None or manifest.intent is not None:
            return False
        place, goal = position_of(_cursor_of(manifest)), position_of(self._goal)
        return (place.epoch, place.offset) >= (goal.epoch, goal.offset)

    def _commit(self, manifest: Manifest, portion: Portion, written: Written, gaps: tuple[Gap, ...]) -> bool:
        """Commit the batch, unless another archive did."""
        is_ours = False

        def change(now: Manifest) -> Change | None:
            nonlocal is_ours
            is_ours = now.cursor == manifest.cursor and now.batch == manifest.batch
            if not is_ours:
                return None
            return Change(
                by=BY,
                added=written.files,
                cursor=portion.until,
                batch=manifest.batch + 1,
                gaps=gaps,
                epochs=_new_epochs(now, portion, written),
                schema=None if now.schema == SCHEMA else SCHEMA,
                intent=None,
            )

        try:
            self._writer.table.commit(change)
        except Conflict as error:  # it took so long that its files were retired as orphans
            self._progress.note(f"{error}; the batch is archived again")
            return False
        if not is_ours:
            self._progress.note("another archive committed this batch first; its rows are archived once")
        return is_ours

    def _lag(self, cursor: str | None) -> int | None:
        if cursor is None:
            return None
        try:
            return self._log.lag(cursor)[1]
        except PenstockError:  # a report without the lag is better than none
            return None


def _new_epochs(manifest: Manifest, portion: Portion, written: Written) -> dict[int, Epoch]:
    """Beginnings of epochs that the manifest lacks."""
    place, kept = position_of(_cursor_of(manifest)), position_of(portion.after).offset
    found = dict(written.epochs)
    if kept < place.offset:  # a crash truncated the archived log, and its offsets are assigned again
        found = join_epochs(found, {place.epoch + 1: Epoch(first=kept + 1, kept=place.offset)})
    joined = join_epochs(manifest.epochs, found)
    return {number: epoch for number, epoch in joined.items() if manifest.epochs.get(number) != epoch}


def _is_empty(portion: Portion) -> bool:
    return position_of(portion.after).offset == position_of(portion.until).offset


def _cursor_of(manifest: Manifest) -> str:
    if manifest.cursor is None:
        raise InvalidLake("the manifest of this lake has no cursor: no archive created it")
    return manifest.cursor


class ArchiveGaps:
    """Handling of gaps in the log: fail, or record them in the lake."""

    def __init__(self, lake: str, keep_going: bool, progress: Progress) -> None:
        self._side_table = LossPolicy(False, str(missing_folder(lake)))
        self._keep_going = keep_going
        self._progress = progress

    def check(self, gaps: Sequence[Gap]) -> None:
        """Refuse to continue without rows that are lost.

        Raises:
            DataLoss: rows are missing, and that is not accepted.
        """
        lost = [gap for gap in gaps if gap.reason not in _NOT_LOST]
        if lost and not self._keep_going:
            raise DataLoss(
                f"offsets {lost[0].first} to {lost[0].last} are no longer in the log ({lost[0].reason}), "
                "and were not archived; --keep-going archives the rest and records what is missing"
            )

    def report(self, found: Sequence[Gap]) -> None:
        """Report gaps of a batch that do not stop the archive."""
        for gap in found:
            if gap.reason == Reason.LOST_UNCOMMITTED:
                self._progress.note(f"the log lost offsets {gap.first} to {gap.last}, which the lake has")
            if gap.reason == Reason.NEVER_STORED:
                self._progress.note(
                    f"the log never stored offsets {gap.first} to {gap.last}; this is recorded"
                )

    def declare(self, manifest: Manifest) -> None:
        """Record all gaps in the side table; idempotent.

        The manifest comes first: after a crash in between, the next start records them.
        """
        if manifest.gaps and manifest.start is not None and manifest.cursor is not None:
            self._side_table.declare(manifest.gaps, manifest.start, manifest.cursor)


def missing_of(found: Sequence[Gap]) -> tuple[Gap, ...]:
    """Gaps of the log that the lake records."""
    return tuple(gap for gap in join_gaps(found) if gap.reason != Reason.LOST_UNCOMMITTED)


class ArchiveStats:
    """Statistics of a run: batches, rows, files and gaps."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._batches = self._rows = 0
        self._files: list[DataFile] = []
        self._gaps: list[Gap] = []

    def count(self, written: Written, gaps: Sequence[Gap]) -> None:
        """Count a committed batch."""
        self._batches += 1
        self._rows += written.rows
        self._files += written.files
        self._gaps += gaps

    def line(self, lag_rows: int) -> str:
        """Progress line."""
        rate = round(self._rate())
        done = f"{count_text(self._batches, 'batch', 'batches')}, {count_text(self._rows, 'row')}"
        return f"{done}{f', {rate:,} rows/s' if rate else ''}; {count_text(lag_rows, 'row')} behind"

    def facts(self) -> dict[str, Any]:
        """Figures for the report."""
        return {
            "batches": self._batches,
            "rows": self._rows,
            "rows_per_s": round(self._rate()),
            "written": file_sizes(self._files),
            "missing_rows": sum(gap.last - gap.first + 1 for gap in self._gaps),
        }

    def missing(self) -> list[dict[str, Any]]:
        """Gaps as rows of a table."""
        return [{"first": gap.first, "last": gap.last, "reason": gap.reason} for gap in self._gaps]

    def _rate(self) -> float:
        return self._rows / max(time.monotonic() - self._began, 1e-9)
