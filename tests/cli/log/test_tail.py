"""`penstock log tail`: the newest messages, and those that come."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import SIGINT

import pytest

from penstock.common.cursor import Cursor
from penstock.storage.disk.rocksdb.layout import ROWS, offset_key
from tests.cli.log.conftest import Run
from tests.support.data_directories import OpenLog, change, messages, write


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("-n 2", [8, 9]),
        ("-n 3", [7, 8, 9]),
        ("-n 5", [5, 6, 7, 8, 9]),
        ("-n 0", []),
        ("", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("-n 2 a", [5, 8]),
        ("-n 3 a c", [5, 7, 8]),
        ("-n 3 nobody", []),
    ],
)
def test_the_last_messages_are_written(run: Run, data: Path, words: str, offsets: list[int]) -> None:
    ended = run("tail", data, *words.split())
    assert (ended.code, ended.offsets) == (0, offsets)


def test_ten_are_written_unless_someone_says_how_many(run: Run, data: Path) -> None:
    write(data, messages("abc"))
    assert run("tail", data).offsets == list(range(3, 13))


def test_an_empty_log_has_no_end(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data")
    ended = run("tail", tmp_path / "data")
    assert (ended.code, ended.out) == (0, "")


def test_what_is_no_filter_is_wrong_usage(run: Run, data: Path) -> None:
    assert run("tail", data, "a/#/b").code == 2


def test_damage_among_the_last_messages_is_told(run: Run, data: Path) -> None:
    change(data, delete=[(ROWS, offset_key(7))])
    assert run("tail", data, "-n", 1).code == 0
    ended = run("tail", data, "-n", 2)
    assert (ended.code, ended.offsets) == (3, [6, 9])
    assert ended.err.splitlines()[1:] == ["missing: offsets 7 to 8 (2): damaged"]


@asynccontextmanager
async def following(path: Path, *words: str) -> AsyncIterator[Process]:
    """A `tail` that follows; it has begun when it has written its first line."""
    command = [sys.executable, "-m", "penstock", "log", "tail", str(path), "-n", "1", "-f", *words]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    tail = await asyncio.create_subprocess_exec(*command, env=buffered, stdout=PIPE, stderr=PIPE)
    try:
        yield tail
    finally:
        with suppress(ProcessLookupError):
            tail.kill()
        await tail.wait()


async def end(tail: Process) -> tuple[bytes, bytes]:
    """Press Ctrl-C, and see what is still written."""
    tail.send_signal(SIGINT)
    written = await tail.communicate()
    assert tail.returncode == 0
    return written


async def next_offset(tail: Process) -> int:
    assert tail.stdout is not None
    return int((await tail.stdout.readline()).split()[0])


async def test_what_is_committed_from_now_on_follows(data: Path) -> None:
    async with following(data, "a", "b") as tail:
        offsets = [await next_offset(tail)]
        for letters in ("ac", "b"):  # two lives of a server
            opened = OpenLog(data)
            for letter in letters:
                await opened.commit(messages(letter))
            opened.log.close()
            offsets.append(await next_offset(tail))
        left, statement = await end(tail)
    assert (offsets, left) == ([9, 10, 12], b"")
    assert statement.startswith(b"served 3 messages; the log ends here: --after ")


async def test_what_is_sealed_while_it_is_followed_comes_once(data: Path) -> None:
    async with following(data) as tail:
        offsets = [await next_offset(tail)]
        opened = OpenLog(data)
        for _ in range(25):  # more than a batch
            await opened.commit(messages("abcde" * 100))
            offsets.append(await next_offset(tail))
        offsets += [await next_offset(tail) for _ in range(12_500 - 25)]
        opened.log.close()
        left, _ = await end(tail)
    assert (offsets, left) == (list(range(9, 12_510)), b"")


async def test_who_interrupts_it_in_the_middle_is_told_where_it_really_ended(data: Path) -> None:
    opened = OpenLog(data)
    for _ in range(25):
        await opened.commit(messages("abcde" * 200))
    opened.log.close()
    async with following(data, "-n", "25000") as tail:
        first = await next_offset(tail)  # and now it waits until more is read
        left, statement = await end(tail)
    offsets = [first, *(int(line.split()[0]) for line in left.splitlines())]
    assert offsets == list(range(10, 10 + len(offsets)))
    assert len(offsets) < 25_000
    words = statement.decode().split()
    assert words[:2] == ["served", f"{len(offsets):,}"]
    (position,) = Cursor.decode(words[-1]).positions
    assert position.offset == offsets[-1]
