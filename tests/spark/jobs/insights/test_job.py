"""The whole job: from a real server into tables and topics, again and again."""

import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.lake import InvalidLake
from penstock.model import Reason
from penstock.spark.jobs import Report
from penstock.spark.jobs.insights import InsightsOptions, insights
from penstock.spark.jobs.insights.state import InsightsStore
from penstock.spark.jobs.run import NoProgress, run
from penstock.spark.tables import read_table
from tests.spark.jobs.insights.conftest import MovedServer


class Counting(NoProgress):
    """Tells a job to stop when it has done so many batches."""

    def __init__(self, batches: int, stopping: threading.Event) -> None:
        self._batches = batches
        self._stopping = stopping

    def show(self, text: str) -> None:
        self._batches -= 1
        if not self._batches:
            self._stopping.set()


class Watcher:
    """Runs the job again and again, as its schedule would."""

    def __init__(self, spark: SparkSession, server: MovedServer, lake: Path) -> None:
        self._spark = spark
        self._server = server
        self.lake = lake

    def run(self, **other: Any) -> Report:
        """To the end of the log."""
        return run(partial(insights, self._options(**other)), self._spark)

    def run_batches(self, batches: int, **other: Any) -> Report:
        """Until so many batches are done."""
        stopping = threading.Event()
        job = partial(insights, self._options(**other))
        return run(job, self._spark, Counting(batches, stopping), stopping)

    def _options(self, **other: Any) -> InsightsOptions:
        return InsightsOptions(lake=str(self.lake), server={"address": self._server.address}, **other)

    def rows(self, name: str, grain: str = "10s") -> list[Any]:
        """The rows of a table, as any query of Spark sees them."""
        table = read_table(self._spark, None, InsightsStore(str(self.lake)).tables[name])
        return table.where(table.grain == grain).orderBy("window_start").collect()


@pytest.fixture
def watcher(spark: SparkSession, moved_server: MovedServer, tmp_path: Path) -> Watcher:
    return Watcher(spark, moved_server, tmp_path / "lake")


def publish(server: MovedServer, topics: list[str], count: int) -> None:
    """Publish some messages, in one window, and let a minute pass."""
    server.publish_numbers(topics, count)
    server.advance(60)


def test_what_a_server_has_becomes_tables_once_however_often_the_job_runs(
    watcher: Watcher, moved_server: MovedServer
) -> None:
    moved_server.lose("plant/a", 7, Reason.EXPIRED)
    for _ in range(3):
        publish(moved_server, ["plant/a", "yard/b"], 40)
    first = watcher.run(batch_rows=50, publish=True)
    assert first.facts["messages"] == 121  # one of them tells what was not delivered
    assert (first.facts["batches"], first.facts["late_messages"]) == (3, 0)
    assert watcher.run().facts["messages"] == 0  # there is nothing new
    publish(moved_server, ["plant/a"], 10)
    moved_server.publish_numbers(["plant/a"], 1)  # so that the window before is over
    second = watcher.run(publish=True)
    assert (second.facts["messages"], second.facts["all_messages"]) == (11, 132)

    counts: Counter[str] = Counter()
    for row in watcher.rows("topics"):
        counts[row.topic] += row.messages
        assert (row.missing, row.missing_before) == (0, 0)
        assert 0 <= row.latency_p50_ms <= row.latency_p99_ms <= row.max_latency_us / 1000
    assert counts == {"plant/a": 70, "yard/b": 60}
    assert [row.messages for row in watcher.rows("topics", "1m")] == [20] * 6
    assert [(row.reason, row.messages) for row in watcher.rows("drops")] == [("expired", 7)]
    assert {row.prefix for row in watcher.rows("prefixes")} == {"plant", "yard"}
    assert {(row.rank, row.share) for row in watcher.rows("clients")} == {(1, 1.0)}
    with moved_server.client() as client:
        told = client.messages("$penstock/insights/hot/10s", last=100).messages
    assert [window.data["rows"][0]["messages"] for window in told] == [20, 20, 20, 10]


def test_a_job_that_is_told_to_stop_finishes_its_batch_and_goes_on_later(
    watcher: Watcher, moved_server: MovedServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        publish(moved_server, ["a"], 10)
    stopped = watcher.run_batches(1, batch_rows=10)
    assert (stopped.was_stopped, stopped.facts["batches"], stopped.facts["messages"]) == (True, 1, 10)
    assert caplog.messages == []
    # What Spark had planned when it was stopped comes first, ten messages, and then the rest.
    following = watcher.run_batches(2, batch_rows=1000, follow=True, interval_s=0.1)
    assert (following.was_stopped, following.facts["messages"]) == (True, 30)
    assert [row.messages for row in watcher.rows("topics")] == [10, 10, 10]
    assert [row["rows"] for row in following.tables["tables"] if row["table"] == "balance"] == [5]


def test_what_is_wrong_with_a_batch_is_told_as_it_was_raised(
    watcher: Watcher, moved_server: MovedServer
) -> None:
    publish(moved_server, ["a"], 10)
    watcher.run()
    moved_server.publish_numbers(["a"], 10)
    checkpoint = watcher.lake / "_checkpoints"
    checkpoint.rename(watcher.lake / "elsewhere")
    with pytest.raises(InvalidLake, match="belongs to a checkpoint that no longer exists"):
        watcher.run()
