"""Insights job: a streaming query whose batches update the tables, until there is nothing left.

Insights are published as one retained message per table, grain and window, below `$penstock/insights/`. One
commit publishes all messages of a batch, with the batch as idempotency key: a repeated batch publishes
nothing.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client import HttpClient, NewMessage
from penstock.errors import PenstockError
from penstock.lake import lake_messages, lake_path, missing_folder
from penstock.lake.layout import DEFAULT_BUCKETS
from penstock.lake.table import make_folder, make_lake
from penstock.spark.connection import Connection
from penstock.spark.jobs.insights.rows import PARTITIONS
from penstock.spark.jobs.insights.state import BY, Batch, InsightsStore, Settings, State, process_batch
from penstock.spark.jobs.insights.windows import COLUMNS, DROPS_TOPIC, GRAINS, collect_cells
from penstock.spark.jobs.run import (
    FOLLOW_RETRY_S,
    Progress,
    Report,
    Row,
    check_server,
    count_text,
    wait_for_server,
    waiting_text,
)
from penstock.spark.options import read_options

PREFIX = "$penstock/insights"
MAX_WINDOWS = 6
"""Limit of windows of a grain per batch: a job that catches up does not publish old windows."""

_UNPUBLISHED = {"size_histogram", "latency_histogram", "window_start", "window_end", *PARTITIONS}
_POLL_S = 1
_ASK_EVERY_S = 5.0
"""Interval of checks whether the server is available, and their timeout."""


class InsightsOptions(Struct, frozen=True, kw_only=True):
    """Options of the job."""

    lake: str
    server: Mapping[str, str]
    """Connection options of `format("penstock")`."""
    filters: tuple[str, ...] = ("#",)
    drops: bool = True
    """Include reports of undelivered messages."""
    start: str | None = None
    """Start of a new job: `earliest`, `latest`, a cursor or a time."""
    follow: bool = False
    interval_s: float = 10.0
    batch_rows: int = 2_000_000
    batch_bytes: int = 256 << 20
    lateness_s: float = 10.0
    prefix_levels: int = 1
    hot_topics: int = 20
    publish: bool = False
    keep_going: bool = False
    hold: bool = True
    hold_lapse_s: float = 3 * 86_400.0

    def check(self) -> None:
        """Validate the options.

        Raises:
            ValueError: a number is out of range.
            PenstockError: a filter, a cursor, the lake or the address is not valid.
        """
        if min(self.batch_rows, self.batch_bytes, self.prefix_levels, self.hot_topics) < 1:
            raise ValueError("batch rows, batch bytes, prefix levels and hot topics must be at least 1")
        if self.interval_s <= 0 or self.lateness_s < 0 or self.hold_lapse_s < 1:
            raise ValueError("intervals must be more than 0 seconds, and a hold at least 1 second")
        read_options(self.read_options(), is_stream=True)
        self.connection()

    def connection(self) -> Connection:
        """The connection to the server.

        Raises:
            InvalidOption: an option is not valid.
        """
        found = read_options(self._server(), is_stream=False).connection
        if found is None:
            raise ValueError("insights need the address of a server")
        return found

    def read_options(self) -> dict[str, str]:
        """Options of `format("penstock")` to read the messages."""
        read = {
            "filter": json.dumps(self.all_filters),
            "columns": ",".join(COLUMNS),
            "maxRowsPerTrigger": str(self.batch_rows),
            "maxBytesPerTrigger": str(self.batch_bytes),
        }
        if self.start is not None:
            read["startingOffsets"] = self.start
        if self.hold:
            read |= {"hold": self.hold_name, "holdLapse": str(self.hold_lapse_s)}
        if self.keep_going:
            read |= {"failOnDataLoss": "false", "missing": str(missing_folder(self.lake))}
        return {**self._server(), **read}

    @property
    def all_filters(self) -> list[str]:
        """Filters of the topics to read: those given, and the topic of drop reports."""
        return [*self.filters, DROPS_TOPIC] if self.drops else list(self.filters)

    def preflight(self) -> None:
        """Preflight check without Spark; creates the folder of the lake.

        Raises:
            ValueError: a number is out of range.
            PenstockError: the lake is not writable, or the server is unavailable and not waited for.
        """
        self.check()
        check_server(self.connection(), self.all_filters, is_patient=self.follow)
        make_lake(self.lake)

    def _server(self) -> dict[str, str]:
        return {**({"retryFor": str(FOLLOW_RETRY_S)} if self.follow else {}), **self.server}

    @property
    def hold_name(self) -> str:
        """Name of the retention hold, one per lake."""
        return f"insights-{crc32(str(lake_path(self.lake)).encode()):08x}"

    @property
    def checkpoint(self) -> Path:
        """Checkpoint folder of the streaming query."""
        return lake_path(self.lake) / "_checkpoints" / "insights"

    def settings(self) -> Settings:
        """Settings of the aggregation; the number of buckets is that of the lake."""
        table = lake_messages(self.lake)
        buckets = table.manifest().buckets if table.exists() else DEFAULT_BUCKETS
        return Settings(
            lateness_s=self.lateness_s,
            prefix_levels=self.prefix_levels,
            hot_topics=self.hot_topics,
            buckets=buckets or DEFAULT_BUCKETS,
        )


def publish(connection: Connection, batch: Batch, tables: Mapping[str, pa.Table], most_rows: int) -> int:
    """Publish the newest windows of a batch once; returns the number of messages.

    Raises:
        PenstockError: the server refuses it, or is unavailable for too long.
    """
    messages = list(messages_of(tables, most_rows))
    if messages:
        connection.retry(lambda client: _commit(client, f"{batch.query}:{batch.number}", messages))
    return len(messages)


def _commit(client: HttpClient, key: str, messages: list[NewMessage]) -> None:
    id = f"insights:{key}"
    client.stage(id, rows=messages)
    if client.commit_stages(id, [id], rows=[len(messages)]).duplicate:
        client.drop_stage(id)


def messages_of(tables: Mapping[str, pa.Table], most_rows: int) -> Iterator[NewMessage]:
    """The newest windows of each table and grain, oldest first, with the rows of most messages."""
    for name, table in tables.items():
        for grain in GRAINS:
            rows = table.filter(pc.equal(table.column("grain"), grain.name))
            starts = sorted(pc.unique(rows.column("window_start")).to_pylist())
            for start in starts[-MAX_WINDOWS:]:
                yield _message(f"{PREFIX}/{name}/{grain.name}", rows, start, most_rows)


def _message(topic: str, rows: pa.Table, start: datetime, most_rows: int) -> NewMessage:
    there = rows.filter(
        pc.equal(rows.column("window_start"), pa.scalar(start, rows.schema.field("window_start").type))
    )
    first = there.sort_by([("messages", "descending")]).slice(0, most_rows)
    messages = first.select([each for each in first.column_names if each not in _UNPUBLISHED]).to_pylist()
    content: dict[str, Any] = {
        "window_start": start,
        "window_end": first.column("window_end")[0].as_py(),
        "rows_in_all": there.num_rows,
        "rows": messages,
    }
    return NewMessage(
        topic=topic, data=msgspec.to_builtins(content), retain=True, content_type="application/json"
    )


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
