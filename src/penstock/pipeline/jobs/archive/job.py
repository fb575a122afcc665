"""The archive itself: what comes next, what became of it, and the report."""

import threading
import time

from msgspec import structs
from pyspark.sql import SparkSession

from penstock.client import Gap
from penstock.errors import Conflict, PenstockError
from penstock.pipeline.jobs.archive.delta import DeltaWriter
from penstock.pipeline.jobs.archive.losses import ArchiveLosses, missing_of
from penstock.pipeline.jobs.archive.options import BUCKETS, ArchiveOptions
from penstock.pipeline.jobs.archive.parquet import SCHEMA, ParquetWriter
from penstock.pipeline.jobs.archive.tally import Tally
from penstock.pipeline.jobs.archive.writers import BatchWriter, Written
from penstock.pipeline.jobs.asking import waiting_for
from penstock.pipeline.jobs.report import Report
from penstock.pipeline.jobs.running import Progress
from penstock.pipeline.lake import Change, InvalidLake, Manifest
from penstock.pipeline.lake.manifest import Epoch, join_epochs
from penstock.pipeline.lake.sizes import file_sizes
from penstock.pipeline.lake.tasks import Interrupted
from penstock.pipeline.source.connection import is_passing
from penstock.pipeline.source.errors import DataLoss
from penstock.pipeline.source.hold import StreamHold
from penstock.pipeline.source.live import LiveLog, Portion
from penstock.pipeline.source.offsets import position_of
from penstock.pipeline.source.options import LATEST

BY = "archive"
AWAY_PAUSE_S = 1.0
"""How often a server that is away is asked for."""


