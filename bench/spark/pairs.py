"""Pairs: a part of the Spark integration, and what Spark itself would do in its place."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.errors import BenchError
from bench.load.build import build_program
from bench.load.generator import LoadGenerator
from bench.peers.target import LOOPBACK, Target
from bench.scenarios import SCENARIOS, Goal
from bench.spark.site import Site, watched
from penstock.lake.layout import DEFAULT_BUCKETS
from penstock.spark.jobs.archive import ArchiveOptions, archive
from penstock.spark.jobs.archive.delta import with_partitions
from penstock.spark.jobs.insights import InsightsOptions, insights
from penstock.spark.jobs.run import NoProgress, run

BATCH_ROWS = 10
BATCHES, WARM_BATCHES = 40, 10
LOAD = SCENARIOS["mixed"]
LOAD_S, WARM_S = 3.0, 1.0
TIMEOUT_S = 120.0
LOWEST_PRIORITY = 19


class Pair(Struct, frozen=True):
    """Two ways to do the same work; the first is Penstock's."""

    name: str
    text: str
    unit: str
    goal: Goal
    """For the ratio of the first to the other."""
    ours: Callable[[Site], float]
    other: Callable[[Site], float]

    @property
    def other_name(self) -> str:
        """Name of the other side."""
        return self.goal.against or ""


def connector(site: Site) -> float:
    """Rows per second from the log to a no-op sink."""
    frame = site.log(maxRowsPerTrigger=site.step_rows)
    return site.rows / site.run_through(frame.writeStream.format("noop")).seconds


def file_stream(site: Site) -> float:
    """Rows per second from Parquet files to a no-op sink."""
    return site.rows / site.run_through(site.files().writeStream.format("noop")).seconds


def archive_job(site: Site) -> float:
    """Rows per second from the log into a lake, from the start of the job to its report."""
    with site.fresh("lake") as lake:
        report = run(partial(archive, _archive_options(site, lake)), site.spark)
        if report.facts["rows"] != site.rows:
            raise BenchError(f"the lake has {report.facts['rows']:,} of {site.rows:,} rows")
        return site.rows / report.took_s


def _archive_options(site: Site, lake: Path) -> ArchiveOptions:
    return ArchiveOptions(
        lake=str(lake), server={"address": site.address}, batch_rows=site.step_rows, hold=False
    )


def file_sink(site: Site) -> float:
    """The same rows into the same partitions, by Spark's own file sink."""
    with site.fresh("files") as folder:
        frame = with_partitions(site.log(maxRowsPerTrigger=site.step_rows), DEFAULT_BUCKETS)
        writer = frame.writeStream.format("parquet").partitionBy("date", "bucket")
        writer = writer.option("path", str(folder)).option("compression", "zstd")
        return site.rows / site.run_through(writer).seconds


def insights_job(site: Site) -> float:
    """Rows per second in the batches of the insights job."""
    with site.fresh("lake") as lake, watched(site.spark) as steps:
        run(partial(insights, _insights_options(site, lake)), site.spark)
    return site.rows / site.checked(steps).seconds


def no_insights(site: Site) -> float:
    """The same stream to a no-op sink."""
    with site.fresh("lake") as lake:
        frame = site.log(**_insights_options(site, lake).read_options())
        return site.rows / site.run_through(frame.writeStream.format("noop")).seconds


def _insights_options(site: Site, lake: Path) -> InsightsOptions:
    return InsightsOptions(
        lake=str(lake), server={"address": site.address}, batch_rows=site.step_rows, hold=False
    )


def micro_batch(site: Site) -> float:
    """Milliseconds of a batch with ten of the newest rows."""
    frame = site.log(startingOffsets=site.tail_cursor, maxRowsPerTrigger=BATCH_ROWS, parallelism=1)
    return _typical(site.run_for(frame, BATCHES).milliseconds)


def rate_micro_batch(site: Site) -> float:
    """The same with generated rows."""
    reader = site.spark.readStream.format("rate-micro-batch")
    frame = reader.option("rowsPerBatch", BATCH_ROWS).option("numPartitions", 1).load()
    return _typical(site.run_for(frame, BATCHES).milliseconds)


