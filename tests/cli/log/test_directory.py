"""What every command of `penstock log` promises: it writes nothing, and says in one line what is wrong."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.extras import how_to_get
from penstock.storage.disk.rocksdb.layout import DATABASE_FOLDER, MARK_FILE, Header, write_header
from tests.cli.log.conftest import Run
from tests.support.data_directories import OpenLog, digest, messages, write

LOOKING = ("info", "tail", "read", "verify", "export")
COMMANDS = (*LOOKING, "repair")


def words_of(command: str, path: Path) -> list[str]:
    return [command, str(path), *([str(path.parent / "out.parquet")] if command == "export" else [])]


@pytest.mark.parametrize("command", LOOKING)
def test_nothing_in_the_directory_is_written(run: Run, data: Path, command: str) -> None:
    before = digest(data)
    assert run(*words_of(command, data)).code == 0
    assert digest(data) == before


@pytest.mark.parametrize("command", LOOKING)
async def test_beside_a_server_nothing_is_written_either(run: Run, data: Path, command: str) -> None:
    opened = OpenLog(data)
    await opened.commit(messages("a"))
    before = digest(data)
    assert run(*words_of(command, data)).code == 0
    assert digest(data) == before
    opened.log.close()


@pytest.mark.parametrize("command", LOOKING)
async def test_what_a_killed_server_leaves_can_be_read(
    run: Run, data: Path, tmp_path: Path, command: str
) -> None:
    opened = OpenLog(data)
    await opened.commit(messages("a"))
    left = tmp_path / "left"
    shutil.copytree(data, left)
    opened.log.close()
    before = digest(left)
    assert run(*words_of(command, left)).code == 0
    assert digest(left) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_there_is_told_in_one_line(run: Run, tmp_path: Path, command: str) -> None:
    missing = tmp_path / "missing"
    assert run(*words_of(command, missing)) == (1, "", f"error: {missing}: no such directory\n")
    assert not missing.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_told_in_one_line(run: Run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(*words_of(command, file)) == (1, "", f"error: {file}: this is not a directory\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_of_others_is_told_in_one_line(run: Run, tmp_path: Path, command: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letter.txt").write_text("dear all")
    before = digest(theirs)
    assert run(*words_of(command, theirs)) == (1, "", f"error: {theirs} is not a data directory\n")
    assert digest(theirs) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_newer_format_is_told_in_one_line(run: Run, data: Path, command: str) -> None:
    write_header(data, Header(999, "00" * 8))
    ended = run(*words_of(command, data))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"error: {data} has format 999, from a newer Penstock; this one knows 1\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_extra_is_told_in_one_line(
    run: Run, data: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    says = f"needs the extra `log`: {how_to_get('log')}"
    assert run(*words_of(command, data)) == (1, "", f"error: penstock log: {says}\n")


@pytest.mark.parametrize("command", LOOKING)
def test_a_missing_database_is_told_in_one_line(run: Run, data: Path, command: str) -> None:
    shutil.rmtree(data / DATABASE_FOLDER)
    lost = "everything up to offset 9 is lost unless it is put back"
    says = f"error: {data}: the database folder rocksdb/ is missing; {lost}\n"
    assert run(*words_of(command, data)) == (1, "", says)
    (data / MARK_FILE).unlink()
    says = says.replace("everything up to offset 9", "everything")
    assert run(*words_of(command, data)) == (1, "", says)


def test_what_cannot_be_read_is_told_without_temporary_folders(run: Run, data: Path) -> None:
    current = data / DATABASE_FOLDER / "CURRENT"
    current.unlink()
    current.mkdir()  # RocksDB takes this for a failing disk
    ended = run("info", data)
    assert ended.code == 1
    assert str(current) in ended.err and "/links/" not in ended.err and ended.err.count("\n") == 1


def test_the_overview_loads_neither_rocksdb_nor_arrow() -> None:
    script = (
        "import sys; from penstock.cli import build, COMMANDS; build(COMMANDS);"
        "print(sorted({'rocksdict', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_whoever_is_told_to_end_says_what_was_served_and_leaves_nothing_temporary(
    data: Path, tmp_path: Path, number: signal.Signals
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "penstock", "log", "tail", str(data), "--follow"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env={**os.environ, "TMPDIR": str(scratch)}, stdout=pipe, stderr=pipe
    ) as tail:
        assert tail.stdout is not None and tail.stderr is not None
        for _ in range(9):
            tail.stdout.readline()
        assert list(scratch.iterdir())
        tail.send_signal(number)
        assert tail.wait(20) == 0
        assert tail.stderr.read().startswith(b"served 9 messages; ")
    assert list(scratch.iterdir()) == []


def test_a_reader_that_has_had_enough_is_no_error(data: Path) -> None:
    words = [sys.executable, "-m", "penstock", "log", "tail", str(data), "--follow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None and tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        write(data, messages("a"))
        assert tail.wait(20) == 0
        assert tail.stderr.read() == b""
