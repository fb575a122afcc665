"""Manifest of a table as a value: its content, and the changes from one version to the next.

Nothing here touches a disk. Files that a change removes are **retired**: they stay readable for readers of an
earlier manifest, until they are deleted and then forgotten.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType, structs

from penstock.client.messages import Gap
from penstock.errors import Conflict

Partition = tuple[tuple[str, str], ...]
"""Partition columns with their values, usable as a key."""


class DataFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One Parquet file of a table; ranges of offsets and times include both ends."""

    path: str
    """Relative to the table's folder."""
    rows: int
    bytes: int
    partition: dict[str, str] = {}
    first_offset: int | None = None
    last_offset: int | None = None
    first_time: int | None = None
    """`published_at` of the oldest row, in microseconds since 1970."""
    last_time: int | None = None
    crc: int | None = None
    """CRC-32 of the whole file: page checksums do not cover the footer."""


class Expired(Struct, frozen=True, kw_only=True):
    """Rows of one partition that were removed on purpose."""

    partition: dict[str, str]
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    at: int
    """Time of the last removal, in microseconds since 1970."""


class Epoch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Beginning of an epoch of the server."""

    first: int
    """Offset of its first row, or of the truncation of the epoch before."""
    kept: int | None = None
    """Set if a crash truncated the epoch before: the last offset that the table has of it."""


class Intent(Struct, frozen=True, kw_only=True):
    """Batch in progress at a destination that commits on its own (Delta)."""

    batch: int
    after: str | None
    until: str


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Complete state of a table at one version."""

    version: int = 0
    """0: nothing was committed yet."""
    id: str = ""
    """Identity of the table, for servers and other systems that store something about it."""
    at: int = 0
    """Time of the commit, in microseconds since 1970."""
    files: dict[str, DataFile] = {}
    """Live files by path."""
    schema: str | None = None
    """Columns as Spark writes a schema in JSON; partition columns last."""
    start: str | None = None
    """Cursor: the archive begins after it."""
    cursor: str | None = None
    """Cursor: everything from `start` up to it is in the table, in `gaps`, or in `expired`."""
    log_id: str | None = None
    filters: tuple[str, ...] = ()
    """Topic filters; empty means `#`."""
    buckets: int = 0
    batch: int = 0
    """Number of archived batches."""
    progress: dict[str, int] = {}
    """Last committed batch of each streaming query that writes to the table."""
    gaps: tuple[Gap, ...] = ()
    """Offsets that the log no longer had, with the reason."""
    expired: tuple[Expired, ...] = ()
    epochs: dict[int, Epoch] = {}
    """Epochs of the rows: offsets repeat after a crash truncates an epoch."""
    retired: dict[str, int] = {}
    """Files that are no longer live but still on disk, with the time of their removal."""
    intent: Intent | None = None

    @property
    def hold_name(self) -> str:
        """Name of the retention hold for what the archive has not read."""
        return f"lake-{self.id}"

    @property
    def rows(self) -> int:
        """Number of live rows."""
        return sum(file.rows for file in self.files.values())

    @property
    def bytes(self) -> int:
        """Size of the live files."""
        return sum(file.bytes for file in self.files.values())


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of one commit; a field that is not set stays unchanged."""

    by: str = ""
    """The job that commits."""
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    """Paths of live files to retire."""
    retired: Sequence[str] = ()
    """Paths of files that were never live, and may not be added from now on."""
    forgotten: Sequence[str] = ()
    """Paths of retired files that are deleted."""
    schema: str | None = None
    start: str | None = None
    cursor: str | None = None
    log_id: str | None = None
    filters: tuple[str, ...] | None = None
    buckets: int | None = None
    batch: int | None = None
    progress: dict[str, int] = {}
    gaps: Sequence[Gap] = ()
    """New gaps only."""
    expired: Sequence[Expired] = ()
    epochs: dict[int, Epoch] = {}
    """New epochs only."""
    intent: Intent | UnsetType | None = UNSET


def apply(manifest: Manifest, change: Change, *, id: str, at: int) -> Manifest:
    """The manifest after a change.

    Raises:
        Conflict: the change removes a file that is not live, or adds one that is live or retired.
        ValueError: it adds files to a table without a schema.
    """
    schema = change.schema or manifest.schema
    if change.added and schema is None:
        raise ValueError("the first commit of files to a table needs its schema")
    return structs.replace(
        manifest,
        version=manifest.version + 1,
        id=manifest.id or id,
        at=at,
        files=_files_after(manifest, change),
        schema=schema,
        start=change.start or manifest.start,
        cursor=change.cursor or manifest.cursor,
        log_id=change.log_id or manifest.log_id,
        filters=manifest.filters if change.filters is None else change.filters,
        buckets=manifest.buckets if change.buckets is None else change.buckets,
        batch=manifest.batch if change.batch is None else change.batch,
        progress=manifest.progress | change.progress,
        gaps=join_gaps((*manifest.gaps, *change.gaps)),
        expired=_join_expired((*manifest.expired, *change.expired)),
        epochs=join_epochs(manifest.epochs, change.epochs),
        retired=_retired_after(manifest, change, at),
        intent=manifest.intent if change.intent is UNSET else change.intent,
    )


def _files_after(manifest: Manifest, change: Change) -> dict[str, DataFile]:
    files = dict(manifest.files)
    for path in change.removed:
        if files.pop(path, None) is None:
            raise Conflict(f"{path} is no longer live")
    for file in change.added:
        if file.path in files or file.path in manifest.retired:
            raise Conflict(f"{file.path} cannot be added: it is live already, or retired")
        files[file.path] = file
    return files


def _retired_after(manifest: Manifest, change: Change, at: int) -> dict[str, int]:
    retired = dict(manifest.retired)
    for path in change.retired:
        if path in manifest.files:
            raise Conflict(f"{path} is live")
        retired.setdefault(path, 0)  # no manifest ever named it, so no reader has it
    retired.update(dict.fromkeys(change.removed, at))
    for path in change.forgotten:
        retired.pop(path, None)
    return retired


def join_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Sort gaps, and join those that touch and have the same reason."""
    joined: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: (gap.first, gap.last)):
        if joined and joined[-1].reason == gap.reason and gap.first <= joined[-1].last + 1:
            joined[-1] = Gap(joined[-1].first, max(joined[-1].last, gap.last), gap.reason)
        else:
            joined.append(gap)
    return tuple(joined)


