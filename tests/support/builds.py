"""Artifacts that test workers share: each is built or fetched once, under a file lock."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


def build_once(folder: Path, build: Callable[[Path], object]) -> Path:
    """Build a folder unless it exists; it appears complete or not at all.

    Other workers wait for the one that builds. After a failed build the next worker tries again.

    Args:
        build: fills the empty folder that it is given. It must not store that path: the folder is renamed.
    """
    with locked(folder):
        if not folder.exists():
            unfinished = Path(mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
            try:
                build(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file lock of a path, which need not exist; one worker at a time does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
