"""The job: a streaming query whose batches are taken in one after the other, until there is nothing left."""

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
from penstock.pipeline.jobs.asking import await_server, waiting_for
from penstock.pipeline.jobs.insights.options import InsightsOptions
from penstock.pipeline.jobs.insights.publishing import publish
from penstock.pipeline.jobs.insights.state import State, take
from penstock.pipeline.jobs.insights.store import BY, Batch, Store
from penstock.pipeline.jobs.insights.windows import collect_cells
from penstock.pipeline.jobs.report import Report, Row, counted
from penstock.pipeline.jobs.running import Progress
from penstock.pipeline.lake.table import make_folder

_LOOK_EVERY_S = 1
_ASK_EVERY_S = 5.0
"""How often a server is asked whether it is there; and how long it may take to say so."""


def insights(
    options: InsightsOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Make insights of what the log has; with `follow` also of what comes, until it is told to stop.

    Raises:
        InvalidLake: the insights that are there go with another checkpoint.
        DataLoss: the log no longer has what comes next.
    """
    options.check()
    running = _Insights(options, progress, stopping)
    running.run(spark)
    return running.report()


class _Stopped(Exception):
    """There is to be no further batch."""


class _Insights:
    """One run of the job."""

    def __init__(self, options: InsightsOptions, progress: Progress, stopping: threading.Event) -> None:
        self._options = options
        self._progress = progress
        self._stopping = stopping
        self._connection = options.connection()
        # A client of its own, as batches publish with the other one at the same time.
        self._asking = structs.replace(
            self._connection, timeout_s=min(_ASK_EVERY_S, self._connection.timeout_s)
        )
        self._away: PenstockError | None = None
        """Why the server could not be asked the last time."""
        self._next_look = 0.0
        self._settings = options.settings()
        self._store = Store(options.lake)
        self._state: State | None = None
        self._query = ""
        self._has_query = threading.Event()
        self._in_hand = threading.Lock()
        self._failure: BaseException | None = None
        self._batches = self._messages = self._late = self._rows = self._told = 0

    def run(self, spark: SparkSession) -> None:
        """Read to the end, or until the job is to stop."""
        self._away = await_server(self._asking, self._options.all_filters, self._progress, self._stopping)
        if self._away is not None:
            self._progress.note(f"nothing was read: {self._away}")
            return
        self._store.make()
        make_folder(self._options.checkpoint)
        query = self._start(spark)
        self._query = str(query.id)
        self._has_query.set()
        try:
            with _without_proxy_errors():
                while not query.awaitTermination(_LOOK_EVERY_S):
                    if self._stopping.is_set():
                        self._end(query)
                        return
                    self._look_at_server()
        except PySparkException:
            if self._failure is not None and not isinstance(self._failure, _Stopped):
                raise self._failure from None  # as it was before Spark wrapped it
            if not self._stopping.is_set():
                raise

    def _look_at_server(self) -> None:
        """Say so if the server is away: the query waits for it in silence."""
        if time.monotonic() < self._next_look:
            return
        was_away = self._away
        try:
            self._asking.client().position(filters=self._options.all_filters)
            self._away = None
        except PenstockError as error:  # the query finds out by itself whether it passes
            self._away = error
            self._progress.show(waiting_for(self._asking, error))
        if was_away is not None and self._away is None and self._state is not None:
            self._show(self._state)
        self._next_look = time.monotonic() + _ASK_EVERY_S

    def _start(self, spark: SparkSession) -> StreamingQuery:
        messages = spark.readStream.format("penstock").options(**self._options.read_options()).load()
        writer = messages.writeStream.queryName(BY).option(
            "checkpointLocation", str(self._options.checkpoint)
        )
        if self._options.follow:
            writer = writer.trigger(processingTime=f"{self._options.interval_s} seconds")
        else:
            writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(self._take).start()

    def _end(self, query: StreamingQuery) -> None:
        """Stop when the batch in hand is done; the next one is refused, so that nothing is cut off."""
        with self._in_hand:
            pass
        query.stop()

    def _take(self, messages: DataFrame, number: int) -> None:
        with self._in_hand:
            try:
                if self._stopping.is_set():
                    raise _Stopped
                self._has_query.wait()
                self._take_in(messages, Batch(self._query, number))
            except BaseException as error:
                self._failure = error
                raise

    def _take_in(self, messages: DataFrame, batch: Batch) -> None:
        if self._store.has(batch):
            return
        state = self._store.state() if self._state is None else self._state
        step = take(state, collect_cells(messages), self._settings)
        if self._options.publish:
            # Before the tables have it: a batch is done again until they do, and told once.
            self._told += publish(self._connection, batch, step.tables, self._settings.hot_topics)
        self._state = None
        self._store.commit(batch, step)
        self._state = step.state
        self._store.tidy()
        self._batches += 1
        self._messages += step.messages
        self._late += step.late
        self._rows += sum(table.num_rows for table in step.tables.values())
        self._show(step.state)

    def _show(self, state: State) -> None:
        until = _time_of(state.settled_us)
        late = f"; {self._late:,} messages were late" if self._late else ""
        self._progress.show(
            f"{counted(self._batches, 'batch', 'batches')}, {counted(self._messages, 'message')}, "
            f"windows up to {until or 'none'}{late}"
        )

    def report(self) -> Report:
        """What this run did, and what there is now."""
        state = self._store.state()
        facts: Row = {
            "lake": self._options.lake,
            **({} if self._away is None else {"server_away": str(self._away)}),
            "batches": self._batches,
            "messages": self._messages,
            "late_messages": self._late,
            "rows": self._rows,
            "published": self._told,
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
    """Let py4j not log what a batch raises: it is raised here as well, if it is worth it."""
    logger = logging.getLogger("py4j.clientserver")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _time_of(time_us: int | None) -> str | None:
    return None if time_us is None else datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()