def _typical(milliseconds: list[float]) -> float:
    if len(milliseconds) < BATCHES:
        raise BenchError(f"there were {len(milliseconds)} of {BATCHES} batches")
    return median(milliseconds[WARM_BATCHES:])


def deliveries(site: Site) -> float:
    """Deliveries per second while the log is not read."""
    found = _generator().measure(LOAD, Target("penstock", "mqtt", LOOPBACK, site.server.port))
    if found.failure is not None or not found.delivered_per_s:
        raise BenchError(found.failure or "nothing was delivered")
    return found.delivered_per_s


def deliveries_beside_archive(site: Site) -> float:
    """The same while the log is archived repeatedly.

    The job runs on the generator's core with lower priority, so that only the server's loss is measured.
    """
    gateway = site.spark.sparkContext._gateway
    assert gateway is not None
    lower_priority(gateway.proc.pid, _client_cpu())
    with _archiving(site):
        return deliveries(site)


@lru_cache(1)
def _generator() -> LoadGenerator:
    return LoadGenerator(build_program(print), cpu=_client_cpu(), duration_s=LOAD_S, warm_s=WARM_S)


def _client_cpu() -> int:
    return max(os.sched_getaffinity(0))


class _Busy(NoProgress):
    """Progress that sets an event when the job has started."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def show(self, text: str) -> None:
        self.has_begun.set()


@contextmanager
def _archiving(site: Site) -> Iterator[None]:
    """Archive repeatedly in a thread; the first job has written something when the block begins."""
    stopping, busy, failures = threading.Event(), _Busy(), list[Exception]()

    def work() -> None:
        try:
            while not stopping.is_set():
                with site.fresh("lake") as lake:
                    run(partial(archive, _archive_options(site, lake)), site.spark, busy, stopping)
        except Exception as error:  # raised by the block below
            failures.append(error)
            busy.has_begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        if not busy.has_begun.wait(TIMEOUT_S):
            raise BenchError(f"the archive has written nothing after {TIMEOUT_S:.0f} s")
        yield
    finally:
        stopping.set()
        thread.join(TIMEOUT_S)
    if failures:
        raise BenchError(f"the archive failed: {failures[0]}")


def lower_priority(root: int, cpu: int) -> None:
    """Pin a process and its descendants to one core, with the lowest priority."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    for task in (task for process in family for task in Path(f"/proc/{process}/task").glob("*")):
        with suppress(OSError):
            os.sched_setaffinity(int(task.name), {cpu})
            os.setpriority(os.PRIO_PROCESS, int(task.name), LOWEST_PRIORITY)


PAIRS = (
    Pair(
        "connector",
        "the log to a no-op sink, and Spark's stream of Parquet files with the same rows to it",
        "rows/s",
        Goal(">=", 0.6, "file stream"),
        connector,
        file_stream,
    ),
    Pair(
        "archive",
        "`penstock pipeline archive`, and the same stream to Spark's file sink with the same partitions",
        "rows/s",
        Goal(">=", 0.7, "file sink"),
        archive_job,
        file_sink,
    ),
    Pair(
        "insights",
        "`penstock pipeline insights`, and the same stream to a no-op sink",
        "rows/s",
        Goal(">=", 0.4, "no aggregation"),
        insights_job,
        no_insights,
    ),
    Pair(
        "micro_batch",
        f"batches of {BATCH_ROWS} rows of the log, and of Spark's source `rate-micro-batch`",
        "ms",
        Goal("<=", 2.0, "rate-micro-batch"),
        micro_batch,
        rate_micro_batch,
    ),
    Pair(
        "deliveries",
        "`mixed` while the log is archived repeatedly, and without",
        "deliveries/s",
        Goal(">=", 0.5, "alone"),
        deliveries_beside_archive,
        deliveries,
    ),
)
"""In this order: the last one leaves one core to Spark."""
