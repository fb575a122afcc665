"""A server that goes on from a backup, behind a lake that has more than that: nothing of either is lost."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.jobs.archive import writers
from penstock.storage.disk.backup import write_backup
from penstock.storage.disk.snapshot import open_snapshot
from tests.spark.faults.proving import wrong_with
from tests.spark.faults.restarting import Phoenix
from tests.spark.jobs.test_archive import Archiver, run_here

TOPICS = ["plant/1", "plant/2", "plant/3"]


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[Phoenix]:
    made = Phoenix(tmp_path / "server")
    yield made
    made.stop()


def copy_data(source: Path, target: Path) -> None:
    """What `penstock log backup` and `restore` do."""
    with open_snapshot(source) as snapshot:
        write_backup(snapshot, target)


def restore(phoenix: Phoenix, backup: Path) -> None:
    """Stop the server, put the backup in the place of its data, and start it."""
    phoenix.stop()
    shutil.rmtree(phoenix.data)
    copy_data(backup, phoenix.data)
    phoenix.server = phoenix.rise()


def test_a_lake_goes_on_behind_a_restored_server_and_is_found_to_be_whole(
    phoenix: Phoenix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "run_tasks", run_here)
    archiver = Archiver(tmp_path / "lake", phoenix.server)
    phoenix.server.publish_numbers(TOPICS, 60)
    copy_data(phoenix.data, tmp_path / "backup")
    phoenix.server.publish_numbers(TOPICS, 30)
    archiver.run()
    phoenix.stop()
    phoenix.server = phoenix.rise()  # the original has one more epoch than the backup
    phoenix.server.publish_numbers(TOPICS, 30)
    archiver.run()

    for count in (12, 300):  # fewer than were lost, so that the log is behind the lake; then more
        before = archiver.rows()
        restore(phoenix, tmp_path / "backup")
        receipts = phoenix.server.publish_numbers(TOPICS, count)
        archiver.run()
        assert wrong_with(archiver.lake, phoenix.server) == []
        rows = archiver.rows()
        assert [row for row in rows if row in before] == before
        new = {(row["topic"], row["sequence"]) for row in rows if row not in before}
        assert new >= {(each.topic, each.sequence) for each in receipts}
    assert len({(row["topic"], row["epoch"], row["sequence"]) for row in rows}) == len(rows)
