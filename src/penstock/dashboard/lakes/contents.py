"""What a lake holds, read from its manifest: how much, of which days and buckets, and how it came there.

No data file is opened for this, and no Spark is needed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from penstock.pipeline.lake import Commit, DataFile, InvalidLake, Manifest, Table, lake_messages

SHOWN_COMMITS = 8


class Share(Struct, frozen=True):
    """What one day or one bucket has of a table."""

    name: str
    rows: int
    bytes: int
    files: int


class LakeCommit(Struct, frozen=True, kw_only=True):
    """One change of a table."""

    version: int
    at: datetime
    by: str
    rows: int
    bytes: int
    files_added: int
    files_removed: int
    gaps: int


class LakeView(Struct, frozen=True, kw_only=True):
    """The messages of a lake at one moment."""

    path: Path
    manifest: Manifest
    days: list[Share]
    """The newest first."""
    buckets: list[Share]
    commits: list[LakeCommit]
    """The newest first."""

    @property
    def changed_at(self) -> datetime:
        """When the last change was committed."""
        return time_of(self.manifest.at)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """When the oldest and the newest message were published."""
        times = [
            time
            for file in self.manifest.files.values()
            for time in (file.first_time, file.last_time)
            if time is not None
        ]
        return (time_of(min(times)), time_of(max(times))) if times else None


def look_at(lake: Path) -> LakeView:
    """What a lake holds now.

    Raises:
        InvalidLake: there is none, it is kept by Delta, or its manifest is damaged.
        OSError: it cannot be read.
    """
    table = table_of(lake)
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table, whose log only Delta reads")
    manifest = table.manifest()
    if not manifest.version:
        raise InvalidLake(f"{lake}: there are no messages here yet")
    return LakeView(
        path=table.path,
        manifest=manifest,
        days=shares(manifest.files.values(), lambda file: file.partition.get("date", "?"))[::-1],
        buckets=shares(manifest.files.values(), lambda file: file.partition.get("bucket", "?")),
        commits=commits_of(table),
    )


@lru_cache(maxsize=4)
def table_of(lake: Path) -> Table:
    """The messages of a lake; what was read of its manifest is not read again."""
    return lake_messages(lake)


def shares(files: Iterable[DataFile], name_of: Callable[[DataFile], str]) -> list[Share]:
    """What files have together that go by the same name; sorted by it."""
    groups: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        groups[name_of(file)].append(file)
    return [
        Share(name, sum(each.rows for each in group), sum(each.bytes for each in group), len(group))
        for name, group in sorted(groups.items())
    ]


def commits_of(table: Table, most: int = SHOWN_COMMITS) -> list[LakeCommit]:
    """The last changes of a table, the newest first."""
    return [_commit_of(each) for each in table.recent(most)]


def _commit_of(commit: Commit) -> LakeCommit:
    change = commit.change
    return LakeCommit(
        version=commit.version,
        at=time_of(commit.at),
        by=change.by,
        rows=sum(file.rows for file in change.added),
        bytes=sum(file.bytes for file in change.added),
        files_added=len(change.added),
        files_removed=len(change.removed),
        gaps=len(change.gaps),
    )


def time_of(microseconds: int) -> datetime:
    """A time that a manifest names."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
