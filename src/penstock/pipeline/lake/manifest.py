"""What a table holds, as values: a manifest, and the changes that lead from one to the next.

Nothing here touches a disk. Files that a change takes out are not gone at once: they are **retired**, and
stay readable for whoever planned with the manifest before, until they are deleted and then forgotten.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType, structs

from penstock.client.answers import Gap
from penstock.errors import Conflict

Partition = tuple[tuple[str, str], ...]
"""The columns of a partition with their values, as a key."""


class DataFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One Parquet file of a table; what it says of offsets and times includes both ends."""

    path: str
    """Below the table's folder."""
    rows: int
    bytes: int
    partition: dict[str, str] = {}
    first_offset: int | None = None
    last_offset: int | None = None
    first_time: int | None = None
    """`published_at` of the oldest row, in microseconds since 1970."""
    last_time: int | None = None
    crc: int | None = None
    """CRC-32 of the whole file: pages have checksums of their own, what describes them has none."""


class Expired(Struct, frozen=True, kw_only=True):
    """What was removed on purpose of the rows of one partition."""

    partition: dict[str, str]
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    at: int
    """When, the last time; microseconds since 1970."""


class Epoch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an epoch of the server began."""

    first: int
    """The offset of its first row, or where the epoch before it was cut off."""
    kept: int | None = None
    """A crash took the end of the epoch before, and the table has it up to this offset."""


class Intent(Struct, frozen=True, kw_only=True):
    """A batch that is being written to a place with commits of its own."""

    batch: int
    after: str | None
    until: str


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a table is at one moment."""

    version: int = 0
    """0: there is nothing yet."""
    id: str = ""
    """The name of the table for servers and other places that keep something about it."""
    at: int = 0
    """When this became so, in microseconds since 1970."""
    files: dict[str, DataFile] = {}
    """What is live, by path."""
    schema: str | None = None
    """The columns, those of the partitions last, as Spark writes a schema in JSON."""
    start: str | None = None
    """A cursor: nothing of the log up to and including it was wanted."""
    cursor: str | None = None
    """Everything of the log from there up to here is in the table, in `gaps`, or in `expired`."""
    log_id: str | None = None
    filters: tuple[str, ...] = ()
    """Which topics; nothing stands for `#`."""
    buckets: int = 0
    batch: int = 0
    """How many batches were archived."""
    progress: dict[str, int] = {}
    """The last batch that is in the table, of each streaming query that writes to it."""
    gaps: tuple[Gap, ...] = ()
    """Offsets that the log no longer had, with the reason."""
    expired: tuple[Expired, ...] = ()
    epochs: dict[int, Epoch] = {}
    """The epochs that rows are of: offsets are given again when a crash took the end of one."""
    retired: dict[str, int] = {}
    """Files that are not live any more and still on the disk, and since when."""
    intent: Intent | None = None

    @property
    def hold_name(self) -> str:
        """The name of the hold by which the archive keeps what it has not read."""
        return f"lake-{self.id}"

    @property
    def rows(self) -> int:
        """How many rows are live."""
        return sum(file.rows for file in self.files.values())

    @property
    def bytes(self) -> int:
        """How many bytes the live files have."""
        return sum(file.bytes for file in self.files.values())


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit does; what it does not name stays as it is."""

    by: str = ""
    """Which job."""
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()
    """Paths of live files, which are retired."""
    retired: Sequence[str] = ()
    """Paths of files that were never live, and that nobody may add from now on."""
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
    """Those that are new."""
    expired: Sequence[Expired] = ()
    epochs: dict[int, Epoch] = {}
    """Those that are new."""
    intent: Intent | UnsetType | None = UNSET


def apply(manifest: Manifest, change: Change, *, id: str, at: int) -> Manifest:
    """The manifest after a change.

    Raises:
        Conflict: it takes out what is not live, or adds what is live already or was retired.
        ValueError: rows were added and nobody ever said which columns they have.
    """
    schema = change.schema or manifest.schema
    if change.added and schema is None:
        raise ValueError("the first files of a table come with its schema")
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
            raise Conflict(f"{path} is not live any more")
    for file in change.added:
        if file.path in files or file.path in manifest.retired:
            raise Conflict(f"{file.path} cannot be added: it is there, or it was taken out before")
        files[file.path] = file
    return files


def _retired_after(manifest: Manifest, change: Change, at: int) -> dict[str, int]:
    retired = dict(manifest.retired)
    for path in change.retired:
        if path in manifest.files:
            raise Conflict(f"{path} is live")
        retired.setdefault(path, 0)  # nobody can be reading it
    retired.update(dict.fromkeys(change.removed, at))
    for path in change.forgotten:
        retired.pop(path, None)
    return retired


def join_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Gaps in their order; those that touch and have one reason become one."""
    joined: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: (gap.first, gap.last)):
        if joined and joined[-1].reason == gap.reason and gap.first <= joined[-1].last + 1:
            joined[-1] = Gap(joined[-1].first, max(joined[-1].last, gap.last), gap.reason)
        else:
            joined.append(gap)
    return tuple(joined)


def join_epochs(known: Mapping[int, Epoch], found: Mapping[int, Epoch]) -> dict[int, Epoch]:
    """What is known of epochs by two sides."""
    joined = dict(known)
    for number, epoch in found.items():
        other = joined.get(number, epoch)
        kept = [each.kept for each in (other, epoch) if each.kept is not None]
        joined[number] = Epoch(first=min(other.first, epoch.first), kept=max(kept, default=None))
    return joined


def _join_expired(entries: Iterable[Expired]) -> tuple[Expired, ...]:
    """One entry for each partition."""
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
    """Files by the values of their partition columns, in the order of these."""
    groups: dict[Partition, list[DataFile]] = {}
    for file in files:
        groups.setdefault(tuple(file.partition.items()), []).append(file)
    return dict(sorted(groups.items()))
