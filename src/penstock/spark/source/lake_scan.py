"""Lake side of a read: the archived part of history, its files in parts, and reading a part."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heapreplace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from penstock.client import Gap
from penstock.common.cursor import Position
from penstock.common.topics import ALL_LEVELS, covers, matches
from penstock.lake import DataFile, InvalidLake, Manifest, Table, lake_messages, read_file
from penstock.lake.manifest import Epoch, join_epochs, join_gaps
from penstock.model import Reason
from penstock.spark.errors import InvalidOption
from penstock.spark.options import PositionSpec
from penstock.spark.source.data_loss import subtract_ranges
from penstock.spark.source.log_scan import Portion
from penstock.spark.source.positions import Bounds, EpochOffset, Epochs, cursor_at, position_of
from penstock.spark.source.schema import EPOCH, OFFSET, PUBLISHED_AT, TOPIC

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ArchivedRows:
    """Messages of a lake, as seen through topic filters.

    It covers history after `begin`, up to and including `end`. Both change only by `refresh`.
    """

    def __init__(self, lake: str, filters: Sequence[str], parallelism: int) -> None:
        self._table = lake_messages(lake)
        self._filters = filters
        self._parallelism = parallelism
        self._manifest = Manifest()
        self.end: Position | None = None
        """None: nothing is archived yet."""
        self.begin = 0
        self._epochs = Epochs()
        self._forgiven: set[Gap] = set()
        self.refresh()

    def refresh(self) -> None:
        """Load the newest manifest.

        Raises:
            InvalidLake: there is no lake, or it is damaged.
            InvalidOption: the lake does not cover the filters.
        """
        self._manifest = self._table.manifest()
        if not self._manifest.version:
            raise InvalidLake(f"{self._table.path.parent}: there is no lake here")
        held = self._manifest.filters or (ALL_LEVELS,)
        for each in self._filters or (ALL_LEVELS,):
            if not any(covers(rule, each) for rule in held):
                raise InvalidOption(
                    f"this lake has the topics {', '.join(held)}, which do not cover {each}: "
                    "read the log alone, or choose another filter"
                )
        cursor, start = self._manifest.cursor, self._manifest.start
        self.end = None if cursor is None else position_of(cursor)
        self.begin = 0 if start is None else position_of(start).offset
        self._epochs = Epochs(self._manifest.epochs)

    def locate(self, position: Position) -> EpochOffset:
        """The epoch offset of a position."""
        return self._epochs.locate(position)

    def is_behind(self, position: Position) -> bool:
        """All archived rows come before a position."""
        assert self.end is not None
        return self.locate(position) >= self.locate(self.end)

    def is_ambiguous(self, position: Position) -> bool:
        """Only the server knows which is later: this position, or the end of the lake."""
        return (
            self.end is not None
            and position.epoch > self.end.epoch
            and position.offset < self.end.offset
            and self.end.epoch + 1 not in self._epochs.known
        )

    def set_cut(self, kept: int) -> None:
        """Note that a crash truncated the log after an offset, before the end of the lake."""
        assert self.end is not None
        cut = Epoch(first=kept + 1, kept=self.end.offset if kept < self.end.offset else None)
        self._epochs = Epochs(join_epochs(self._epochs.known, {self.end.epoch + 1: cut}))

    def accept_expired(self) -> None:
        """Do not report what was removed so far: it is not a loss for a read that begins now."""
        self._forgiven |= set(self._expired())

    def find(self, position: PositionSpec) -> int | None:
        """The offset before the first row, or before the first row since a time; None if there is none."""
        since = None if isinstance(position, str) else (position - _EPOCH) // _MICROSECOND
        found: list[int] = []
        for file in self._files():
            if file.first_offset is None or file.first_time is None or file.last_time is None:
                continue
            if since is None or file.first_time >= since:
                found.append(file.first_offset)
            elif file.last_time >= since:
                found += self._first_since(file, position)
        return min(found) - 1 if found else None

    def _first_since(self, file: DataFile, when: PositionSpec) -> Iterable[int]:
        for batch in read_file(self._table.absolute(file), [OFFSET, PUBLISHED_AT]):
            late = batch.filter(pc.greater_equal(batch.column(PUBLISHED_AT), when))
            if late.num_rows:
                yield pc.min(late.column(OFFSET)).as_py()

    def portion(
        self, after: Position, until: Position, limit_rows: int | None = None, limit_bytes: int | None = None
    ) -> Portion:
        """Rows between two positions within limits; never empty if there are rows."""
        low, _ = self._epochs.offsets(Bounds(self.locate(after), self.locate(until)))
        until = replace(until, offset=self._limited(low, until.offset, limit_rows, limit_bytes))
        bounds = Bounds(self.locate(after), self.locate(until))
        low, high = self._epochs.offsets(bounds)
        files = [file for file in self._files() if _shared(file, low, high)]
        return Portion(
            after=cursor_at(after, after.offset),
            until=cursor_at(until, until.offset),
            rows=self._most_rows(files, low, high),
            bytes=sum(_bytes(file, low, high) for file in files),
            parts=lake_parts(
                self._table,
                files,
                low,
                high,
                self._parallelism,
                bounds if self._epochs.needs(bounds) else None,
            ),
            gaps=[*self._epochs.lost(bounds), *self._gaps(low, until.offset)],
        )

    def rows_after(self, position: Position) -> int:
        """Upper bound of the archived rows after a position."""
        assert self.end is not None
        low, high = self._epochs.offsets(Bounds(self.locate(position), self.locate(self.end)))
        return self._most_rows(self._files(), low, high)

    def _files(self) -> Iterable[DataFile]:
        return self._manifest.files.values()

    def _limited(self, after: int, until: int, limit_rows: int | None, limit_bytes: int | None) -> int:
        """The last offset, up to `until`, within the limits; at least one that makes progress.

        Files end where batches of the archive ended, so cuts are cheap there.
        """
        if limit_rows is None and limit_bytes is None:
            return until
        files = [file for file in self._files() if _shared(file, after, until)]
        ends = sorted({until, *(min(file.last_offset or until, until) for file in files)})

        def is_too_far(end: int) -> bool:
            rows = self._most_rows(files, after, end)
            size = sum(_bytes(file, after, end) for file in files)
            return rows > (limit_rows or rows) or size > (limit_bytes or size)

        fitting = bisect_left(ends, True, key=is_too_far)
        if fitting:
            return ends[fitting - 1]
        if limit_rows is None or self._most_rows(files, after, ends[0]) <= limit_rows:
            return ends[0]
        return self._offset_of_row(limit_rows, files, after, ends[0])

    def _offset_of_row(self, number: int, files: Sequence[DataFile], after: int, until: int) -> int:
        """The offset of the n-th row after an offset; cuts merged files."""
        found = [
            batch.column(OFFSET).to_numpy()
            for file in files
            if _shared(file, after, until)
            for batch in read_file(self._table.absolute(file), [OFFSET], after + 1, until)
        ]
        offsets = np.concatenate([*found, np.array([], np.int64)])
        return until if len(offsets) <= number else int(np.partition(offsets, number - 1)[number - 1])

    def _gaps(self, after: int, until: int) -> list[Gap]:
        expired = [gap for gap in self._expired() if gap not in self._forgiven]
        outside = [(0, after), (until + 1, 1 << 63)]
        return list(join_gaps(subtract_ranges([*self._manifest.gaps, *expired], outside)))

    def _expired(self) -> Iterable[Gap]:
        return (Gap(each.first_offset, each.last_offset, Reason.EXPIRED) for each in self._manifest.expired)

    def _most_rows(self, files: Iterable[DataFile], after: int, until: int) -> int:
        """Upper bound of the rows of files in a range."""
        rows = sum(_rows(file, after, until) for file in files)
        # At most one row per offset, unless offsets were assigned twice.
        return min(rows, until - after) if self._epochs.is_plain else rows


def _shared(file: DataFile, after: int, until: int) -> int:
    """Number of offsets of a file in a range."""
    if file.first_offset is None or file.last_offset is None:
        return 0
    return max(min(file.last_offset, until) - max(file.first_offset, after + 1) + 1, 0)


def _rows(file: DataFile, after: int, until: int) -> int:
    """Upper bound of the rows of a file in a range."""
    return min(file.rows, _shared(file, after, until))


def _bytes(file: DataFile, after: int, until: int) -> int:
    """Estimated bytes of a file in a range."""
    return file.bytes * _rows(file, after, until) // max(file.rows, 1)


@dataclass(frozen=True)
class LakePart(InputPartition):
    """Rows of some files with offsets after `after`, up to and including `until`."""

    files: tuple[str, ...]
    after: int
    until: int
    bounds: Bounds | None = None
    """Only rows within these bounds; None if offsets alone determine the rows."""


def lake_parts(
    table: Table,
    files: Sequence[DataFile],
    after: int,
    until: int,
    parallelism: int,
    bounds: Bounds | None = None,
) -> list[LakePart]:
    """Group files into parts of about the same size, to be read in parallel."""
    groups: list[list[str]] = [[] for _ in range(min(parallelism, len(files)))]
    sizes = [(0, number) for number in range(len(groups))]
    for file in sorted(files, key=lambda file: file.bytes, reverse=True):
        size, smallest = sizes[0]
        groups[smallest].append(str(table.absolute(file)))
        heapreplace(sizes, (size + file.bytes, smallest))
    return [LakePart(tuple(paths), after, until, bounds) for paths in groups]


def read_lake_part(part: LakePart, filters: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part that match the filters.

    Args:
        schema: the columns; those that older files lack are null.

    Raises:
        DamagedFile: a file is unreadable; the text names it.
        InvalidLake: a file was replaced and deleted since the read was planned.
    """
    needed = [pa.field(TOPIC, pa.string())]
    if part.bounds is not None:
        needed += [pa.field(EPOCH, pa.int64()), pa.field(OFFSET, pa.int64())]
    extra = [field for field in needed if field.name not in schema.names]
    asked = pa.schema([*schema, *extra])
    wanted = TopicSelection(filters)
    for path in part.files:
        try:
            for batch in read_file(path, first_offset=part.after + 1, last_offset=part.until, schema=asked):
                rows = wanted.keep(batch if part.bounds is None else _within(batch, part.bounds))
                if rows.num_rows:
                    yield rows.select(schema.names) if extra else rows
        except FileNotFoundError:
            raise InvalidLake(f"{path} was replaced since this query was planned: run it again") from None


