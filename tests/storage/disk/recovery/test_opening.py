"""Opening a data directory: one writing process, known formats, any state of the files."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Timer

import pytest

from penstock.errors import InvalidConfig, StorageUnavailable
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.recovery.opening import Opening, is_served, open_store
from penstock.storage.disk.recovery.survey import survey
from penstock.storage.disk.rocksdb.errors import SalvageMethod, StorageFull
from penstock.storage.disk.rocksdb.layout import (
    DATABASE_FOLDER,
    HEADER_FILE,
    LOCK_FILE,
    ROWS,
    STATE,
    offset_key,
)
from penstock.storage.disk.rocksdb.store import Changes, Store
from tests.storage.disk.damage import flip_bit, flip_byte, table_of
from tests.storage.disk.written_log import WrittenLog, payload, read_piece

LAST = 750

OPEN_AND_WAIT = """
import sys
from pathlib import Path
from penstock.storage.disk.recovery.opening import open_store
store, _ = open_store(Path(sys.argv[1]))
print("opened", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has a directory open."""
    command = [sys.executable, "-c", OPEN_AND_WAIT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opened\n"
        yield process
        process.kill()


def content_of(path: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file with its bytes and when it was changed."""
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}


def open_and_close(path: Path) -> Opening:
    store, opening = open_store(path)
    store.close()
    return opening


def read_everything(store: Store) -> dict[int, bytes]:
    found = survey(store, None)
    return {
        offset: data for piece in found.index.after(0) for offset, data in read_piece(store, piece).items()
    }


# Whose directory is it?


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    store, opening = open_store(path)
    store.close()
    assert opening == Opening(is_new=True)
    assert opening.notes == ()
    assert {entry.name for entry in path.iterdir()} == {HEADER_FILE, LOCK_FILE, DATABASE_FOLDER}


def test_the_log_keeps_its_id_and_what_is_in_it(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    changes = Changes()
    changes.put(ROWS, b"a", b"1")
    store.write(changes, sync=True)
    store.close()
    again, opening = open_store(tmp_path)
    assert opening == Opening(is_new=False)
    assert again.log_id == store.log_id
    assert again.get(ROWS, [b"a"]) == [b"1"]
    again.close()


def test_two_logs_have_different_ids(tmp_path: Path) -> None:
    stores = [open_store(tmp_path / name)[0] for name in ("one", "other")]
    assert stores[0].log_id != stores[1].log_id
    for store in stores:
        store.close()


def test_a_second_process_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        refusal = rf"data_dir: .* is in use by another process.*{process.pid}.* Stop that, or .*--data-dir"
        with pytest.raises(InvalidConfig, match=refusal):
            open_store(tmp_path)
        with pytest.raises(InvalidConfig):
            open_store(tmp_path)


def test_a_directory_is_free_when_its_process_is_killed(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert open_and_close(tmp_path).notes == ()


def test_a_second_opening_by_the_same_process_is_refused(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    with pytest.raises(InvalidConfig, match="in use"):
        open_store(tmp_path)
    store.close()
    open_and_close(tmp_path)


@pytest.mark.parametrize(
    "header", [{"format": 2, "log_id": "ab"}, {"format": 99, "log_id": "ab", "more": []}]
)
def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path, header: dict[str, object]) -> None:
    open_and_close(tmp_path)
    (tmp_path / HEADER_FILE).write_text(json.dumps(header))
    before = content_of(tmp_path / DATABASE_FOLDER)
    for read_only in (False, True):
        with pytest.raises(InvalidConfig, match=f"data_dir: .*format {header['format']}"):
            open_store(tmp_path, read_only=read_only)
    assert content_of(tmp_path / DATABASE_FOLDER) == before
    assert json.loads((tmp_path / HEADER_FILE).read_text()) == header


@pytest.mark.parametrize("name", ["notes.txt", "CURRENT", "rocksdb", "mark"])
def test_a_directory_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(InvalidConfig, match=r"data_dir: .* not a data directory"):
        open_store(tmp_path)
    with pytest.raises(InvalidConfig, match=r"data_dir: .* not a data directory"):
        open_store(tmp_path, read_only=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "precious")]


def test_a_fresh_file_system_is_as_good_as_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert open_and_close(tmp_path).is_new


def test_a_start_that_was_killed_early_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("1234\n")
    (tmp_path / f"{HEADER_FILE}.new").write_text("{")
    assert open_and_close(tmp_path).is_new
    assert not open_and_close(tmp_path).is_new


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="data_dir"):
        open_store(tmp_path / "file")
    with pytest.raises(InvalidConfig, match="data_dir"):
        open_store(tmp_path / "file", read_only=True)


