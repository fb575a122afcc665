"""Insights job: a streaming query whose batches update the tables, until there is nothing left."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import structs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError
from penstock.lake.table import make_folder
from penstock.spark.jobs.insights.options import InsightsOptions
from penstock.spark.jobs.insights.publish import publish
from penstock.spark.jobs.insights.state import State, process_batch
from penstock.spark.jobs.insights.store import BY, Batch, InsightsStore
from penstock.spark.jobs.insights.windows import collect_cells
from penstock.spark.jobs.run import Progress, Report, Row, count_text, wait_for_server, waiting_text

_POLL_S = 1
_ASK_EVERY_S = 5.0
"""Interval of checks whether the server is available, and their timeout."""


def insights(
    options: InsightsOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Compute insights of the log; with `follow` also of new messages, until stopped.

    Raises:
        InvalidLake: the existing insights belong to another checkpoint.
        DataLoss: the next rows are no longer in the log.
    """
    options.check()
    running = _Insights(options, progress, stopping)
    running.run(spark)
    return running.report()


class _Stopped(Exception):
    """No further batch is to be processed."""


class _Insights:
    """One run of the job."""

    def __init__(self, options: InsightsOptions, progress: Progress, stopping: threading.Event) -> None:
        self._options = options
        self._progress = progress
        self._stopping = stopping
        self._connection = options.connection()
        # A client of its own, as batches publish with the other one in parallel.
        self._probe = structs.replace(
            self._connection, timeout_s=min(_ASK_EVERY_S, self._connection.timeout_s)
        )
        self._unavailable: PenstockError | None = None
        """Error of the last check; None: the server is available."""
        self._next_check = 0.0
        self._settings = options.settings()
        self._store = InsightsStore(options.lake)
        self._state: State | None = None
        self._query = ""
        self._has_query = threading.Event()
        self._batch_lock = threading.Lock()
        self._failure: BaseException | None = None
        self._batches = self._messages = self._late = self._rows = self._published = 0

    def run(self, spark: SparkSession) -> None:
        """Read to the end, or until stopped."""
        self._unavailable = wait_for_server(
            self._probe, self._options.all_filters, self._progress, self._stopping
        )
        if self._unavailable is not None:
            self._progress.note(f"nothing was read: {self._unavailable}")
            return
        self._store.create()
        make_folder(self._options.checkpoint)
        query = self._start(spark)
        self._query = str(query.id)
        self._has_query.set()
        try:
            with _without_proxy_errors():
                while not query.awaitTermination(_POLL_S):
                    if self._stopping.is_set():
                        self._end(query)
                        return
                    self._check_server()
        except PySparkException:
            if self._failure is not None and not isinstance(self._failure, _Stopped):
                raise self._failure from None  # without Spark's wrapping
            if not self._stopping.is_set():
                raise

    def _check_server(self) -> None:
        """Show that the server is unavailable: the query waits for it silently."""
        if time.monotonic() < self._next_check:
            return
        was_away = self._unavailable
        try:
            self._probe.client().position(filters=self._options.all_filters)
            self._unavailable = None
        except PenstockError as error:  # the query itself handles permanent errors
            self._unavailable = error
            self._progress.show(waiting_text(self._probe, error))
        if was_away is not None and self._unavailable is None and self._state is not None:
            self._show(self._state)
        self._next_check = time.monotonic() + _ASK_EVERY_S

    def _start(self, spark: SparkSession) -> StreamingQuery:
        messages = spark.readStream.format("penstock").options(**self._options.read_options()).load()
        writer = messages.writeStream.queryName(BY).option(
            "checkpointLocation", str(self._options.checkpoint)
        )
        if self._options.follow:
            writer = writer.trigger(processingTime=f"{self._options.interval_s} seconds")
        else:
            writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(self._on_batch).start()

    def _end(self, query: StreamingQuery) -> None:
        """Stop after the current batch; the next one is refused, so that nothing is cut off."""
        with self._batch_lock:
            pass
        query.stop()

    def _on_batch(self, messages: DataFrame, number: int) -> None:
        with self._batch_lock:
            try:
                if self._stopping.is_set():
                    raise _Stopped
                self._has_query.wait()
                self._process(messages, Batch(self._query, number))
            except BaseException as error:
                self._failure = error
                raise

    def _process(self, messages: DataFrame, batch: Batch) -> None:
        if self._store.has(batch):
            return
        state = self._store.state() if self._state is None else self._state
        step = process_batch(state, collect_cells(messages), self._settings)
        if self._options.publish:
            # Before the tables: a batch is repeated until they have it, and published once.
            self._published += publish(self._connection, batch, step.tables, self._settings.hot_topics)
        self._state = None
        self._store.commit(batch, step)
        self._state = step.state
        self._store.compact_small_files()
        self._batches += 1
        self._messages += step.messages
        self._late += step.late
        self._rows += sum(table.num_rows for table in step.tables.values())
        self._show(step.state)

    def _show(self, state: State) -> None:
        until = _time_of(state.settled_us)
        late = f"; {self._late:,} messages were late" if self._late else ""
        self._progress.show(
            f"{count_text(self._batches, 'batch', 'batches')}, {count_text(self._messages, 'message')}, "
            f"windows up to {until or 'none'}{late}"
        )

    def report(self) -> Report:
        """Report of this run and of the totals."""
        state = self._store.state()
        facts: Row = {
            "lake": self._options.lake,
            **({} if self._unavailable is None else {"server_away": str(self._unavailable)}),
            "batches": self._batches,
            "messages": self._messages,
            "late_messages": self._late,
            "rows": self._rows,
            "published": self._published,
            "settled_until": _time_of(state.settled_us),
            "all_messages": state.messages,
            "all_late_messages": state.late,
        }
        tables = [
            {"table": name, "rows": manifest.rows, "files": len(manifest.files), "bytes": manifest.bytes}
            for name, manifest in ((name, table.manifest()) for name, table in self._store.tables.items())
        ]
        return Report(job=BY, facts=facts, tables={"tables": tables})


@contextmanager
def _without_proxy_errors() -> Iterator[None]:
    """Mute py4j's log of what a batch raises: it is raised here too."""
    logger = logging.getLogger("py4j.clientserver")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _time_of(time_us: int | None) -> str | None:
    return None if time_us is None else datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()
