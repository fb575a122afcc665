"""What the operating system says of this process."""

import resource
import time
from pathlib import Path

from msgspec import Struct

STATM = Path("/proc/self/statm")
FILES = Path("/proc/self/fd")
PAGE_BYTES = resource.getpagesize()


class Process(Struct, frozen=True):
    """One look at the process. What a system cannot tell is None."""

    cpu_s: float
    max_files: int | None
    resident_bytes: int | None
    open_files: int | None


def look() -> Process:
    """How the process is now."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_files = None if files == resource.RLIM_INFINITY else files
    return Process(time.process_time(), max_files, _resident_bytes(), _open_files())


def _resident_bytes() -> int | None:
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:  # there is no /proc
        return None


def _open_files() -> int | None:
    try:
        # Since Linux 6.2 the size of the folder is the number of files; to list very many takes a while.
        return FILES.stat().st_size or sum(1 for _ in FILES.iterdir()) - 1
    except OSError:
        return None
