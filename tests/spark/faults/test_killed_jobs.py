"""Jobs that are killed wherever they are: the lake is whole all the time, and the next run completes it."""

from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.lake import lake_messages
from penstock.spark.connection import Connection
from penstock.spark.jobs.archive import ArchiveOptions, archive
from penstock.spark.jobs.audit import AuditOptions, audit
from penstock.spark.jobs.run import run
from tests.fuzz.seeds import new_dice
from tests.spark.faults.killing import JobProcess, Moment, after, draft_appears, file_appears, version_appears
from tests.spark.faults.proving import wrong_with
from tests.spark.faults.publishing import Publishing
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLED_IN_SUITE = ["archive", "compact"]
KILLED_IN_SOAK = ["archive", "archive", "archive", "compact"] * 5
WITHIN_S = {"archive": 1.5, "compact": 0.05}
"""A compaction is over soon."""


def moment_for(job: str, table: Path, dice: Random) -> tuple[str, Moment]:
    """Something that can be seen in the lake, or some time after it."""
    name, look = dice.choice([("draft", draft_appears), ("file", file_appears), ("version", version_appears)])
    moment = look(table)
    if dice.random() < 0.5:
        return name, moment
    seconds = dice.random() * WITHIN_S[job]
    return f"{seconds:.3f} s after {name}", after(moment, seconds)


@pytest.mark.timeout(1800)
def test_whenever_jobs_are_killed_the_lake_is_whole_and_the_next_run_completes_it(
    spark: "SparkSession", lake_server: LogServer, tmp_path: Path, scale: int, name: str
) -> None:
    dice = new_dice()
    lake = tmp_path / "lake"
    table = lake_messages(lake)
    follow = ["--address", lake_server.address, "--batch-rows", "150", "--follow", "--interval", "0.1"]
    words = {"archive": ["archive", *follow], "compact": ["compact"]}
    server = {"address": lake_server.address}
    catching_up = partial(archive, ArchiveOptions(lake=str(lake), server=server))
    published = 0
    jobs = list(KILLED_IN_SUITE if scale == 1 else KILLED_IN_SOAK)
    for number, job in enumerate(jobs):
        for _ in range(2 if job == "compact" else 0):  # so that there is something to compact
            published += len(lake_server.publish_numbers([f"{name}/{each}" for each in range(9)], 90))
            run(catching_up, spark)
        told, moment = moment_for(job, table.path, dice)
        print(f"{job}: to be killed at {told}")
        with Publishing(lake_server, name) as publishing:
            process = JobProcess(tmp_path / f"job-{number}", *words[job], "--lake", str(lake))
            if not process.is_killed_at(moment):
                jobs.append(job)  # some moments are short, and a busy machine may miss one: once more
        published += publishing.published
        assert wrong_with(lake, lake_server) == [], process.printed

    run(catching_up, spark)
    report = run(
        partial(audit, AuditOptions(lake=str(lake), connection=Connection(address=lake_server.address))),
        spark,
    )
    assert report.is_clean, report.tables
    assert report.facts["compared"]["rows"] == report.facts["rows"] >= published
