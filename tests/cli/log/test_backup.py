"""`penstock log backup` and `restore`: a data directory of one moment, complete or not there at all."""

import asyncio
import os
import stat
from pathlib import Path

import msgspec
import pytest

from penstock.common.cursor import Cursor, Position
from penstock.errors import InvalidConfig
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.recovery.opening import open_store
from tests.cli.log.conftest import Run
from tests.support.data_directories import OpenLog, digest, messages, scribble, write


def test_a_backup_has_every_message_and_leaves_the_original_alone(
    run: Run, data: Path, tmp_path: Path
) -> None:
    before = digest(data)
    ended = run("backup", data, tmp_path / "copy")
    assert (ended.code, ended.err) == (0, "")
    copied = "copied 9 messages up to offset 9, 0 sessions, 0 retained values"
    assert ended.out == f"{copied}: a backup is in {tmp_path / 'copy'}\n"
    assert digest(data) == before
    assert run("read", tmp_path / "copy").out == run("read", data).out
    assert run("verify", tmp_path / "copy").code == 0


def test_a_backup_is_made_beside_a_running_server(run: Run, data: Path, tmp_path: Path) -> None:
    async def live() -> None:
        opened = OpenLog(data)
        await opened.commit(messages("xyz"))
        assert run("backup", data, tmp_path / "copy").code == 0
        await opened.commit(messages("z"))
        opened.log.close()

    asyncio.run(live())
    assert run("read", tmp_path / "copy").offsets == [*range(1, 13)]
    assert run("read", data).offsets == [*range(1, 14)]


def test_what_is_told_to_programs(run: Run, data: Path, tmp_path: Path) -> None:
    facts = msgspec.json.decode(run("backup", data, tmp_path / "copy", "-o", "json").out)
    epoch = facts.pop("epoch")
    log_id = msgspec.json.decode(run("info", data, "-o", "json").out)["log_id"]
    assert facts == {
        "path": str(tmp_path / "copy"),
        "log_id": log_id,
        "first_offset": 1,
        "last_offset": 9,
        "messages": 9,
        "sessions": 0,
        "retained": 0,
        "missing": [],
    }
    mark = DurableMark.read(tmp_path / "copy")
    assert mark is not None and (mark.offset, mark.epoch) == (9, epoch)


def test_only_the_owner_can_enter_a_backup(run: Run, data: Path, tmp_path: Path) -> None:
    assert run("backup", data, tmp_path / "copy").code == 0
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


def test_a_restored_log_goes_on_after_the_last_offset(run: Run, data: Path, tmp_path: Path) -> None:
    assert run("backup", data, tmp_path / "copy").code == 0
    ended = run("restore", tmp_path / "copy", tmp_path / "restored")
    assert ended.out.endswith(f": a server can start on {tmp_path / 'restored'}\n")
    write(tmp_path / "restored", messages("a"))
    assert run("read", tmp_path / "restored").offsets == [*range(1, 11)]
    assert run("verify", tmp_path / "restored").code == 0


def test_a_cursor_from_after_the_backup_is_told_that_what_it_saw_is_gone(
    run: Run, data: Path, tmp_path: Path
) -> None:
    assert run("backup", data, tmp_path / "copy").code == 0
    write(data, messages("abc"))  # the original goes on, in an epoch of its own
    write(tmp_path / "copy", messages("xyz"))
    facts = msgspec.json.decode(run("info", data, "-o", "json").out)
    seen = Cursor((Position(facts["log_id"], facts["epochs"][-1]["number"], 11),))
    ended = run("read", tmp_path / "copy", "--after", seen.encode(), "-o", "json")
    assert ended.statement["gaps"] == [{"first": 10, "last": 11, "reason": "lost-uncommitted"}]
    assert [row["topic"] for row in ended.rows] == ["x", "y", "z"]
    assert ended.code == 3


