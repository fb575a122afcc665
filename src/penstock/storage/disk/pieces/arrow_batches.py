"""Reads of sealed Arrow batches: whole, or some rows and columns, decoded only as far as needed."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import sub
from sys import maxsize
from typing import Literal

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.ports.log import Listing
from penstock.core.replay.sources import LEAST_BYTES
from penstock.errors import WireError
from penstock.runs import Run
from penstock.storage.disk.pieces.arrow_columns import (
    LISTED_COLUMNS,
    RUN_COLUMNS,
    SCHEMA,
    decode_batch,
    encode_batch,
    to_batch,
    to_runs,
)
from penstock.storage.disk.pieces.frames import Frame
from penstock.storage.disk.pieces.piece import Contents, NotReadable, Piece, Rows, Taken, WantedTopics
from penstock.wire.arrow import cut

TAIL_MESSAGES = 10_000
"""Unsealed messages per stream."""


class Stream(Struct, frozen=True):
    """Complete Arrow stream; `reached` is the offset of its last row if the limit was reached."""

    data: bytes
    rows: int
    reached: int | None = None


class Batch:
    """Contents of a sealed batch, decoded on use, which may raise `NotReadable`."""

    def __init__(self, piece: Piece, data: bytes) -> None:
        self.piece = piece
        self._data = data
        self._rows: pa.RecordBatch | None = None

    @property
    def nbytes(self) -> int:
        return len(self._data) + (self._rows.nbytes if self._rows is not None else 0)

    @property
    def rows(self) -> pa.RecordBatch:
        """The columns that runs are made of."""
        if self._rows is None:
            self._rows = self._unpack(RUN_COLUMNS)
        return self._rows

    def take(self, after: int, until: int, limit_bytes: int, wanted_topics: WantedTopics | None) -> Taken:
        flags = self._flags(wanted_topics)
        if not any(flags):
            return Taken([])
        rows = _matching(_between(self.rows, after, until), flags)
        fitting = _fitting(rows, limit_bytes)
        if fitting == rows.num_rows:
            return Taken(_runs_of(rows))
        reached = rows.column("offset")[fitting].as_py() - 1
        return Taken(_runs_of(rows.slice(0, fitting)), reached)

    def fetch(self, offsets: Sequence[int]) -> dict[int, Run]:
        known = _offsets_of(self.rows)
        places = [
            place
            for offset in sorted(offsets)
            if (place := bisect_left(known, offset)) < len(known) and known[place] == offset
        ]
        return {run.offset: run for run in _runs_of(_take(self.rows, places))}

    def listing(self, after: int, until: int, wanted_topics: WantedTopics) -> Listing:
        batch = self._unpack(LISTED_COLUMNS)
        coded, payloads, known = batch.column("topic"), batch.column("payload"), _offsets_of(batch)
        names: list[str] = coded.dictionary.to_pylist()
        flags = list(map(wanted_topics.__getitem__, names))
        start, stop = bisect_right(known, after), bisect_right(known, until)
        topics, levels = _view(coded.indices, "i"), _view(batch.column("qos"), "b")
        ends = memoryview(payloads.buffers()[1]).cast("B").cast("i")[payloads.offset :][: len(payloads) + 1]
        sizes = list(map(sub, ends[start + 1 : stop + 1], ends[start:stop]))
        rows: Sequence[int] = range(start, stop)
        may_expire = batch.column("expires_at").null_count < batch.num_rows

        def make_runs() -> list[Run]:
            return _runs_of(_take(self.rows, rows))

        if all(flags) and 0 not in levels[start:stop].tobytes():
            return Listing(names, topics[start:stop], known[start:stop], sizes, may_expire, make_runs)
        rows = [row for row in rows if levels[row] and flags[topics[row]]]
        chosen = [topics[row] for row in rows], [known[row] for row in rows]
        return Listing(names, *chosen, [sizes[row - start] for row in rows], may_expire, make_runs)

    def find_time(self, wall_us: int) -> int | None:
        """Offset of the first message at or after a time, if there is one."""
        batch = self._unpack(["offset", "published_at"])
        times = batch.column("published_at").view(pa.int64()).to_pylist()
        place = next((place for place, time in enumerate(times) if time >= wall_us), None)
        return None if place is None else _offsets_of(batch)[place]

    def stream(
        self,
        after: int,
        until: int,
        wanted_topics: WantedTopics | None,
        columns: Sequence[str] | None,
        limit_rows: int = maxsize,
        *,
        is_all: bool = False,
    ) -> Stream:
        """Rows between two offsets; the stored bytes if the whole batch is wanted.

        Args:
            is_all: all topics are known to be wanted.
        """
        is_whole = after < self.piece.first and self.piece.last <= until
        if (
            is_whole
            and (is_all or wanted_topics is None)
            and columns is None
            and self.piece.count <= limit_rows
        ):
            if self._is_as_sent():
                is_full = self.piece.count == limit_rows
                return Stream(self._data, self.piece.count, self.piece.last if is_full else None)
            wanted_topics = None
        needed = SCHEMA.names if columns is None else {*columns, "offset", "topic"}
        batch = self._unpack([name for name in SCHEMA.names if name in needed])
        rows = _matching(_between(batch, after, until), _flags_of(batch, None if is_all else wanted_topics))
        reached = None
        if rows.num_rows >= limit_rows:
            rows = rows.slice(0, limit_rows)
            reached = rows.column("offset")[-1].as_py()
        if columns is None and rows.num_rows == batch.num_rows and self._is_as_sent():
            return Stream(self._data, rows.num_rows, reached)
        return Stream(_encode(rows, columns, is_all=rows.num_rows == batch.num_rows), rows.num_rows, reached)

    def _is_as_sent(self) -> bool:
        """The stored schema is the one that readers receive."""
        try:
            return cut(self._data).schema == _SCHEMA_MESSAGE
        except WireError as error:
            raise NotReadable from error

    def _flags(self, wanted_topics: WantedTopics | None) -> list[bool]:
        """For each topic, whether it is wanted. Only topics are decoded: often nothing else is needed."""
        if wanted_topics is None:
            return [True]
        return _flags_of(self._unpack(["topic"]) if self._rows is None else self._rows, wanted_topics)

    def _unpack(self, columns: Sequence[str]) -> pa.RecordBatch:
        try:
            return decode_batch(self._data, columns)
        except ValueError as error:
            raise NotReadable from error


class Streams:
    """Collects a range of offsets, piece by piece, as complete Arrow streams."""

    def __init__(
        self,
        node_id: str,
        after: int,
        until: int,
        wanted_topics: WantedTopics | None,
        columns: Sequence[str] | None,
        limit_rows: int = maxsize,
        *,
        is_all: Callable[[Piece], bool] = lambda piece: False,
    ) -> None:
        """Start empty.

        Args:
            is_all: True for a sealed piece if all its topics are known to be wanted.

        Raises:
            ValueError: unknown column.
        """
        for name in columns or ():
            if name not in SCHEMA.names:
                raise ValueError(f"there is no column {name}")
        self._node_id = node_id
        self._after = after
        self._until = until
        self._wanted_topics = wanted_topics
        self._columns = columns
        self._room = limit_rows  # remaining rows
        self._is_all = is_all
        self._tail: list[Frame] = []  # unsealed frames, not encoded yet
        self._tail_rows = self._tail_bytes = 0
        self._size = 0
        self.streams: list[bytes] = []
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """Approximate size so far."""
        return self._size + self._tail_bytes

    def add(self, contents: Contents, position: int) -> int | None:
        """Add the wanted rows of the next piece; return the last offset if the limit was reached.

        Args:
            position: everything up to here was added. A batch may begin earlier, if frames were sealed since.
        """
        if isinstance(contents, Rows):
            return self._add_frame(contents)
        assert isinstance(contents, Batch)
        self.finish()
        found = contents.stream(
            position,
            self._until,
            self._wanted_topics,
            self._columns,
            self._room,
            is_all=self._is_all(contents.piece),
        )
        self._room -= found.rows
        self._append(found.data, found.rows)
        return found.reached

    def _add_frame(self, contents: Rows) -> int | None:
        frame, wanted_topics, after, until = contents.frame, self._wanted_topics, self._after, self._until
        runs = [
            run
            for run in frame.runs
            if run.offset <= until
            and run.offset + run.count > after + 1
            and (wanted_topics is None or wanted_topics[run.topic])
        ]
        reached = None
        if rows := sum(_count(run, self._after, self._until) for run in runs):
            if rows >= self._room:
                rows, reached = self._room, _last_of(runs, self._after, self._room)
                self._until = reached
            self._room -= rows
            self._tail.append(replace(frame, runs=runs))
            self._tail_rows += rows
            self._tail_bytes += contents.stored_bytes
            if self._tail_rows >= TAIL_MESSAGES:
                self.finish()
        return reached

    def finish(self) -> None:
        """Encode the collected unsealed frames."""
        if self._tail:
            batch = to_batch(self._tail, self._node_id)
            rows = _between(batch, self._after, self._until)
            is_all = rows.num_rows == batch.num_rows
            self._append(_encode(rows, self._columns, is_all=is_all), rows.num_rows)
            self._tail, self._tail_rows, self._tail_bytes = [], 0, 0

    def _append(self, stream: bytes, rows: int) -> None:
        if rows:
            self.streams.append(stream)
            self._size += len(stream)
            self.rows += rows


def encode_end(columns: Sequence[str] | None, metadata: Mapping[str, str]) -> bytes:
    """Complete Arrow stream with one empty batch that carries metadata."""
    schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        batch = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        writer.write_batch(batch, custom_metadata=dict(metadata))
    return bytes(sink.getvalue().to_pybytes())


_SCHEMA_MESSAGE = bytes(cut(encode_end(None, {})).schema)


def _count(run: Run, after: int, until: int) -> int:
    """Number of messages of a run between two offsets."""
    return max(min(run.last_offset, until) - max(run.offset - 1, after), 0)


def _last_of(runs: Iterable[Run], after: int, count: int) -> int:
    """Offset of the `count`th message after an offset; there are at least that many."""
    for run in runs:
        found = _count(run, after, maxsize)
        if found >= count:
            return max(run.offset - 1, after) + count
        count -= found
    raise AssertionError("too few messages")


def _runs_of(rows: pa.RecordBatch) -> list[Run]:
    try:
        return to_runs(rows)
    except (ValueError, LookupError) as error:
        raise NotReadable from error


def _encode(rows: pa.RecordBatch, columns: Sequence[str] | None, *, is_all: bool) -> bytes:
    """Encode some rows and columns as a complete stream.

    Args:
        is_all: these are all rows of their batch.
    """
    if not rows.num_rows:
        return b""
    chosen = rows if columns is None else rows.select(list(columns))
    arrays = chosen.columns if is_all else [_with_own_names(array) for array in chosen.columns]
    schema = pa.schema([SCHEMA.field(name) for name in chosen.schema.names])  # without stored metadata
    return encode_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _with_own_names(array: pa.Array) -> pa.Array:
    """Column with a dictionary of its own values only: others may be secret to this reader."""
    if not pa.types.is_dictionary(array.type):
        return array
    from pyarrow import compute  # noqa: PLC0415 - slow, and seldom needed at start

    own = compute.drop_null(compute.unique(array.indices))
    return pa.DictionaryArray.from_arrays(compute.index_in(array.indices, own), array.dictionary.take(own))


def _between(batch: pa.RecordBatch, after: int, until: int) -> pa.RecordBatch:
    offsets = _offsets_of(batch)
    start, stop = bisect_right(offsets, after), bisect_right(offsets, until)
    return batch if stop - start == batch.num_rows else batch.slice(start, stop - start)


def _flags_of(batch: pa.RecordBatch, wanted_topics: WantedTopics | None) -> list[bool]:
    """For each topic of a batch, whether it is wanted."""
    if wanted_topics is None:
        return [True]
    return list(map(wanted_topics.__getitem__, batch.column("topic").dictionary.to_pylist()))


def _matching(rows: pa.RecordBatch, flags: list[bool]) -> pa.RecordBatch:
    """Rows whose topic is flagged."""
    if all(flags):
        return rows
    topics = _view(rows.column("topic").indices, "i")
    return _take(rows, [row for row, topic in enumerate(topics) if flags[topic]])


def _fitting(rows: pa.RecordBatch, limit_bytes: int) -> int:
    """Number of rows that make about `limit_bytes`; the last one may exceed it."""
    count = min(rows.num_rows, -(-limit_bytes // LEAST_BYTES))
    payloads = rows.column("payload")
    ends = memoryview(payloads.buffers()[1]).cast("B").cast("i")[payloads.offset :][: count + 1]
    return min(bisect_left(ends, ends[0] + limit_bytes), count) if count else 0


def _take(rows: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    """Some rows. `pa.array` would import pandas, if it is installed, which takes longer than a start."""
    indices = pa.py_buffer(array("i", places))
    return rows.take(pa.Array.from_buffers(pa.int32(), len(places), [None, indices]))


def _offsets_of(batch: pa.RecordBatch) -> "memoryview[int]":
    """Ascending offsets of a batch, without a copy."""
    return _view(batch.column("offset"), "q")


def _view(column: pa.Array, form: Literal["b", "i", "q"]) -> "memoryview[int]":
    """Values of a column without nulls, without a copy."""
    return memoryview(column.buffers()[1]).cast("B").cast(form)[column.offset :][: len(column)]
