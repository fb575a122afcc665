"""Snapshots of a data directory: late data, and the error texts of RocksDB."""

import tempfile
from pathlib import Path

import pytest

from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.snapshot import Snapshot, database_error_text
from tests.support.data_directories import messages, write


def test_what_is_not_seen_at_once_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    write(data, messages("ab"))
    store, opening = open_store(data, read_only=True)
    snapshot = Snapshot(store, opening)
    write(data, messages("a"))
    catch_up, tries = store.catch_up, list[None]()

    def overlook_once() -> None:
        if tries:
            catch_up()
        tries.append(None)

    monkeypatch.setattr(store, "catch_up", overlook_once)
    assert snapshot.refresh()
    store.close()
    assert (snapshot.last_offset, snapshot.index.last_offset, snapshot.damage) == (3, 3, ())


def test_what_rocksdb_says_is_about_the_files_of_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "my data"
    for seen in (
        f"{tempfile.gettempdir()}/penstock-a1b2_c3/links/",
        f"{tempfile.gettempdir()}/penstock-a1b2_c3/copy.draft.copy/",
        f"{directory}/rocksdb//",
        f"{directory}/rocksdb.draft/",
    ):
        words = f"Corruption: bad block in {seen}000012.sst offset 7\nand {seen}MANIFEST-000004"
        assert database_error_text(words, directory) == (
            f"Corruption: bad block in {directory}/rocksdb/000012.sst offset 7 "
            f"and {directory}/rocksdb/MANIFEST-000004"
        )
