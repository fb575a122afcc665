"""Compaction: `penstock pipeline compact` merges small files of a table that is in use.

New files are written beside the old ones. One commit switches the manifest from the old to the new files, and
skips groups that another committer has changed meanwhile. Old files are deleted once no reader can need them.
"""

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import Conflict
from penstock.lake import Change, DamagedFile, DataFile, Manifest, Table, drop_files
from penstock.lake.layout import MESSAGES
from penstock.lake.maintenance import GRACE_S, Group, clean, file_sizes, merge, plan_groups
from penstock.lake.table import lake_table
from penstock.spark.jobs.run import Progress, Report
from penstock.spark.tables import schema_of
from penstock.spark.tasks import Interrupted, run_tasks

BY = "compact"
GROUPS_PER_TASK_SLOT = 4
"""Number of groups that each core merges between two commits."""


class CompactOptions(Struct, frozen=True, kw_only=True):
    """Options of a compaction."""

    lake: str
    table: str = MESSAGES
    target_bytes: int = 128 << 20
    grace_s: float = GRACE_S

    def check(self) -> None:
        """Validate the options.

        Raises:
            ValueError: a number is out of range.
            InvalidLake: there is no such table.
        """
        if self.target_bytes < 1:
            raise ValueError("the target size of a file must be at least 1 byte")
        if self.grace_s < 0:
            raise ValueError("the grace time of readers must not be negative")
        lake_table(self.lake, self.table)


class Merged(Struct, frozen=True, kw_only=True):
    """Outcome of one group."""

    number: int
    files: list[DataFile] = []
    problem: str | None = None
    is_damaged: bool = False


def compact(
    options: CompactOptions, *, spark: SparkSession, progress: Progress, stopping: threading.Event
) -> Report:
    """Merge small files, then delete unneeded ones."""
    options.check()
    table = lake_table(options.lake, options.table)
    before = table.manifest()
    done = _Compaction(options, table, spark, progress)
    done.run(plan_groups(before.files.values(), options.target_bytes), stopping)
    cleaned = clean(table, BY, options.grace_s)
    after = table.manifest()
    facts = {
        "table": str(table.path),
        "merged_files": done.files_in,
        "new_files": done.files_out,
        "rows": done.rows,
        "before": file_sizes(before.files.values()),
        "after": file_sizes(after.files.values()),
        "waiting_to_be_deleted": len(after.retired),
        "deleted_files": cleaned.files,
        "deleted_bytes": cleaned.bytes,
    }
    tables = {"damaged": [{"problem": problem} for problem in done.damaged]} if done.damaged else {}
    return Report(job=BY, facts=facts, tables=tables, is_clean=not done.damaged)


class _Compaction:
    """Groups of one run."""

    def __init__(
        self, options: CompactOptions, table: Table, spark: SparkSession, progress: Progress
    ) -> None:
        self._options = options
        self._table = table
        self._spark = spark
        self._progress = progress
        self._schema = file_schema(table.manifest(), table)
        self.files_in = self.files_out = self.rows = 0
        self.damaged: list[str] = []

    def run(self, groups: list[Group], stopping: threading.Event) -> None:
        """Merge all groups, some at a time, until stopped."""
        step = self._spark.sparkContext.defaultParallelism * GROUPS_PER_TASK_SLOT
        for first in range(0, len(groups), step):
            if stopping.is_set():
                return
            some = groups[first : first + step]
            work = partial(_merge, self._table.path, some, self._schema, self._options.target_bytes)
            try:
                values = run_tasks(self._spark, range(len(some)), work, stopping)
            except Interrupted:
                self._progress.note("stopped: the current files are dropped; the next compaction merges them")
                return
            self._switch(some, [msgspec.json.decode(value, type=Merged) for value in values])
            self._progress.show(f"{first + len(some)} of {len(groups)} groups, {self.rows:,} rows")

    def _switch(self, groups: Sequence[Group], merged: list[Merged]) -> None:
        """Replace old files by new ones, where the old ones are still live."""
        for each in merged:
            if each.problem is not None:
                self._progress.note(f"not merged: {each.problem}")
                self.damaged += [each.problem] if each.is_damaged else []
        ready = [each for each in merged if each.problem is None]
        taken: list[Merged] = []

        def change(manifest: Manifest) -> Change | None:
            taken[:] = [each for each in ready if _is_live(groups[each.number], manifest)]
            return _change_of(groups, taken) if taken else None

        try:
            self._table.commit(change)
        except Conflict as error:  # it took so long that the new files were retired as orphans
            self._progress.note(f"not merged: {error}")
            taken.clear()
        for each in ready:
            if each not in taken:
                drop_files(self._table, each.files)
        self.files_in += sum(len(groups[each.number].files) for each in taken)
        self.files_out += sum(len(each.files) for each in taken)
        self.rows += sum(groups[each.number].rows for each in taken)


def _is_live(group: Group, manifest: Manifest) -> bool:
    return all(file.path in manifest.files for file in group.files)


def _change_of(groups: Sequence[Group], merged: Iterable[Merged]) -> Change:
    return Change(
        by=BY,
        added=[file for each in merged for file in each.files],
        removed=[file.path for each in merged for file in groups[each.number].files],
    )


def _merge(
    folder: Path, groups: Sequence[Group], schema: pa.Schema, target_bytes: int, number: int
) -> Iterable[bytes]:
    """Merge one group; runs on a worker. A failure does not affect other groups."""
    try:
        done = Merged(number=number, files=merge(folder, groups[number], schema, target_bytes))
    except FileNotFoundError as error:
        done = Merged(number=number, problem=f"{error.filename} was replaced by another job")
    except (DamagedFile, Conflict) as error:
        done = Merged(number=number, problem=str(error), is_damaged=True)
    return [msgspec.json.encode(done)]


def file_schema(manifest: Manifest, table: Table) -> pa.Schema:
    """Columns of the data files: all but the partition columns."""
    columns = schema_of(manifest, table)
    partitions = {name for file in manifest.files.values() for name in file.partition}
    kept = StructType([field for field in columns if field.name not in partitions])
    return to_arrow_schema(kept, timezone="UTC")