def test_a_start_on_a_full_disk_is_refused_and_works_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8 << 20))
    with pytest.raises(StorageFull):
        open_store(small_disk / "data")
    ballast.unlink()
    open_and_close(small_disk / "data")


# Damage


@pytest.fixture
def written(tmp_path: Path) -> WrittenLog:
    """A log, and what a killed process left of it: 100 messages sealed, 150 in a table, 500 in no table."""
    log = WrittenLog(tmp_path / "live")
    for _ in range(20):
        log.commit(5)
    log.seal()
    for _ in range(30):
        log.commit(5)
    log.settle()
    for _ in range(100):
        log.commit(5)
    log.leave(tmp_path / "killed")
    log.path = tmp_path / "killed"
    return log


def database_file(log: WrittenLog, pattern: str) -> Path:
    """The newest file of a kind."""
    return max((log.path / DATABASE_FOLDER).glob(pattern))


def everything(last: int) -> dict[int, bytes]:
    return {offset: payload(offset) for offset in range(1, last + 1)}


def test_what_a_killed_process_left_is_complete(written: WrittenLog) -> None:
    store, opening = open_store(written.path)
    assert opening.notes == ()
    assert read_everything(store) == everything(LAST)
    assert {key: store.get(STATE, [key])[0] for key in written.state} == written.state
    store.close()


def test_a_damaged_record_of_the_write_ahead_log_is_skipped_and_kept_aside(written: WrittenLog) -> None:
    wal = database_file(written, "*.log")
    flip_byte(wal, wal.read_bytes().index(payload(480)))
    store, opening = open_store(written.path)
    assert opening.salvage is not None
    assert opening.salvage.method is SalvageMethod.SKIPPED
    assert opening.salvage.aside.name.startswith("rocksdb-damaged-")
    assert (opening.salvage.aside / wal.name).exists()
    assert opening.notes
    (gap,) = survey(store, DurableMark.read(written.path)).damage
    assert gap.first == 476
    assert 480 <= gap.last < 700  # RocksDB skips 32 KB at most
    assert read_everything(store) == {
        offset: data for offset, data in everything(LAST).items() if not gap.first <= offset <= gap.last
    }
    store.close()
    assert open_and_close(written.path).notes == ()


def test_a_write_ahead_log_cut_below_the_mark_is_noticed(written: WrittenLog) -> None:
    wal = database_file(written, "*.log")
    os.truncate(wal, wal.read_bytes().index(payload(440)))
    store, opening = open_store(written.path)
    assert opening.notes == ()  # a torn tail is nothing special
    found = survey(store, DurableMark.read(written.path))
    assert [(gap.first, gap.last) for gap in found.damage] == [(436, LAST)]
    assert found.is_state_behind
    store.close()


def test_a_missing_write_ahead_log_is_noticed(written: WrittenLog) -> None:
    database_file(written, "*.log").unlink()
    store, _ = open_store(written.path)
    found = survey(store, DurableMark.read(written.path))
    assert [(gap.first, gap.last) for gap in found.damage] == [(251, LAST)]
    assert found.is_state_behind
    assert read_everything(store) == everything(250)
    store.close()


