"""Deletes data files that nobody needs: those retired a while ago, and those that were never committed.

A file of the second kind looks like one that a running job is about to commit. So it is retired first, by a
commit: whoever is late is refused from then on, and only then the file is deleted.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from penstock.pipeline.lake.files import DRAFT_SUFFIX, SUFFIX
from penstock.pipeline.lake.layout import MANIFEST
from penstock.pipeline.lake.manifest import Change, Manifest
from penstock.pipeline.lake.table import Table

GRACE_S = 3600.0
"""How long readers may go on with files that are not live any more."""
STRAY_S = 3600.0
"""How old a file has to be that no job will commit any more."""


class Cleaned(Struct, frozen=True):
    """What was deleted."""

    files: int = 0
    bytes: int = 0


def clean(table: Table, by: str, grace_s: float = GRACE_S, stray_s: float = STRAY_S) -> Cleaned:
    """Delete what was retired so long ago, what was left behind by jobs that died, and old versions."""
    _retire_strays(table, by, stray_s)
    limit = time.time_ns() // 1000 - int(grace_s * 1e6)
    due = [path for path, at in table.manifest().retired.items() if at <= limit]
    sizes = [_delete(table.absolute(path)) for path in due]
    _delete_drafts(table, stray_s)
    if due:
        table.commit(lambda manifest: _forget(manifest, by, due))
    table.prune(grace_s)
    return Cleaned(sum(size is not None for size in sizes), sum(size or 0 for size in sizes))


def _retire_strays(table: Table, by: str, stray_s: float) -> None:
    """Declare files that nobody committed for so long to be nobody's."""
    known = table.manifest()
    found = [
        path.relative_to(table.path).as_posix()
        for path in _older_than(table, stray_s)
        if path.suffix == SUFFIX and not path.name.startswith(".")
    ]
    if any(path not in known.files and path not in known.retired for path in found):
        table.commit(lambda manifest: _retire(manifest, by, found))


def _retire(manifest: Manifest, by: str, found: list[str]) -> Change | None:
    strays = [path for path in found if path not in manifest.files and path not in manifest.retired]
    return Change(by=by, retired=strays) if strays else None


def _forget(manifest: Manifest, by: str, due: list[str]) -> Change | None:
    forgotten = [path for path in due if path in manifest.retired]
    return Change(by=by, forgotten=forgotten) if forgotten else None


def _delete_drafts(table: Table, stray_s: float) -> None:
    """Delete what was being written by tasks that died; nobody was told of it."""
    for path in _older_than(table, stray_s):
        if path.name.endswith(DRAFT_SUFFIX):
            path.unlink(missing_ok=True)


def _older_than(table: Table, seconds: float) -> Iterator[Path]:
    """The files of a table, without those of its manifest, that were not touched for so long."""
    limit = time.time() - seconds
    for folder, folders, names in os.walk(table.path):
        if MANIFEST in folders:
            folders.remove(MANIFEST)
        for name in names:
            path = Path(folder, name)
            with suppress(FileNotFoundError):
                if path.stat().st_mtime <= limit:
                    yield path


def _delete(path: Path) -> int | None:
    """Delete a file, and tell how large it was; None if it was gone already."""
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return None
    with suppress(OSError):  # the folder has other files, or somebody is about to make one
        path.parent.rmdir()
    return size
