"""What Spark does with the log: archive it, look at it, and prove that nothing is missing."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.plant import FILTER
from penstock.cli.demo.resume import Course
from penstock.cli.demo.screen import Screen
from penstock.cli.demo.server import DemoServer
from penstock.cli.demo.slow import Losses

if TYPE_CHECKING:
    from penstock.pipeline.jobs import Job, Report

WINDOW_S = 10
SHIFT = "plant/shift"
SHOWN = 6
LOG = "spark.log"
OVENS = """
select topic, count(*), avg(value.value), max(value.value)
from temperatures group by topic order by topic
"""


class Lake:
    """A lake behind the log of the demonstration's server, and Spark at work on it.

    Args:
        spark: a session of Spark.
    """

    def __init__(self, spark: Any, server: DemoServer, folder: Path, screen: Screen) -> None:
        self._spark = spark
        self._server = server
        self._folder = str(folder)
        self._screen = screen
        self._options = {"address": server.http_address}

    # Chapters

    def archive(self, course: Course, losses: Losses) -> None:
        """The chapter: the log becomes a lake, and tables."""
        screen = self._screen
        facts = self._run("archiving", _archive_job(self._folder, self._options)).facts
        files = facts["lake_files"]["files"]
        screen.say(f"The log is now a lake: {facts['lake_rows']:,} rows in {files} Parquet files.")
        self._show_temperatures()
        self._go_on(course)
        self._run("making insights", _insights_job(self._folder, self._options))
        self._show_clients()
        self._show_drops(losses)

    def audit(self) -> None:
        """The chapter: compare the lake with the log, message by message."""
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
        kept = _rows_of(self._server)
        screen.check(
            facts["rows"] == facts["compared"]["rows"] == kept, f"{kept:,} rows in the log, as many here"
        )

    # Tables

    def _show_temperatures(self) -> None:
        """A topic is a table: payloads with columns, straight from the server."""
        screen, schema = self._screen, "value DOUBLE, unit STRING"
        readings = self._read(filter="plant/+/temperature", jsonSchema=schema)
        readings.createOrReplaceTempView("temperatures")
        screen.say("A topic is a table in Spark, and what is in a payload are its columns:")
        for line in OVENS.strip().splitlines():
            screen.show(line.strip())
        rows = [tuple(row) for row in self._spark.sql(OVENS).collect()]
        screen.table(("topic", "readings", "average", "highest"), rows)
        counted = sum(row[1] for row in rows)
        screen.check(
            counted == self._server.count("plant/+/temperature"), f"all {counted:,} readings are there"
        )

    def _read(self, **options: str) -> Any:
        """What the server has, as a table."""
        return self._spark.read.format("penstock").options(**self._options, **options).load()

    def _go_on(self, course: Course) -> None:
        """The cursor of the third chapter is one for Spark, too."""
        rows = self._read(filter=FILTER, startingOffsets=course.cursor).count()
        expected = self._server.count(FILTER) - len(course.keys)
        self._screen.check(
            rows == expected,
            f"Spark goes on behind the historian's cursor: {rows:,} messages came since then",
        )

    def _show_clients(self) -> None:
        clients = self._insights("clients").groupBy("client_id").agg({"messages": "sum", "bytes": "sum"})
        found = clients.orderBy("sum(messages)", ascending=False).limit(SHOWN).collect()
        self._screen.say("Insights, by windows of ten seconds. Who published most:")
        table = [(row["client_id"], row["sum(messages)"], row["sum(bytes)"]) for row in found]
        self._screen.table(("client", "messages", "bytes"), table)

    def _show_drops(self, losses: Losses) -> None:
        found = self._insights("drops").groupBy("reason").agg({"messages": "sum"}).collect()
        self._screen.say("And what did not reach its subscriber:")
        self._screen.table(("reason", "messages"), [(row["reason"], row["sum(messages)"]) for row in found])
        told = sum(row["sum(messages)"] for row in found if row["reason"] == "outbox-full")
        self._screen.check(told == losses.dropped, f"among them the {told} messages that the tablet lost")

    def _insights(self, name: str) -> Any:
        from penstock.pipeline.lake import lake_insights, read_table  # noqa: PLC0415 - needs Spark

        return read_table(self._spark, None, lake_insights(self._folder, name)).where("grain = '10s'")

    def _run(self, text: str, job: "Job") -> "Report":
        from penstock.pipeline.jobs.running import run  # noqa: PLC0415 - needs Spark

        with self._screen.working(text) as working:
            return run(job, self._spark, working)


def _archive_job(folder: str, server: dict[str, str]) -> "Job":
    from penstock.pipeline.jobs.archive import ArchiveOptions, archive  # noqa: PLC0415 - needs Spark

    return partial(archive, ArchiveOptions(lake=folder, server=server, buckets=2, hold=False))


def _insights_job(folder: str, server: dict[str, str]) -> "Job":
    from penstock.pipeline.jobs.insights import InsightsOptions, insights  # noqa: PLC0415 - needs Spark

    return partial(insights, InsightsOptions(lake=folder, server=server, lateness_s=0, hold=False))


def _audit_job(folder: str, server: dict[str, str]) -> "Job":
    from penstock.pipeline.jobs import audit as auditing  # noqa: PLC0415 - needs Spark

    return partial(auditing.audit, auditing.audit_options(folder, server=server))


def _rows_of(server: DemoServer) -> int:
    """How many rows the log has."""
    with server.client() as client, client.read_log(columns=["offset"]) as read:
        return sum(batch.num_rows for batch in read)


def end_shift(server: DemoServer) -> None:
    """Publish a last message when the window of all others is over, so that insights have them all."""
    began = time.time() // WINDOW_S
    while time.time() // WINDOW_S == began:
        time.sleep(0.1)
    with server.client() as client:
        client.publish(SHIFT, {"text": "end of shift"})


@contextmanager
def spark_session(folder: Path, screen: Screen) -> Iterator[Any]:
    """Spark on this machine, quiet, with everything that it writes in a folder."""
    from penstock.cli.pipeline.running import hush  # noqa: PLC0415 - needs Spark
    from penstock.pipeline.session import session  # noqa: PLC0415

    log = folder / LOG
    hush(log)
    confs = {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
    }
    with ExitStack() as running:
        with screen.working("starting Spark"):
            spark = running.enter_context(session("penstock demo", "local[2]", confs, log=log))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark has taken it for itself
        yield spark


@contextmanager
def without_spark_errors(folder: Path) -> Iterator[None]:
    """Send what PySpark's threads write when a JVM is ended in their midst to Spark's log."""
    with (folder / LOG).open("a", encoding="utf-8") as unseen, redirect_stderr(unseen):
        yield
