"""Lake of the plant: Spark archives the log, queries it, and proves that nothing is missing."""

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import partial
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from penstock.lake import lake_insights
from penstock.spark import read_table
from penstock.spark.jobs import Job, Report
from penstock.spark.jobs import audit as auditing
from penstock.spark.jobs.archive import ArchiveOptions, archive
from penstock.spark.jobs.insights import InsightsOptions, insights
from penstock.spark.jobs.run import run
from penstock.spark.session import session

from .machines import FILTER
from .resume import Journey
from .screen import Screen
from .server import PlantServer
from .slow_subscriber import Losses

WINDOW_S = 10
SHIFT = "plant/shift"
SHOWN = 6
LOG = "spark.log"
OVENS = """
select topic, count(*), avg(value.value), max(value.value)
from temperatures group by topic order by topic
"""


class Lake:
    """Chapters about the lake behind the log of a server."""

    def __init__(self, spark: SparkSession, server: PlantServer, folder: Path, screen: Screen) -> None:
        self._spark = spark
        self._server = server
        self._folder = str(folder)
        self._screen = screen
        self._options = {"address": server.http_address}

    # Chapters

    def show_archive(self, journey: Journey, losses: Losses) -> None:
        """Archive the log; query it and the insights as tables."""
        screen = self._screen
        facts = self._run("archiving", _archive_job(self._folder, self._options)).facts
        files = facts["lake_files"]["files"]
        screen.say(f"The log is now a lake: {facts['lake_rows']:,} rows in {files} Parquet files.")
        self._show_temperatures()
        self._show_resume(journey)
        self._run("making insights", _insights_job(self._folder, self._options))
        self._show_clients()
        self._show_drops(losses)

    def show_audit(self) -> None:
        """Compare the lake with the log, message by message."""
        screen = self._screen
        report = self._run("auditing", _audit_job(self._folder, self._options))
        facts = report.facts
        names = ("missing", "only_in_log", "double", "out_of_order", "unaccounted", "damaged_files")
        rows = [
            ("rows in the lake", facts["rows"]),
            ("rows compared with the log", facts["compared"]["rows"]),
        ]
        screen.table(("audit", "found"), [*rows, *((name.replace("_", " "), facts[name]) for name in names)])
        screen.check(report.is_clean, "the lake has every message of the log exactly once")
        in_log = _count_rows(self._server)
        screen.check(
            facts["rows"] == facts["compared"]["rows"] == in_log, f"{in_log:,} rows in the log, as many here"
        )

    # Tables

    def _show_temperatures(self) -> None:
        """Query topics as a table, with the payload as columns, from the running server."""
        screen, schema = self._screen, "value DOUBLE, unit STRING"
        readings = self._read(filter="plant/+/temperature", jsonSchema=schema)
        readings.createOrReplaceTempView("temperatures")
        screen.say("A topic is a table in Spark, and the fields of its payloads are columns:")
        for line in OVENS.strip().splitlines():
            screen.show(line.strip())
        rows = [tuple(row) for row in self._spark.sql(OVENS).collect()]
        screen.table(("topic", "readings", "average", "highest"), rows)
        counted = sum(row[1] for row in rows)
        screen.check(
            counted == self._server.count("plant/+/temperature"), f"all {counted:,} readings are there"
        )

    def _read(self, **options: str) -> DataFrame:
        """The server's log as a table."""
        return self._spark.read.format("penstock").options(**self._options, **options).load()

    def _show_resume(self, journey: Journey) -> None:
        """Continue from the cursor of the third chapter."""
        rows = self._read(filter=FILTER, startingOffsets=journey.cursor).count()
        expected = self._server.count(FILTER) - len(journey.keys)
        self._screen.check(
            rows == expected,
            f"Spark resumes after the historian's cursor: {rows:,} newer messages",
        )

    def _show_clients(self) -> None:
        clients = self._insights("clients").groupBy("client_id").agg({"messages": "sum", "bytes": "sum"})
        found = clients.orderBy("sum(messages)", ascending=False).limit(SHOWN).collect()
        self._screen.say("Insights, in windows of ten seconds. The busiest publishers:")
        table = [(row["client_id"], row["sum(messages)"], row["sum(bytes)"]) for row in found]
        self._screen.table(("client", "messages", "bytes"), table)

    def _show_drops(self, losses: Losses) -> None:
        found = self._insights("drops").groupBy("reason").agg({"messages": "sum"}).collect()
        self._screen.say("Messages that did not reach their subscriber:")
        self._screen.table(("reason", "messages"), [(row["reason"], row["sum(messages)"]) for row in found])
        dropped = sum(row["sum(messages)"] for row in found if row["reason"] == "outbox-full")
        self._screen.check(
            dropped == losses.dropped, f"among them the {dropped} messages that the tablet lost"
        )

    def _insights(self, name: str) -> DataFrame:
        return read_table(self._spark, None, lake_insights(self._folder, name)).where("grain = '10s'")

    def _run(self, text: str, job: Job) -> Report:
        with self._screen.progress(text) as progress:
            return run(job, self._spark, progress)


def _archive_job(folder: str, server: dict[str, str]) -> Job:
    return partial(archive, ArchiveOptions(lake=folder, server=server, buckets=2, hold=False))


def _insights_job(folder: str, server: dict[str, str]) -> Job:
    return partial(insights, InsightsOptions(lake=folder, server=server, lateness_s=0, hold=False))


def _audit_job(folder: str, server: dict[str, str]) -> Job:
    return partial(auditing.audit, auditing.audit_options(folder, server=server))


def _count_rows(server: PlantServer) -> int:
    """Number of rows in the log."""
    with server.client() as client, client.read_log(columns=["offset"]) as read:
        return sum(batch.num_rows for batch in read)


def end_shift(server: PlantServer) -> None:
    """Publish a last message in the next window, which completes the window of all others."""
    began = time.time() // WINDOW_S
    while time.time() // WINDOW_S == began:
        time.sleep(0.1)
    with server.client() as client:
        client.publish(SHIFT, {"text": "end of shift"})


@contextmanager
def spark_session(folder: Path, screen: Screen) -> Iterator[SparkSession]:
    """Local Spark session; all its files and its log are in a folder."""
    log = folder / LOG
    _log_to(log)
    confs = {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
    }
    with ExitStack() as running:
        with screen.progress("starting Spark"):
            spark = running.enter_context(session("penstock demo", "local[2]", confs, log=log))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark has replaced it
        yield spark


@contextmanager
def spark_errors_logged(folder: Path) -> Iterator[None]:
    """Append to Spark's log what PySpark's threads print when the JVM is ended."""
    with (folder / LOG).open("a", encoding="utf-8") as log, redirect_stderr(log):
        yield


def _log_to(log: Path) -> None:
    """Send PySpark's warnings and log to a file."""
    logging.basicConfig(filename=log, level=logging.WARNING)
    logging.captureWarnings(True)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # they repeat what is raised
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
