"""Disk shim: a preloaded library that slows syncs down, or records what was synced.

After a power cut a strict POSIX file system has the bytes of files and the entries of folders that were
synced, and nothing else. `what_power_leaves` builds exactly that from the records of `disk_shim.c`.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.artifacts import build_once

SOURCE = Path(__file__).with_name("disk_shim.c")


def build_shim(folder: Path) -> Path:
    """Compile the shim into a folder, unless it is there."""
    if shutil.which("gcc") is None:
        pytest.skip("the disk shim needs gcc")

    def build(target: Path) -> None:
        words = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(target / "shim.so"), str(SOURCE), "-ldl"]
        subprocess.run(words, check=True)

    return build_once(folder / "disk-shim", build) / "shim.so"


def slow_disk(shim: Path, sync_ms: int) -> dict[str, str]:
    """Environment of a server whose syncs take this long."""
    return {"LD_PRELOAD": str(shim), "DISK_SYNC_MS": str(sync_ms)}


def recorded_disk(shim: Path, root: Path, records: Path) -> dict[str, str]:
    """Environment of a server whose syncs below a folder are recorded."""
    records.mkdir(exist_ok=True)
    return {"LD_PRELOAD": str(shim), "DISK_ROOT": str(root), "DISK_SYNCED": str(records)}


def what_power_leaves(root: Path, records: Path, target: Path) -> None:
    """Build the content of a folder as a power cut leaves it; the folder itself is there for sure."""
    found = root.stat()
    entries = next(records.glob(f"d-{found.st_ino}-*"), None)
    target.mkdir()
    if entries is not None:
        _rebuild(entries, records, target)


def _rebuild(entries: Path, records: Path, target: Path) -> None:
    for line in entries.read_text(encoding="utf-8").splitlines():
        kind, identity, name = line.split(" ", 2)
        record = records / f"{kind}-{identity}"
        if kind == "d":
            (target / name).mkdir(mode=0o700)
            if record.exists():
                _rebuild(record, records, target / name)
        elif record.exists():
            shutil.copyfile(record, target / name)
        else:
            (target / name).touch()
