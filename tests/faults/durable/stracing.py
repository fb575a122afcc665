"""strace at a running server: what it asked of the system in which order, and answers it did not expect.

Tracing begins with the first server call after `async with` and ends with its block; injected errors end
there too, so that a fault heals when a test says so.
"""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from msgspec import Struct

ATTACH_TIMEOUT_S = 20.0
CALLS = (
    "read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,pwritev,fsync,fdatasync,sync_file_range"
)
READS = ("read", "readv", "recvfrom", "recvmsg")
WRITES = ("write", "writev", "sendto", "sendmsg", "pwrite64", "pwritev")
SYNCS = ("fsync", "fdatasync")

BEGUN = re.compile(r"(.*?)\s*<unfinished \.\.\.>$")
RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)$")
CALL = re.compile(r"(\w+)\(\d+<(.*?)>(?:, (.*))?\)\s+= (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Call(Struct, frozen=True):
    """One call of the system: when it began and ended, counted in lines of the trace."""

    began: int
    ended: int
    name: str
    target: str
    """A path, or both ends of a connection."""
    data: bytes
    """What was read or written."""
    result: int


class Strace:
    """A tracer of one process with all its threads."""

    def __init__(self, pid: int, folder: Path, *words: str) -> None:
        if shutil.which("strace") is None:
            pytest.skip("strace is not here")
        self._pid = pid
        self._output = folder / "strace.trace"
        self._errors = folder / "strace.errors"
        self._words = words

    async def __aenter__(self) -> Self:
        words = ["strace", "-f", "-yy", "-xx", "-s", "10000000", "-o", str(self._output), *self._words]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen([*words, "-p", str(self._pid)], stderr=errors)
        async with asyncio.timeout(ATTACH_TIMEOUT_S):
            while " attached" not in self._said:
                if self._process.poll() is not None:
                    pytest.skip(f"strace cannot trace here: {self._said}")
                await asyncio.sleep(0.01)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        await asyncio.to_thread(self._process.wait)

    @property
    def _said(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")

    @property
    def injections(self) -> int:
        """How many calls were given a wrong answer."""
        return self._output.read_text(encoding="ascii", errors="replace").count("(INJECTED)")

    def calls(self) -> list[Call]:
        """Everything that was traced, by the order in which it ended."""
        lines = self._output.read_text(encoding="ascii", errors="replace").splitlines()
        return list(parse(lines))


def tracing(pid: int, folder: Path) -> Strace:
    """See what a process reads, writes and syncs."""
    return Strace(pid, folder, "-e", f"trace={CALLS}")


def failing(pid: int, folder: Path, calls: str, error: str, paths: Sequence[Path] = ()) -> Strace:
    """Let calls fail; with paths, only where these files are meant."""
    only = [word for path in paths for word in ("-P", str(path))]
    return Strace(pid, folder, *only, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}")


def parse(lines: Sequence[str]) -> Iterator[Call]:
    """The calls in the lines of a trace; what is not about a file or a connection is left out."""
    begun: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        thread, _, text = line.partition(" ")
        text = text.strip()
        if found := BEGUN.fullmatch(text):
            begun[thread] = number, found[1]
            continue
        began = number
        if found := RESUMED.fullmatch(text):
            began, start = begun.pop(thread, (number, ""))
            text = start + (" " if start.endswith(",") else "") + found[1]
        if (call := CALL.match(text)) is not None:
            name, target, rest, result = call[1], plain(call[2]), call[3] or "", int(call[4])
            data = b"".join(bytes.fromhex(text.replace("\\x", "")) for text in TEXT.findall(rest))
            yield Call(began, number, name, target, data[: max(result, 0)], result)


def plain(target: str) -> str:
    """A path as it is, from the way it is written in a trace."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), target)