def join_epochs(known: Mapping[int, Epoch], found: Mapping[int, Epoch]) -> dict[int, Epoch]:
    """Merge what two sides know about epochs."""
    joined = dict(known)
    for number, epoch in found.items():
        other = joined.get(number, epoch)
        kept = [each.kept for each in (other, epoch) if each.kept is not None]
        joined[number] = Epoch(first=min(other.first, epoch.first), kept=max(kept, default=None))
    return joined


def _join_expired(entries: Iterable[Expired]) -> tuple[Expired, ...]:
    """One entry per partition."""
    joined: dict[Partition, Expired] = {}
    for entry in entries:
        partition = tuple(entry.partition.items())
        known = joined.get(partition)
        joined[partition] = entry if known is None else _sum(known, entry)
    return tuple(joined[partition] for partition in sorted(joined))


def _sum(one: Expired, other: Expired) -> Expired:
    return Expired(
        partition=one.partition,
        rows=one.rows + other.rows,
        bytes=one.bytes + other.bytes,
        first_offset=min(one.first_offset, other.first_offset),
        last_offset=max(one.last_offset, other.last_offset),
        at=max(one.at, other.at),
    )


def by_partition(files: Iterable[DataFile]) -> dict[Partition, list[DataFile]]:
    """Group files by partition, in the order of the partitions."""
    groups: dict[Partition, list[DataFile]] = {}
    for file in files:
        groups.setdefault(tuple(file.partition.items()), []).append(file)
    return dict(sorted(groups.items()))
