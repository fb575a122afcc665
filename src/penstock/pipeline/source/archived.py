"""The lake as planning sees it: which rows of the log it has, and in which files."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace

from penstock.client import Gap
from penstock.core.ports import Position
from penstock.core.topics import ALL_LEVELS, covers
from penstock.pipeline.lake import DataFile, InvalidLake, Manifest, lake_messages, read_file
from penstock.pipeline.lake.manifest import Epoch, join_epochs, join_gaps
from penstock.pipeline.source.epochs import Bounds, Epochs, Spot
from penstock.pipeline.source.errors import InvalidOption
from penstock.pipeline.source.lake_part import lake_parts
from penstock.pipeline.source.live import Portion
from penstock.pipeline.source.missing import EXPIRED, without
from penstock.pipeline.source.offsets import cursor_at, position_of
from penstock.pipeline.source.options import Place
from penstock.pipeline.source.schema import OFFSET, PUBLISHED_AT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ArchivedRows:
    """The messages of a lake, for somebody who wants the topics of some filters.

    It has what lies behind `begin`, up to and including `end`. Both stay as they are until the next `look`.
    """

    def __init__(self, lake: str, filters: Sequence[str], parallelism: int) -> None:
        self._table = lake_messages(lake)
        self._filters = filters
        self._parallelism = parallelism
        self._manifest = Manifest()
        self.end: Position | None = None
        """None: nothing was archived yet."""
        self.begin = 0
        self._epochs = Epochs()
        self._forgiven: set[Gap] = set()
        self.look()

    def look(self) -> None:
        """See what there is by now.

        Raises:
            InvalidLake: there is no lake here, or it is damaged.
            InvalidOption: it does not have all topics that are asked for.
        """
        self._manifest = self._table.manifest()
        if not self._manifest.version:
            raise InvalidLake(f"{self._table.path.parent}: there is no lake here")
        held = self._manifest.filters or (ALL_LEVELS,)
        for each in self._filters or (ALL_LEVELS,):
            if not any(covers(rule, each) for rule in held):
                raise InvalidOption(
                    f"this lake has the topics {', '.join(held)}, which are not all of {each}: "
                    "read the log alone, or choose another filter"
                )
        cursor, start = self._manifest.cursor, self._manifest.start
        self.end = None if cursor is None else position_of(cursor)
        self.begin = 0 if start is None else position_of(start).offset
        self._epochs = Epochs(self._manifest.epochs)

    def spot(self, place: Position) -> Spot:
        """A place in the order of history."""
        return self._epochs.spot(place)

    def is_behind(self, place: Position) -> bool:
        """Whether all that the lake has lies before a place."""
        assert self.end is not None
        return self.spot(place) >= self.spot(self.end)

    def doubts(self, place: Position) -> bool:
        """Whether it takes the server to say which of two is later: this place, or the lake's end."""
        return (
            self.end is not None
            and place.epoch > self.end.epoch
            and place.offset < self.end.offset
            and self.end.epoch + 1 not in self._epochs.known
        )

    def learn(self, kept: int) -> None:
        """The log has what the lake ends with, up to an offset; a crash took the rest."""
        assert self.end is not None
        cut = Epoch(first=kept + 1, kept=self.end.offset if kept < self.end.offset else None)
        self._epochs = Epochs(join_epochs(self._epochs.known, {self.end.epoch + 1: cut}))

    def forgive(self) -> None:
        """What was removed by now is no loss to who begins now."""
        self._forgiven |= set(self._expired())

    def find(self, place: Place) -> int | None:
        """The offset behind which its first row lies, or all from a time on; None if there is none."""
        since = None if isinstance(place, str) else (place - _EPOCH) // _MICROSECOND
        found: list[int] = []
        for file in self._files():
            if file.first_offset is None or file.first_time is None or file.last_time is None:
                continue
            if since is None or file.first_time >= since:
                found.append(file.first_offset)
            elif file.last_time >= since:
                found += self._first_since(file, place)
        return min(found) - 1 if found else None

    def _first_since(self, file: DataFile, when: Place) -> Iterable[int]:
        for batch in read_file(self._table.absolute(file), [OFFSET, PUBLISHED_AT]):
            late = batch.filter(pc.greater_equal(batch.column(PUBLISHED_AT), when))
            if late.num_rows:
                yield pc.min(late.column(OFFSET)).as_py()

    def portion(
        self, after: Position, until: Position, limit_rows: int | None = None, limit_bytes: int | None = None
    ) -> Portion:
        """What lies between two places, within some limits; never nothing if there is something."""
        low, _ = self._epochs.offsets(Bounds(self.spot(after), self.spot(until)))
        until = replace(until, offset=self._limited(low, until.offset, limit_rows, limit_bytes))
        bounds = Bounds(self.spot(after), self.spot(until))
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

    def rows_after(self, place: Position) -> int:
        """How many rows it has behind a place, at most."""
        assert self.end is not None
        low, high = self._epochs.offsets(Bounds(self.spot(place), self.spot(self.end)))
        return self._most_rows(self._files(), low, high)

    def _files(self) -> Iterable[DataFile]:
        return self._manifest.files.values()

    def _limited(self, after: int, until: int, limit_rows: int | None, limit_bytes: int | None) -> int:
        """The last offset, up to `until`, that keeps the limits; or one that gets a little further.

        Files end where batches of the archive ended: that is where cuts are cheap.
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
        """The offset of a row, counted from a place on; where files that were merged are cut."""
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
        return list(join_gaps(without([*self._manifest.gaps, *expired], outside)))

    def _expired(self) -> Iterable[Gap]:
        return (Gap(each.first_offset, each.last_offset, EXPIRED) for each in self._manifest.expired)

    def _most_rows(self, files: Iterable[DataFile], after: int, until: int) -> int:
        """How many rows files have in a stretch, at most."""
        rows = sum(_rows(file, after, until) for file in files)
        # There is one for each offset, whichever file has it, unless offsets were given twice.
        return min(rows, until - after) if self._epochs.is_plain else rows


def _shared(file: DataFile, after: int, until: int) -> int:
    """How many offsets of a file lie in a stretch."""
    if file.first_offset is None or file.last_offset is None:
        return 0
    return max(min(file.last_offset, until) - max(file.first_offset, after + 1) + 1, 0)


def _rows(file: DataFile, after: int, until: int) -> int:
    """How many rows of a file lie in a stretch, at most."""
    return min(file.rows, _shared(file, after, until))


def _bytes(file: DataFile, after: int, until: int) -> int:
    """How many bytes of a file lie in a stretch, about."""
    return file.bytes * _rows(file, after, until) // max(file.rows, 1)