@pytest.mark.parametrize("noise", [bytes(5_000), Random(1).randbytes(5_000)], ids=["zeros", "noise"])
def test_what_is_appended_to_the_write_ahead_log_does_no_harm(written: WrittenLog, noise: bytes) -> None:
    wal = database_file(written, "*.log")
    wal.write_bytes(wal.read_bytes() + noise)
    store, _ = open_store(written.path)
    assert survey(store, DurableMark.read(written.path)).damage == ()
    assert read_everything(store) == everything(LAST)
    store.close()


def flip_manifest(log: WrittenLog) -> None:
    flip_bit(database_file(log, "MANIFEST-*"), Random(1))


def remove_manifest(log: WrittenLog) -> None:
    database_file(log, "MANIFEST-*").unlink()


def remove_current(log: WrittenLog) -> None:
    database_file(log, "CURRENT").unlink()


def spoil_current(log: WrittenLog) -> None:
    database_file(log, "CURRENT").write_text("MANI")


@pytest.mark.parametrize("harm", [flip_manifest, remove_manifest, remove_current, spoil_current])
def test_without_a_manifest_everything_is_found_again(
    written: WrittenLog, harm: Callable[[WrittenLog], None]
) -> None:
    harm(written)
    store, opening = open_store(written.path)
    assert opening.salvage is not None
    assert opening.salvage.method is SalvageMethod.REPAIRED
    assert survey(store, DurableMark.read(written.path)).damage == ()
    assert read_everything(store) == everything(LAST)
    assert {key: store.get(STATE, [key])[0] for key in written.state} == written.state
    store.close()


def test_tables_alone_are_not_taken_for_a_new_database(written: WrittenLog) -> None:
    store, _ = open_store(written.path)
    store.close()  # now everything is in tables
    for path in (written.path / DATABASE_FOLDER).iterdir():
        if path.suffix != ".sst":
            path.unlink()
    store, opening = open_store(written.path)
    assert opening.salvage is not None
    assert read_everything(store) == everything(LAST)
    store.close()


def test_a_missing_table_takes_only_its_own_with_it(written: WrittenLog) -> None:
    table_of(written.path, ROWS).unlink()
    store, opening = open_store(written.path)
    assert opening.salvage is not None
    assert opening.salvage.method is SalvageMethod.REPAIRED
    found = survey(store, DurableMark.read(written.path))
    assert [(gap.first, gap.last) for gap in found.damage] == [(101, 250)]
    assert read_everything(store) == {
        offset: data for offset, data in everything(LAST).items() if not 101 <= offset <= 250
    }
    store.close()
    assert open_and_close(written.path).notes == ()


def test_if_nothing_can_be_read_it_starts_empty_and_all_is_lost_up_to_the_mark(written: WrittenLog) -> None:
    for path in (written.path / DATABASE_FOLDER).iterdir():
        path.write_bytes(b"nonsense")
    store, opening = open_store(written.path)
    assert opening.salvage is not None
    assert opening.salvage.method is SalvageMethod.REPAIRED
    found = survey(store, DurableMark.read(written.path))
    assert [(gap.first, gap.last) for gap in found.damage] == [(1, LAST)]
    assert (found.epoch, found.last_offset, found.is_state_behind) == (1, LAST, True)
    store.close()


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_lost_header_is_written_again_with_the_same_id(written: WrittenLog, is_missing: bool) -> None:
    header = written.path / HEADER_FILE
    if is_missing:
        header.unlink()
    else:
        flip_byte(header, 5)
    store, opening = open_store(written.path)
    assert store.log_id == written.store.log_id
    assert opening.is_header_restored
    assert opening.notes
    store.close()
    assert open_and_close(written.path) == Opening(is_new=False)


def test_a_flipped_format_number_is_damage_and_no_newer_format(written: WrittenLog) -> None:
    header = written.path / HEADER_FILE
    header.write_text(header.read_text().replace('"format":1', '"format":3'))
    store, opening = open_store(written.path)
    assert opening.is_header_restored
    store.close()


