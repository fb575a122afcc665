"""Which small files are worth merging, and how one group of them becomes one file.

Groups are files of one partition that follow one another in the log, so that files keep to their stretch of
it. Within a file messages are ordered by topic, epoch and offset, as they were published, so that a reader of
one topic skips most of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.errors import Conflict
from penstock.pipeline.lake.files import TableWriter
from penstock.pipeline.lake.manifest import DataFile, by_partition
from penstock.pipeline.lake.reading import read_file
from penstock.pipeline.lake.splitting import as_one

SMALL = 0.5
"""A file is small if it has less than this part of the target."""
SORT_BYTES = 384 << 20
"""How many bytes of rows are ordered at once; more become more files."""
ORDER = ("topic", "epoch", "offset")
"""How messages are ordered; offsets are given again when a crash took the end of an epoch."""


class Group(Struct, frozen=True):
    """Files of one partition that become one."""

    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def plan_groups(files: Iterable[DataFile], target_bytes: int) -> list[Group]:
    """Small files in groups of about the target size, the groups with most files first."""
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
    """Write the rows of a group to new files, mostly one; runs on a worker.

    Raises:
        DamagedFile: one of them cannot be read.
        FileNotFoundError: one of them is gone.
        Conflict: there are more or fewer rows than the manifest says.
    """
    with TableWriter(folder, as_one(group.files[0].partition), target_bytes) as writer:
        for rows in _runs(folder, group.files, schema):
            for batch in ordered(rows):
                writer.write(batch)
        made = writer.finish()
        if (found := sum(file.rows for file in made)) != group.rows:
            raise Conflict(
                f"{group.files[0].path} and others have {found} rows, and should have {group.rows}"
            )
        return made


def _runs(folder: Path, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files, as much at once as may be ordered at once."""
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


def ordered(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Messages by topic, epoch and offset; other rows as they are."""
    order = [name for name in ORDER if name in rows.schema.names]
    if "topic" in order and "offset" in order:
        rows = rows.combine_chunks()
        rows = rows.take(pc.sort_indices(rows.select(order), [(name, "ascending") for name in order]))
    yield from rows.to_batches()