def _within(batch: pa.RecordBatch, bounds: Bounds) -> pa.RecordBatch:
    return batch.filter(pc.and_not(_is_seen(batch, bounds.until), _is_seen(batch, bounds.after)))


def _is_seen(batch: pa.RecordBatch, at: EpochOffset) -> pa.Array:
    """Mask of the rows that are not after an epoch offset."""
    epochs, offsets = batch.column(EPOCH), batch.column(OFFSET)
    is_same = pc.and_(pc.equal(epochs, at[0]), pc.less_equal(offsets, at[1]))
    return pc.or_(pc.less(epochs, at[0]), is_same)


class TopicSelection:
    """Topic filters, with the same matching rules as the server."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = filters
        self._known: dict[str, bool] = {}

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose topics match."""
        coded = batch.column(TOPIC).dictionary_encode()
        chosen = [self._is_known(topic) for topic in coded.dictionary.to_pylist()]
        if all(chosen):
            return batch
        return batch.filter(pc.take(pa.array(chosen, pa.bool_()), coded.indices))

    def _is_known(self, topic: str) -> bool:
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = self._is_wanted(topic)
        return found

    def _is_wanted(self, topic: str) -> bool:
        """Topics that begin with `$` match only filters that begin with it."""
        filters = self._filters or (ALL_LEVELS,)
        return any(matches(each, topic) for each in filters)
