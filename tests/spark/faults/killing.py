"""Jobs in processes of their own, and how they end: by kill -9, with all that they started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.spark.jvms import QUICK_DRIVER
from tests.support.servers import bare_environment

MOMENT_TIMEOUT_S = 120.0
LOOK_EVERY_S = 0.001

Moment = Callable[[], bool]
"""Says whether it has come."""


class JobProcess:
    """`penstock pipeline <job>` as a user starts it."""

    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / "output"
        command = [sys.executable, "-m", "penstock", "pipeline", *words, "--master", "local[1]"]
        confs = {**QUICK_DRIVER, "spark.local.dir": str(folder)}
        spark = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *spark],
                env=bare_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        """All that it said."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def is_killed_at(self, moment: Moment) -> bool:
        """Kill it when a moment comes; not if it was over, and well, before anybody saw that moment."""
        deadline = time.monotonic() + MOMENT_TIMEOUT_S
        try:
            while not moment():
                if self.process.poll() is not None:
                    assert self.process.returncode == 0, self.printed
                    return False
                assert time.monotonic() < deadline, self.printed
                time.sleep(LOOK_EVERY_S)
            return True
        finally:
            self.kill()

    def kill(self) -> None:
        """End it, its JVM and their children at once, as the kernel does when memory runs out."""
        children = _descendants(self.process.pid)
        for pid in (self.process.pid, *children):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    try:
        listed = [
            Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split()
            for task in os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - only names are wanted
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []
    children = [int(child) for each in listed for child in each]
    return [*children, *(below for child in children for below in _descendants(child))]


def draft_appears(table: Path) -> Moment:
    """A data file is being written."""
    known = _names(table, "")
    return lambda: any(not name.endswith(".parquet") for name in _names(table, "") - known)


def file_appears(table: Path) -> Moment:
    """A data file is complete, and no manifest names it yet."""
    known = _names(table, ".parquet")
    return lambda: bool(_names(table, ".parquet") - known)


def version_appears(table: Path) -> Moment:
    """A commit was made."""
    known = _versions(table)
    return lambda: _versions(table) > known


def after(moment: Moment, seconds: float) -> Moment:
    """A while after something else."""
    came_at: list[float] = []

    def has_come() -> bool:
        if not came_at and moment():
            came_at.append(time.monotonic())
        return bool(came_at) and time.monotonic() - came_at[0] >= seconds

    return has_come


def _names(table: Path, suffix: str) -> set[str]:
    """The data files of a table, finished or not."""
    return {
        path.name for path in table.glob("date=*/*/*") if path.name.endswith(suffix) and path.parent.is_dir()
    }


def _versions(table: Path) -> int:
    return len(list((table / "_manifest").glob("0*.json")))
