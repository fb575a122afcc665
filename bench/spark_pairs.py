"""What is measured: each time a piece of the pipeline, and what Spark itself would do in its place."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from statistics import median

from msgspec import Struct
from spark_site import Site, watched

from penstock.cli.bench.building import build_program
from penstock.cli.bench.load import LoadGenerator
from penstock.cli.bench.problems import BenchError
from penstock.cli.bench.scenarios import SCENARIOS, Goal
from penstock.cli.bench.targets import LOOPBACK, Target
from penstock.pipeline.jobs.archive import ArchiveOptions, archive
from penstock.pipeline.jobs.archive.delta import with_partitions
from penstock.pipeline.jobs.archive.options import BUCKETS
from penstock.pipeline.jobs.insights import InsightsOptions, insights
from penstock.pipeline.jobs.running import Silence, run

BATCH_ROWS = 10
BATCHES, WARM_BATCHES = 40, 10
LOAD = SCENARIOS["mixed"]
LOAD_S, WARM_S = 3.0, 1.0
PATIENCE_S = 120.0
LOWEST_PRIORITY = 19


class Pair(Struct, frozen=True):
    """Two ways to do something, of which the first is ours."""

    name: str
    text: str
    unit: str
    goal: Goal
    """For the ratio of ours to the other."""
    ours: Callable[[Site], float]
    other: Callable[[Site], float]

    @property
    def other_name(self) -> str:
        """What ours is held against."""
        return self.goal.against or ""


def connector(site: Site) -> float:
    """Rows a second from the log to nowhere."""
    frame = site.log(maxRowsPerTrigger=site.step_rows)
    return site.rows / site.run_through(frame.writeStream.format("noop")).seconds


def file_stream(site: Site) -> float:
    """Rows a second from Parquet files to nowhere."""
    return site.rows / site.run_through(site.files().writeStream.format("noop")).seconds


def archive_job(site: Site) -> float:
    """Rows a second from the log into a lake, from the start of the job to its report."""
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
        frame = with_partitions(site.log(maxRowsPerTrigger=site.step_rows), BUCKETS)
        writer = frame.writeStream.format("parquet").partitionBy("date", "bucket")
        writer = writer.option("path", str(folder)).option("compression", "zstd")
        return site.rows / site.run_through(writer).seconds


def insights_job(site: Site) -> float:
    """Rows a second of the insights job, in its batches."""
    with site.fresh("lake") as lake, watched(site.spark) as steps:
        run(partial(insights, _insights_options(site, lake)), site.spark)
    return site.rows / site.checked(steps).seconds


def no_insights(site: Site) -> float:
    """The same stream to nowhere."""
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
    """The same with rows that Spark makes up."""
    reader = site.spark.readStream.format("rate-micro-batch")
    frame = reader.option("rowsPerBatch", BATCH_ROWS).option("numPartitions", 1).load()
    return _typical(site.run_for(frame, BATCHES).milliseconds)


def _typical(milliseconds: list[float]) -> float:
    if len(milliseconds) < BATCHES:
        raise BenchError(f"there were {len(milliseconds)} of {BATCHES} batches")
    return median(milliseconds[WARM_BATCHES:])


def deliveries(site: Site) -> float:
    """Deliveries a second of the server, whose log nobody reads."""
    found = _generator().measure(LOAD, Target("penstock", "mqtt", LOOPBACK, site.server.port))
    if found.failure is not None or not found.delivered_per_s:
        raise BenchError(found.failure or "nothing was delivered")
    return found.delivered_per_s


def deliveries_beside_archive(site: Site) -> float:
    """The same while the log is archived over and over.

    The job has the generator's core and gives way to it: what is measured is what the server loses.
    """
    give_way(site.spark.sparkContext._gateway.proc.pid, _client_cpu())
    with _archiving(site):
        return deliveries(site)


@lru_cache(1)
def _generator() -> LoadGenerator:
    return LoadGenerator(build_program(print), cpu=_client_cpu(), duration_s=LOAD_S, warm_s=WARM_S)


def _client_cpu() -> int:
    return max(os.sched_getaffinity(0))


class _Busy(Silence):
    """Progress that shows when a job has got going."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def show(self, text: str) -> None:
        self.has_begun.set()


@contextmanager
def _archiving(site: Site) -> Iterator[None]:
    """Archives that follow one another, of which the first has written something when the block begins."""
    stopping, busy, failures = threading.Event(), _Busy(), list[Exception]()

    def work() -> None:
        try:
            while not stopping.is_set():
                with site.fresh("lake") as lake:
                    run(partial(archive, _archive_options(site, lake)), site.spark, busy, stopping)
        except Exception as error:  # told by whoever waits for it
            failures.append(error)
            busy.has_begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        if not busy.has_begun.wait(PATIENCE_S):
            raise BenchError("the archive does not get going")
        yield
    finally:
        stopping.set()
        thread.join(PATIENCE_S)
    if failures:
        raise BenchError(f"the archive failed: {failures[0]}")


def give_way(root: int, cpu: int) -> None:
    """Leave the other cores to the server, and this one to whoever wants it: a process and all below it."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended
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
        "the log to nowhere, and Spark's stream of Parquet files with the same rows to nowhere",
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
        "`penstock pipeline insights`, and the same stream to nowhere",
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
        "`mixed` on a server whose log is archived over and over, and on the same without",
        "deliveries/s",
        Goal(">=", 0.5, "alone"),
        deliveries_beside_archive,
        deliveries,
    ),
)
"""In this order: the last one leaves Spark with one core."""
