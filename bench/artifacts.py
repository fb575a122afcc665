"""Artifacts: what is fetched or compiled once, under a file lock, and appears complete or not at all.

The bench and the tests share this module; each has a folder of its own in the user's cache.
"""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp


class FetchError(Exception):
    """A command that fetches or compiles failed, or took too long."""


def user_cache(name: str) -> Path:
    """Folder of this name in the user's cache; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name


def build_once(folder: Path, build: Callable[[Path], object]) -> Path:
    """Build a folder unless it exists; it appears complete or not at all.

    Other processes wait for the one that builds. After a failed build the next one tries again, and what a
    killed one left is removed.

    Args:
        build: fills the empty folder that it is given. It must not store that path: the folder is renamed.
    """
    with locked(folder):
        if not folder.exists():
            for abandoned in folder.parent.glob(f"{folder.name}~*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            unfinished = Path(mkdtemp(prefix=f"{folder.name}~", dir=folder.parent))
            try:
                build(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file lock of a path, which need not exist; one process at a time does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_command(
    limit_s: float, *words: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Run a command to its end, or end it and all that it started.

    Raises:
        FetchError: it failed, with its output, or took longer than `limit_s`.
    """
    with TemporaryFile() as output:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise FetchError(f"{words[0]} took more than {limit_s} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            output.seek(0)
            raise FetchError(
                f"{words[0]} ended with {code}: {output.read().decode(errors='replace').strip()}"
            )
