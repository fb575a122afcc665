"""Maintenance of a table: merging small files, deleting unneeded ones, and file size statistics.

Merging joins small files of one partition that follow one another in the log. Within a merged file messages
are sorted by topic, epoch and offset, so that a reader of one topic skips most of it.

Cleaning deletes files that were retired a while ago, and orphans that were never committed. An orphan looks
like a file that a running job is about to commit. So it is retired first, by a commit: a late committer is
refused from then on, and only then the file is deleted.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.errors import Conflict
from penstock.lake.layout import MANIFEST
from penstock.lake.manifest import Change, DataFile, Manifest, by_partition
from penstock.lake.reader import read_file
from penstock.lake.table import Table
from penstock.lake.writer import DRAFT_SUFFIX, SUFFIX, TableWriter, into_partition

SMALL = 0.5
"""A file is small if it has less than this fraction of the target size."""
SORT_BYTES = 384 << 20
"""Limit of the bytes sorted at once; more rows become several files."""
ORDER = ("topic", "epoch", "offset")
"""Sort order of messages; offsets repeat after a crash truncates an epoch."""
GRACE_S = 3600.0
"""Time that readers may keep using files which are no longer live."""
STRAY_S = 3600.0
"""Age from which an uncommitted file is an orphan."""
PERCENTILES = (10, 50, 90)


class Group(Struct, frozen=True):
    """Files of one partition that are merged into one."""

    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def plan_groups(files: Iterable[DataFile], target_bytes: int) -> list[Group]:
    """Group small files up to about the target size; groups of most files first."""
    groups = [
        group
        for together in by_partition(files).values()
        for group in _groups_of(
            [file for file in together if file.bytes < target_bytes * SMALL], target_bytes
        )
    ]
    return sorted(groups, key=lambda group: len(group.files), reverse=True)


def _groups_of(small: list[DataFile], target_bytes: int) -> Iterator[Group]:
    waiting: list[DataFile] = []
    for file in sorted(small, key=lambda file: (file.first_offset or 0, file.path)):
        if waiting and sum(each.bytes for each in waiting) + file.bytes > target_bytes:
            yield from _worthwhile(waiting)
            waiting = []
        waiting.append(file)
    yield from _worthwhile(waiting)


def _worthwhile(files: list[DataFile]) -> Iterator[Group]:
    if len(files) > 1:
        yield Group(tuple(files))


def merge(folder: Path, group: Group, schema: pa.Schema, target_bytes: int) -> list[DataFile]:
    """Write the rows of a group to new files, usually one; runs on a worker.

    Raises:
        DamagedFile: a file is unreadable.
        FileNotFoundError: a file was deleted.
        Conflict: the number of rows differs from the manifest.
    """
    with TableWriter(folder, into_partition(group.files[0].partition), target_bytes) as writer:
        for rows in _runs(folder, group.files, schema):
            for batch in sort_messages(rows):
                writer.write(batch)
        made = writer.finish()
        if (found := sum(file.rows for file in made)) != group.rows:
            raise Conflict(f"{group.files[0].path} and others have {found} rows instead of {group.rows}")
        return made


def _runs(folder: Path, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files, in chunks that may be sorted at once."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for file in files:
        for batch in read_file(folder / file.path, schema=schema):
            waiting.append(batch)
            size += batch.nbytes
            if size >= SORT_BYTES:
                yield pa.Table.from_batches(waiting, schema)
                waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def sort_messages(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Sort messages by topic, epoch and offset; other rows stay as they are."""
    order = [name for name in ORDER if name in rows.schema.names]
    if "topic" in order and "offset" in order:
        rows = rows.combine_chunks()
        rows = rows.take(pc.sort_indices(rows.select(order), [(name, "ascending") for name in order]))
    yield from rows.to_batches()


class Cleaned(Struct, frozen=True):
    """Number and size of the deleted files."""

    files: int = 0
    bytes: int = 0


def clean(table: Table, by: str, grace_s: float = GRACE_S, stray_s: float = STRAY_S) -> Cleaned:
    """Delete files retired long enough ago, orphans of dead jobs, and old versions of the manifest."""
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
    """Retire files that were not committed for this long."""
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
    """Delete unfinished files of dead tasks; no manifest knows them."""
    for path in _older_than(table, stray_s):
        if path.name.endswith(DRAFT_SUFFIX):
            path.unlink(missing_ok=True)


def _older_than(table: Table, seconds: float) -> Iterator[Path]:
    """Files of a table, without its manifest, that were not modified for this long."""
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
    """Delete a file and return its size; None if it did not exist."""
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return None
    with suppress(OSError):  # the folder is not empty
        path.parent.rmdir()
    return size


def file_sizes(files: Iterable[DataFile]) -> dict[str, int]:
    """Number of files, total bytes and percentiles; only the number if there are no files."""
    sizes = sorted(file.bytes for file in files)
    if not sizes:
        return {"files": 0}
    known = {f"p{percent}_bytes": percentile(sizes, percent) for percent in PERCENTILES}
    return {"files": len(sizes), "bytes": sum(sizes), **known, "max_bytes": sizes[-1]}


def percentile(sort_messages: list[int], percent: int) -> int:
    """Nearest-rank percentile of sorted values."""
    return sort_messages[max(-(-len(sort_messages) * percent // 100) - 1, 0)]