def archive(
    options: ArchiveOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Copy what the log has by now into the lake; with `follow` also what comes, until it is told to stop.

    Raises:
        DataLoss: the log no longer has what comes next.
        InvalidLake: the lake is of another log, or has other settings.
    """
    options.check()
    running = _Archive(options, spark, progress, stopping)
    pause_s: float | None = 0.0
    while pause_s is not None and not stopping.wait(pause_s):
        pause_s = running.step()
    return running.report()


class _Archive:
    """One run of the job."""

    def __init__(
        self, options: ArchiveOptions, spark: SparkSession, progress: Progress, stopping: threading.Event
    ) -> None:
        self._options = options
        self._progress = progress
        connection = options.connection()
        self._retry_for_s = float("inf") if options.follow else connection.retry_for_s
        # The job waits for the server by itself, as it can be told to stop meanwhile; its tasks do not.
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
        """Where to end; None for never."""
        self._hold: StreamHold | None = None
        self._away_since: float | None = None
        self._losses = ArchiveLosses(options.lake, options.keep_going, progress)
        self._tally = Tally()

    def step(self) -> float | None:
        """Archive one batch, and tell how long to wait before the next one; None if there is none."""
        try:
            if not self._has_begun:
                self._begin()
            did_something = self._batch()
        except Interrupted:
            self._progress.note("the batch in hand is dropped; the next archive begins with it")
            return None
        except PenstockError as error:
            return self._pause_after(error)
        self._away_since = None
        if did_something:
            return 0.0
        return self._options.interval_s if self._options.follow else None

    def _pause_after(self, error: PenstockError) -> float:
        """How long to wait for a server that is away.

        Raises:
            PenstockError: this one, if it does not pass by itself or did not for long enough.
        """
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if not is_passing(error) or now - self._away_since >= self._retry_for_s:
            raise error
        self._progress.show(waiting_for(self._connection, error))
        return AWAY_PAUSE_S

    def _begin(self) -> None:
        """Make the lake if it is new, see whether it fits, and hold its place in the log."""
        options, table = self._options, self._writer.table
        self._writer.prepare()
        is_new = not table.exists()
        if is_new:
            start = self._log.portion(options.place(), None, 1).after
            table.commit(lambda manifest: self._first(manifest, start))
        manifest = table.manifest()
        options.check_fit(manifest)
        self._log = LiveLog(self._connection, manifest.filters, self._parallelism)
        options.check_log(manifest, self._log.position(LATEST).log_id)
        self._losses.declare(manifest)  # whoever committed it may have died before
        if options.hold:
            self._hold = StreamHold(
                manifest.hold_name, options.hold_lapse_s, self._connection, manifest.filters
            )
            self._hold.keep(_cursor_of(manifest))
        if not options.follow:
            self._goal = self._log.position(LATEST).cursor
        if options.start is not None and not is_new:
            self._progress.note("the lake has begun already and goes on where it is: --from is for new ones")
        self._has_begun = True

    def _batch(self) -> bool:
        """Archive one batch; False if there was nothing to do."""
        manifest = self._writer.table.manifest()
        portion = None if self._is_there(manifest) else self._next(manifest)
        if portion is None or (_is_empty(portion) and not portion.gaps):
            if self._hold is not None:
                self._hold.keep(_cursor_of(manifest))
            self._progress.show(self._tally.line(0))
            return False
        self._losses.judge(portion.gaps)
        announced = self._writer.announce(manifest, portion)
        if announced is not None:
            self._writer.table.commit(lambda now: announced if now.version == manifest.version else None)
            return True  # the next step writes it
        written = self._writer.write(manifest, portion)
        try:
            self._losses.judge(written.gaps)
        except DataLoss:
            self._writer.drop(written)
            raise
        found = [*portion.gaps, *written.gaps]
        gaps = missing_of(found)
        if self._commit(manifest, portion, written, gaps):
            self._losses.note(found)
            if gaps:
                self._losses.declare(self._writer.table.manifest())
            self._tally.count(written, gaps)
            if self._hold is not None:
                self._hold.move(portion.until)
            self._progress.show(self._tally.line(self._log.lag(portion.until)[1]))
        else:
            self._writer.drop(written)
        return True

    def report(self) -> Report:
        """What this run did."""
        manifest = self._writer.table.manifest()
        facts = {
            "lake": self._options.lake,
            **self._tally.facts(),
            "cursor": manifest.cursor,
            "lag_rows": self._lag(manifest.cursor),
            "lake_batches": manifest.batch,
            "lake_rows": manifest.rows,
            "lake_files": file_sizes(manifest.files.values()),
        }
        missing = self._tally.missing()
        return Report(job=BY, facts=facts, tables={"missing": missing} if missing else {})

    def _first(self, manifest: Manifest, cursor: str) -> Change | None:
        if manifest.version:
            return None
        return Change(
            by=BY,
            filters=self._options.filters,
            buckets=self._options.buckets or BUCKETS,
            schema=SCHEMA,
            start=cursor,
            cursor=cursor,
            log_id=position_of(cursor).log_id,
        )

    def _next(self, manifest: Manifest) -> Portion:
        """The next batch: one that was begun before, or the next rows of the log."""
        intent = manifest.intent
        if intent is not None:
            return self._log.portion(intent.after or _cursor_of(manifest), intent.until)
        limits = self._options.batch_rows, self._options.batch_bytes
        return self._log.portion(_cursor_of(manifest), self._goal, *limits)

    def _is_there(self, manifest: Manifest) -> bool:
        """Whether the lake has everything that was in the log when the job began."""
        if self._goal is None or manifest.intent is not None:
            return False
        place, goal = position_of(_cursor_of(manifest)), position_of(self._goal)
        return (place.epoch, place.offset) >= (goal.epoch, goal.offset)

    def _commit(self, manifest: Manifest, portion: Portion, written: Written, gaps: tuple[Gap, ...]) -> bool:
        """Make the batch visible, unless somebody else did."""
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
        except Conflict as error:  # it took so long that its files were taken for left over
            self._progress.note(f"{error}; the batch is archived again")
            return False
        if not is_ours:
            self._progress.note("another archive was faster with this batch; its rows are there once")
        return is_ours

    def _lag(self, cursor: str | None) -> int | None:
        if cursor is None:
            return None
        try:
            return self._log.lag(cursor)[1]
        except PenstockError:  # the report is worth more than this
            return None


def _new_epochs(manifest: Manifest, portion: Portion, written: Written) -> dict[int, Epoch]:
    """Where epochs begin, as far as the manifest does not know it."""
    place, kept = position_of(_cursor_of(manifest)), position_of(portion.after).offset
    found = dict(written.epochs)
    if kept < place.offset:  # a crash took the end of what was archived, and its offsets come again
        found = join_epochs(found, {place.epoch + 1: Epoch(first=kept + 1, kept=place.offset)})
    joined = join_epochs(manifest.epochs, found)
    return {number: epoch for number, epoch in joined.items() if manifest.epochs.get(number) != epoch}


def _is_empty(portion: Portion) -> bool:
    return position_of(portion.after).offset == position_of(portion.until).offset


def _cursor_of(manifest: Manifest) -> str:
    if manifest.cursor is None:
        raise InvalidLake("the manifest of this lake has no cursor: it was not made by an archive")
    return manifest.cursor
