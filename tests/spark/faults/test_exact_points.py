"""Jobs that end at one exact point: after reading, while writing, before and after their commit."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lake import Change, Manifest, Table, lake_messages
from penstock.spark.connection import Connection, StreamHold
from penstock.spark.errors import SparkFailed
from penstock.spark.jobs import compact as compacting
from penstock.spark.jobs.archive import ArchiveOptions, archive
from penstock.spark.jobs.archive.writers import ParquetWriter
from penstock.spark.jobs.audit import AuditOptions, audit
from penstock.spark.jobs.compact import CompactOptions, compact
from penstock.spark.jobs.run import run
from tests.spark.faults.proving import wrong_with
from tests.spark.servers import LogServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = [f"plant/{number}" for number in range(20)]


class Killed(BaseException):
    """What nobody handles: the process is gone."""


@contextmanager
def dying_in(owner: type | ModuleType, name: str, *, after: bool = False) -> Iterator[None]:
    """Let the process end when a function is called, or when it has just done its work."""
    work: Callable[..., Any] = getattr(owner, name)

    def die(*arguments: Any, **named: Any) -> None:
        if after:
            work(*arguments, **named)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, die)
        yield


@contextmanager
def dying_in_commit(*, after: bool) -> Iterator[None]:
    """Let the process end right before, or right after, a commit that adds files."""
    commit = Table.commit

    def die(table: Table, change: Callable[[Manifest], Change | None]) -> Manifest:
        wanted = change(table.manifest())
        if wanted is None or not wanted.added:
            return commit(table, change)
        if after:
            commit(table, change)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "commit", die)
        yield


@contextmanager
def failing_bucket(table: Table) -> Iterator[None]:
    """Let tasks fail in the middle of their writing: where a bucket has its folder there is a file."""
    today = datetime.now(UTC).date()
    folders = [table.path / f"date={today + timedelta(days)}" for days in (0, 1)]
    blocks = [folder / "bucket=05" for folder in folders]
    for block in blocks:
        block.parent.mkdir(parents=True, exist_ok=True)
        block.write_bytes(b"")
    yield
    for block in blocks:
        block.unlink()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_archives_and_compactions_that_end_anywhere_are_completed_by_the_next(
    spark: "SparkSession", lake_server: LogServer, lake: Path
) -> None:
    table = lake_messages(lake)
    job = partial(
        archive, ArchiveOptions(lake=str(lake), server={"address": lake_server.address}, batch_rows=700)
    )
    points: list[tuple[AbstractContextManager[None], type[BaseException]]] = [
        (dying_in(ParquetWriter, "write"), Killed),
        (failing_bucket(table), SparkFailed),
        (dying_in(ParquetWriter, "write", after=True), Killed),
        (dying_in_commit(after=False), Killed),
        (dying_in_commit(after=True), Killed),
        (dying_in(StreamHold, "move"), Killed),
    ]
    published = 0
    for point, error in points:
        published += len(lake_server.publish_numbers(TOPICS, 300))
        rows = table.manifest().rows
        with point, pytest.raises(error):
            run(job, spark)
        assert wrong_with(lake, lake_server) == []
        assert table.manifest().rows - rows <= 700  # a batch is there as a whole or not at all
    run(job, spark)

    archived = table.manifest()
    compaction = partial(compact, CompactOptions(lake=str(lake), grace_s=0))
    for point in (dying_in_commit(after=False), dying_in_commit(after=True), dying_in(compacting, "clean")):
        with point, pytest.raises(Killed):
            run(compaction, spark)
        assert table.manifest().rows == archived.rows
        assert wrong_with(lake, lake_server) == []
    run(compaction, spark)
    assert len(table.manifest().files) < len(archived.files)

    connection = Connection(address=lake_server.address)
    report = run(partial(audit, AuditOptions(lake=str(lake), connection=connection)), spark)
    assert report.is_clean, report.tables
    assert archived.rows == report.facts["rows"] == report.facts["compared"]["rows"] >= published
