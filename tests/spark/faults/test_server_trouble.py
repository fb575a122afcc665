"""Servers that are killed while they are read, and logs that let go of what was not read yet."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from penstock.lake import lake_messages
from penstock.spark.connection import Connection
from penstock.spark.errors import DataLoss
from penstock.spark.jobs.archive import ArchiveOptions, archive
from penstock.spark.jobs.audit import AuditOptions, audit
from penstock.spark.jobs.run import run
from penstock.spark.source.positions import position_of
from tests.spark.faults.proving import wrong_with
from tests.spark.faults.restarting import Phoenix
from tests.spark.servers import LogServer
from tests.support.servers import Settings
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RangeEnd = tuple[str, int, int, int]
TOPICS = [f"plant/{number}" for number in range(8)]
WAIT_S = 120.0


LITTLE: Settings = {"log": {"retention_bytes": 200_000, "retention_s": 0}}


class LeftBehind(NamedTuple):
    """An archive that was stopped, while its server got more than it keeps."""

    server: LogServer
    lake: Path
    stopped_at: int


@pytest.fixture(scope="module", autouse=True)
def left_behind(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeftBehind]:
    """Made before all tests here: retention looks every ten seconds, and the others need these anyway."""
    folder = tmp_path_factory.mktemp("left-behind")
    phoenix = Phoenix(folder / "server", LITTLE)
    server, lake = phoenix.server, folder / "lake"
    server.publish_numbers(TOPICS, 400)
    run(
        partial(archive, ArchiveOptions(lake=str(lake), server={"address": server.address}, hold=False)),
        spark,
    )
    stopped_at = position_of(str(lake_messages(lake).manifest().cursor)).offset
    for _ in range(40):
        server.publish({"topic": topic, "payload": "x" * 5_000} for topic in TOPICS)
    yield LeftBehind(server, lake, stopped_at)
    phoenix.stop()


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[Phoenix]:
    phoenix = Phoenix(tmp_path / "server")
    yield phoenix
    phoenix.stop()


def rows_of(server: LogServer) -> list[RangeEnd]:
    """Which messages the log has, in its order."""
    with server.client() as client:
        columns = (
            client.read_log(filters=["plant/#"]).table().select(["topic", "epoch", "sequence", "offset"])
        )
    return [tuple(row.values()) for row in columns.to_pylist()]


def test_a_stream_goes_on_when_its_server_is_killed_and_comes_back(
    spark: "SparkSession", phoenix: Phoenix, tmp_path: Path
) -> None:
    phoenix.server.publish_numbers(TOPICS, 2_000)
    batches: dict[int, list[RangeEnd]] = {}
    has_begun = threading.Event()

    def take(frame: "DataFrame", batch: int) -> None:
        rows = frame.select("topic", "epoch", "sequence", "offset").collect()
        batches[batch] = [(row[0], row[1], row[2], row[3]) for row in rows]
        has_begun.set()

    frame = spark.readStream.format("penstock").options(
        address=phoenix.server.address,
        filter="plant/#",
        maxRowsPerTrigger="600",
        retryFor="60",
        hold="stream",
    )
    writer = (
        frame.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = writer.start()
    try:
        assert has_begun.wait(WAIT_S)
        phoenix.kill()
        phoenix.rise().publish_numbers(TOPICS, 1_000)
        wanted = rows_of(phoenix.server)
        deadline = time.monotonic() + WAIT_S
        while sum(map(len, batches.values())) < len(wanted):
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, query.lastProgress
            query.awaitTermination(1)
    finally:
        query.stop()
    assert len({epoch for _, epoch, _, _ in wanted}) == 2
    seen = [row for batch in sorted(batches) for row in sorted(batches[batch], key=lambda row: row[3])]
    assert seen == wanted


def test_an_archive_goes_on_when_the_server_is_killed_in_the_middle_of_a_batch(
    spark: "SparkSession", phoenix: Phoenix, tmp_path: Path
) -> None:
    """The server dies when rows are on their way, and is back before the archive has lost its patience."""
    phoenix.server.publish({"topic": topic, "payload": "x" * 20_000} for _ in range(50) for topic in TOPICS)
    lake = tmp_path / "lake"
    server = {"address": phoenix.server.address, "retryFor": "60"}
    options = ArchiveOptions(lake=str(lake), server=server, batch_rows=150)
    table = lake_messages(lake)

    def strike() -> None:
        until_sync(lambda: table.manifest().batch >= 1, "no batch was committed", timeout_s=120)
        phoenix.kill()
        phoenix.rise().publish_numbers(TOPICS, 200)

    striking = threading.Thread(target=strike)
    striking.start()
    run(partial(archive, options), spark)
    striking.join()
    run(partial(archive, options), spark)
    assert wrong_with(lake, phoenix.server) == []
    assert table.manifest().rows >= 600


def test_what_retention_took_from_a_stopped_archive_is_told_loudly_and_declared_if_that_is_accepted(
    spark: "SparkSession", left_behind: LeftBehind
) -> None:
    log_server, lake, stopped_at = left_behind
    server = {"address": log_server.address}
    options = ArchiveOptions(lake=str(lake), server=server, hold=False)
    with log_server.client() as client:
        deadline = time.monotonic() + WAIT_S
        while (gone := client.position("earliest").offset) <= stopped_at:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    with pytest.raises(
        DataLoss, match=rf"offsets {stopped_at + 1} to \d+ are no longer in the log \(retention\)"
    ):
        run(partial(archive, options), spark)
    assert position_of(str(lake_messages(lake).manifest().cursor)).offset == stopped_at

    accepting = ArchiveOptions(lake=str(lake), server=server, hold=False, keep_going=True)
    run(partial(archive, accepting), spark)
    audited = AuditOptions(lake=str(lake), connection=Connection(address=log_server.address))
    report = run(partial(audit, audited), spark)
    assert report.is_clean, report.tables
    assert {row["reason"] for row in report.tables["known"]} == {"retention"}
    assert {row["topic"] for row in report.tables["known"]} >= set(TOPICS)
    assert sum(row["messages"] for row in report.tables["known"]) <= gone
    strict = AuditOptions(lake=str(lake), is_strict=True)
    assert not run(partial(audit, strict), spark).is_clean
