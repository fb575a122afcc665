"""File watch: files that another program deletes are missing, those that the database removes are not."""

from pathlib import Path

import pytest

from penstock.errors import StorageUnavailable
from penstock.storage.disk.recovery.opening import open_store
from penstock.storage.disk.rocksdb.file_watch import FileWatch, Needed
from penstock.storage.disk.rocksdb.layout import ROWS, offset_key
from penstock.storage.disk.rocksdb.store import Changes, Store

NEEDED = Needed(frozenset({"000009.sst"}), 12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("CURRENT", "000009.sst", "000008.sst", "000011.log", "000012.log", "000013.log", "LOG"):
        (tmp_path / name).touch()
    for number in (4, 5):
        (tmp_path / f"MANIFEST-{number:06}").touch()
    (tmp_path / "CURRENT").write_text("MANIFEST-000005\n")
    return tmp_path


@pytest.mark.parametrize("name", ["CURRENT", "000009.sst", "000012.log", "000013.log", "MANIFEST-000005"])
def test_needed_files_are_missing_once_they_are_deleted(folder: Path, name: str) -> None:
    watch = FileWatch(folder)
    assert watch.find_missing(lambda: NEEDED) == []
    (folder / name).unlink()
    assert watch.find_missing(lambda: NEEDED) == [name]


@pytest.mark.parametrize("name", ["000008.sst", "000011.log", "LOG", "MANIFEST-000004"])
def test_files_that_are_not_needed_may_go(folder: Path, name: str) -> None:
    watch = FileWatch(folder)
    (folder / name).unlink()
    assert watch.find_missing(lambda: NEEDED) == []


def test_a_call_that_fails_forgets_nothing(folder: Path) -> None:
    def fail() -> Needed:
        raise StorageUnavailable("the database is not open")

    watch = FileWatch(folder)
    (folder / "000009.sst").unlink()
    with pytest.raises(StorageUnavailable):
        watch.find_missing(fail)
    assert watch.find_missing(lambda: NEEDED) == ["000009.sst"]


def test_a_folder_that_is_gone_or_another_is_missing(folder: Path, tmp_path: Path) -> None:
    database = tmp_path / "rocksdb"
    database.mkdir()
    watch = FileWatch(database)
    database.rename(tmp_path / "aside")
    assert watch.find_missing(lambda: NEEDED) == ["rocksdb"]
    database.mkdir()
    assert watch.find_missing(lambda: NEEDED) == ["rocksdb"]


def fill(store: Store, first: int) -> None:
    changes = Changes()
    for number in range(first, first + 100):
        changes.put(ROWS, offset_key(number), b"x" * 1_000)
    store.write(changes, sync=False)
    store.flush(ROWS)


def test_files_that_the_database_removes_are_not_missing(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    try:
        for first in range(0, 1_000, 100):
            fill(store, first)
            assert store.find_missing() == []
        before = set((tmp_path / "rocksdb").glob("*.sst"))
        removal = Changes()
        removal.delete_range(ROWS, offset_key(0), offset_key(900))
        store.write(removal, sync=False)
        store.flush(ROWS)
        store.compact(ROWS, offset_key(900))
        assert before - set((tmp_path / "rocksdb").glob("*.sst"))
        assert store.find_missing() == []
        (last,) = list((tmp_path / "rocksdb").glob("*.log"))[-1:]
        last.unlink()
        assert store.find_missing() == [last.name]
        (manifest,) = (tmp_path / "rocksdb").glob("MANIFEST-*")
        manifest.unlink()
        assert store.find_missing() == [manifest.name]
    finally:
        store.close()