def test_a_salvage_that_was_killed_before_its_end_is_forgotten(written: WrittenLog) -> None:
    draft = written.path / f"{DATABASE_FOLDER}.draft"
    draft.mkdir()
    (draft / "CURRENT").write_text("MANIFEST-000001\n")
    store, opening = open_store(written.path)
    assert opening.notes == ()
    assert read_everything(store) == everything(LAST)
    assert not draft.exists()
    store.close()


def test_a_salvage_that_was_killed_at_its_end_is_finished(written: WrittenLog) -> None:
    folder = written.path / DATABASE_FOLDER
    folder.rename(written.path / f"{DATABASE_FOLDER}.draft")
    store, _ = open_store(written.path)
    assert read_everything(store) == everything(LAST)
    store.close()


# Reading only


def test_a_running_log_can_be_followed_and_nothing_is_written_to_it(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.commit(5)
    before = content_of(tmp_path)
    reader, opening = open_store(tmp_path, read_only=True)
    assert reader.is_read_only
    assert (reader.log_id, opening.notes) == (log.store.log_id, ())
    assert read_everything(reader) == everything(5)
    assert content_of(tmp_path) == before
    log.commit(5)
    assert read_everything(reader) == everything(5)
    reader.catch_up()
    assert read_everything(reader) == everything(10)
    log.seal()
    log.settle()  # new files for everything
    log.commit(5)
    reader.catch_up()
    assert read_everything(reader) == everything(15)
    reader.close()
    log.close()


def test_a_read_only_store_refuses_writes(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    store, _ = open_store(tmp_path, read_only=True)
    changes = Changes()
    changes.put(ROWS, offset_key(1), b"")
    with pytest.raises(StorageUnavailable, match="read-only"):
        store.write(changes, sync=True)
    store.close()


def test_several_can_read_while_one_writes(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path)
    log.commit(5)
    readers = [open_store(tmp_path, read_only=True)[0] for _ in range(3)]
    log.commit(5)
    for reader in readers:
        reader.catch_up()
        assert read_everything(reader) == everything(10)
        reader.close()
    log.close()


def test_what_a_killed_process_left_can_be_read_without_touching_it(written: WrittenLog) -> None:
    before = content_of(written.path)
    store, opening = open_store(written.path, read_only=True)
    assert opening.notes == ()
    assert read_everything(store) == everything(LAST)
    store.close()
    assert content_of(written.path) == before


def test_a_damaged_log_can_be_read_without_touching_it(written: WrittenLog) -> None:
    wal = database_file(written, "*.log")
    flip_byte(wal, wal.read_bytes().index(payload(480)))
    before = content_of(written.path)
    store, opening = open_store(written.path, read_only=True)
    assert opening.salvage is not None
    assert 500 < len(read_everything(store)) < LAST
    store.close()
    assert content_of(written.path) == before


def test_reading_leaves_nothing_behind(
    written: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    store, _ = open_store(written.path, read_only=True)
    assert list(scratch.iterdir())
    store.close()
    assert not list(scratch.iterdir())


def test_a_directory_that_does_not_exist_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="not a data directory"):
        open_store(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()


def test_a_new_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "data")
    store.close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_directory_is_served_while_it_is_open_to_write(tmp_path: Path) -> None:
    assert not is_served(tmp_path)
    store, _ = open_store(tmp_path / "data")
    assert is_served(tmp_path / "data")
    store.close()
    assert not is_served(tmp_path / "data")


def test_a_directory_that_is_read_is_not_served(tmp_path: Path) -> None:
    open_store(tmp_path / "data")[0].close()
    reader, _ = open_store(tmp_path / "data", read_only=True)
    assert not is_served(tmp_path / "data")
    reader.close()


def test_a_server_starts_during_a_call_of_is_served(tmp_path: Path) -> None:
    open_store(tmp_path)[0].close()
    asking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    Timer(0.02, os.close, [asking]).start()
    open_store(tmp_path)[0].close()


def test_several_may_ask_at_once(tmp_path: Path) -> None:
    open_store(tmp_path)[0].close()
    asking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert not is_served(tmp_path)
    os.close(asking)
