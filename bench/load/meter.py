"""Meter: CPU, memory and open files of a broker's processes, read from /proc."""

import os
import time
from pathlib import Path

from msgspec import Struct

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LISTENING = "0A"


class Reading(Struct, frozen=True):
    """Usage of the processes at one moment."""

    at_s: float
    cpu_s: float
    machine_cpu_s: float
    rss_bytes: int
    open_files: int


class Meter:
    """Reads the processes that listen on a port, found once, and their children."""

    def __init__(self, port: int) -> None:
        self._processes = [Path("/proc", str(pid)) for pid in listeners(port)]

    @property
    def is_blind(self) -> bool:
        """True if there are no such processes, or they belong to another user."""
        return not self._processes

    def read(self) -> Reading:
        """Take one reading; a process that has ended counts as zero."""
        children = (child for process in self._processes for child in _children(process))
        family = dict.fromkeys((*self._processes, *children))  # a child may listen too
        return Reading(
            at_s=time.monotonic(),
            cpu_s=sum(map(_cpu_s, family)),
            machine_cpu_s=_machine_cpu_s(),
            rss_bytes=sum(map(_rss_bytes, self._processes)),
            open_files=sum(map(_open_files, self._processes)),
        )


def listeners(port: int) -> list[int]:
    """Processes with a listening socket on this port, as far as they are visible."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _holds(entry, sockets)
    ]


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(fields[9])
    return inodes


def _holds(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(entry.readlink()) in sockets for entry in (process / "fd").iterdir())
    except OSError:  # ended meanwhile, or of another user
        return False


def _children(process: Path) -> list[Path]:
    try:
        lists = [task.joinpath("children").read_text() for task in (process / "task").iterdir()]
    except OSError:  # ended meanwhile, or a kernel without this file
        return []
    return [Path("/proc", child) for children in lists for child in children.split()]


def _cpu_s(process: Path) -> float:
    try:
        fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _rss_bytes(process: Path) -> int:
    try:
        return int((process / "statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def _open_files(process: Path) -> int:
    try:
        return sum(1 for _ in (process / "fd").iterdir())
    except OSError:
        return 0


def _machine_cpu_s() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / TICKS_PER_S