def test_a_backup_of_a_damaged_directory_has_the_rest_and_says_what_is_missing(
    run: Run, settled: Path, tmp_path: Path
) -> None:
    scribble(settled)
    ended = run("backup", settled, tmp_path / "copy")
    assert ended.code == 3
    assert ended.out.startswith("missing: a part of the database cannot be read: ")
    assert run("read", tmp_path / "copy", "--from-offset", 7).offsets == [7, 8, 9]


def test_what_was_lost_long_ago_does_not_make_a_backup_incomplete(
    run: Run, settled: Path, tmp_path: Path
) -> None:
    scribble(settled)
    run("repair", settled)
    write(settled, messages("a"))  # the next start, from which on the loss is known
    assert run("backup", settled, tmp_path / "copy").code == 0
    assert run("verify", tmp_path / "copy").out.startswith("known: ")


@pytest.mark.parametrize(
    ("name", "words"),
    [("file", "not empty"), ("data/inside", "is inside of"), ("no/where", "no: no such directory")],
)
def test_a_place_that_cannot_be_used_is_refused_before_anything_is_read(
    run: Run, data: Path, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "file").write_text("mine")
    before = digest(tmp_path)
    ended = run("backup", data, tmp_path / name)
    assert (ended.code, words in ended.err) == (1, True), ended.err
    assert digest(tmp_path) == before


def test_a_directory_with_something_in_it_is_not_replaced(run: Run, data: Path, tmp_path: Path) -> None:
    assert run("backup", data, tmp_path / "copy").code == 0
    before = digest(tmp_path / "copy")
    assert "not empty" in run("restore", data, tmp_path / "copy").err
    assert digest(tmp_path / "copy") == before


def test_an_empty_directory_stays_the_one_it_is_because_a_disk_may_be_mounted_there(
    run: Run, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy" / "lost+found").mkdir(parents=True)
    before = (tmp_path / "copy").stat()
    assert run("backup", data, tmp_path / "copy").code == 0
    after = (tmp_path / "copy").stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert sorted(entry.name for entry in (tmp_path / "copy").iterdir()) == [
        "lost+found",
        "mark",
        "penstock.json",
        "rocksdb",
    ]
    assert stat.S_IMODE((tmp_path / "copy" / "rocksdb").stat().st_mode) == 0o700
    assert run("verify", tmp_path / "copy").code == 0


def test_a_link_to_an_empty_directory_leads_there(run: Run, data: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "copy").symlink_to("disk")
    assert run("restore", data, tmp_path / "copy").code == 0
    assert run("read", tmp_path / "disk").offsets == [*range(1, 10)]


@pytest.mark.parametrize("last", ["rocksdb", "mark"])
def test_no_server_starts_on_a_copy_that_was_cut_short(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    (tmp_path / "copy").mkdir()
    rename = Path.rename

    def end_after_last(source: Path, target: Path) -> Path:
        renamed = rename(source, target)
        if source.name == last:
            raise OSError(5, os.strerror(5))
        return renamed

    monkeypatch.setattr(Path, "rename", end_after_last)
    assert run("restore", data, tmp_path / "copy").code == 1
    with pytest.raises(InvalidConfig, match="not empty, and not a data directory"):
        open_store(tmp_path / "copy")


def test_nothing_is_restored_from_where_a_server_runs(run: Run, data: Path, tmp_path: Path) -> None:
    async def live() -> None:
        opened = OpenLog(data)
        assert "in use by a server" in run("restore", data, tmp_path / "copy").err
        opened.log.close()

    asyncio.run(live())
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_nothing_is_left_of_a_backup_that_failed(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if is_there:
        (tmp_path / "copy").mkdir()

    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("penstock.storage.disk.backup.write_header", fail)
    ended = run("backup", data, tmp_path / "copy")
    assert (ended.code, f"{tmp_path / 'copy'}: No space left" in ended.err) == (1, True), ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"][not is_there :]
    assert not is_there or not any((tmp_path / "copy").iterdir())
