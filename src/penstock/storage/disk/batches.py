"""Sealed batches as a reader uses them: whole, or some rows and columns; unpacked no further than needed."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from sys import maxsize

import pyarrow as pa

from penstock.core.sources import LEAST_BYTES
from penstock.model import Run
from penstock.storage.disk.columns import (
    RUN_COLUMNS,
    SCHEMA,
    decode_batch,
    encode_batch,
    to_batch,
    to_runs,
)
from penstock.storage.disk.contents import Asked, Contents, NotReadable, Rows, Taken
from penstock.storage.disk.index import Piece
from penstock.storage.disk.records import Frame

TAIL_MESSAGES = 10_000
"""How many messages that are not sealed make one stream."""


class Batch:
    """A sealed batch. Whatever looks into it may find that it is none, and raises `NotReadable`."""

    def __init__(self, piece: Piece, data: bytes) -> None:
        self._piece = piece
        self._data = data
        self._rows: pa.RecordBatch | None = None

    @property
    def nbytes(self) -> int:
        return len(self._data) + (self._rows.nbytes if self._rows is not None else 0)

    @property
    def rows(self) -> pa.RecordBatch:
        """Everything that runs are made of."""
        if self._rows is None:
            self._rows = self._unpack(RUN_COLUMNS)
        return self._rows

    def take(self, after: int, until: int, limit_bytes: int, asked: Asked | None) -> Taken:
        flags = self._flags(asked)
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
        return {run.offset: run for run in _runs_of(self.rows.take(pa.array(places, pa.int32())))}

    def acknowledged(self, after: int, asked: Asked) -> Iterable[Run]:
        rows = _matching(_between(self.rows, after, maxsize), self._flags(asked))
        levels = rows.column("qos").to_pylist()
        if not all(levels):
            rows = rows.take(pa.array([place for place, level in enumerate(levels) if level], pa.int32()))
        return _runs_of(rows)

    def stream(
        self, after: int, until: int, asked: Asked | None, columns: Sequence[str] | None
    ) -> tuple[bytes, int]:
        """Rows between two offsets as a stream, and how many: the stored one where all of it is asked for."""
        is_whole = after < self._piece.first and self._piece.last <= until
        if is_whole and asked is None and columns is None and self._data:
            return self._data, self._piece.count
        needed = SCHEMA.names if columns is None else {*columns, "offset", "topic"}
        batch = self._unpack([name for name in SCHEMA.names if name in needed])
        rows = _matching(_between(batch, after, until), _flags_of(batch, asked))
        if columns is None and rows.num_rows == batch.num_rows:
            return self._data, rows.num_rows
        return _encode(rows, columns), rows.num_rows

    def _flags(self, asked: Asked | None) -> list[bool]:
        """Of each topic whether it is asked for. Topics are unpacked first: often nothing else is needed."""
        if asked is None:
            return [True]
        return _flags_of(self._unpack(["topic"]) if self._rows is None else self._rows, asked)

    def _unpack(self, columns: Sequence[str]) -> pa.RecordBatch:
        try:
            return decode_batch(self._data, columns)
        except ValueError as error:
            raise NotReadable from error


class Streams:
    """Gathers what is between two offsets, piece by piece, as complete streams."""

    def __init__(
        self, node_id: str, after: int, until: int, asked: Asked | None, columns: Sequence[str] | None
    ) -> None:
        """Begin with nothing.

        Raises:
            ValueError: there is no such column.
        """
        for name in columns or ():
            if name not in SCHEMA.names:
                raise ValueError(f"there is no column {name}")
        self._node_id = node_id
        self._after = after
        self._until = until
        self._asked = asked
        self._columns = columns
        self._tail: list[Frame] = []  # not sealed, and not made into a stream yet
        self._tail_messages = self._tail_bytes = 0
        self._size = 0
        self.streams: list[bytes] = []
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """How much there is, about."""
        return self._size + self._tail_bytes

    def add(self, contents: Contents) -> None:
        """Add what is asked for of the next piece."""
        if isinstance(contents, Rows):
            self._tail.append(contents.frame)
            self._tail_messages += sum(run.count for run in contents.frame.runs)
            self._tail_bytes += contents.stored_bytes
            if self._tail_messages >= TAIL_MESSAGES:
                self.finish()
        else:
            assert isinstance(contents, Batch)
            self.finish()
            self._append(*contents.stream(self._after, self._until, self._asked, self._columns))

    def finish(self) -> None:
        """Make a stream of what is not sealed."""
        if self._tail:
            batch = to_batch(self._tail, self._node_id)
            rows = _matching(_between(batch, self._after, self._until), _flags_of(batch, self._asked))
            self._append(_encode(rows, self._columns), rows.num_rows)
            self._tail, self._tail_messages, self._tail_bytes = [], 0, 0

    def _append(self, stream: bytes, rows: int) -> None:
        if rows:
            self.streams.append(stream)
            self._size += len(stream)
            self.rows += rows


def _runs_of(rows: pa.RecordBatch) -> list[Run]:
    try:
        return to_runs(rows)
    except (ValueError, LookupError) as error:
        raise NotReadable from error


def _encode(rows: pa.RecordBatch, columns: Sequence[str] | None) -> bytes:
    """Some rows, and some columns of them, as a complete stream."""
    chosen = rows if columns is None else rows.select(list(columns))
    return encode_batch(_without_ballast(chosen)) if rows.num_rows else b""


def _without_ballast(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Few rows of a batch need not carry all its names."""
    arrays = [
        array.dictionary_decode().dictionary_encode()
        if pa.types.is_dictionary(array.type) and len(array.dictionary) > rows.num_rows
        else array
        for array in rows.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def _between(batch: pa.RecordBatch, after: int, until: int) -> pa.RecordBatch:
    offsets = _offsets_of(batch)
    start, stop = bisect_right(offsets, after), bisect_right(offsets, until)
    return batch if stop - start == batch.num_rows else batch.slice(start, stop - start)


def _flags_of(batch: pa.RecordBatch, asked: Asked | None) -> list[bool]:
    """Of each topic of a batch whether it is asked for; each is looked at once."""
    if asked is None:
        return [True]
    return list(map(asked.__getitem__, batch.column("topic").dictionary.to_pylist()))


def _matching(rows: pa.RecordBatch, flags: list[bool]) -> pa.RecordBatch:
    """The rows whose topics have a flag."""
    if all(flags):
        return rows
    from pyarrow import compute  # noqa: PLC0415 - it takes a while, and a start needs it seldom

    is_wanted = pa.array(flags, pa.bool_()).take(rows.column("topic").indices)
    return rows.take(compute.indices_nonzero(is_wanted))


def _fitting(rows: pa.RecordBatch, limit_bytes: int) -> int:
    """How many of some rows make about `limit_bytes`: the last one may be more than fits."""
    count = min(rows.num_rows, -(-limit_bytes // LEAST_BYTES))
    payloads = rows.column("payload")
    ends = memoryview(payloads.buffers()[1]).cast("B").cast("i")[payloads.offset :][: count + 1]
    return min(bisect_left(ends, ends[0] + limit_bytes), count) if count else 0


def _offsets_of(batch: pa.RecordBatch) -> "memoryview[int]":
    """The offsets of a batch, which rise, without a copy."""
    column = batch.column("offset")
    return memoryview(column.buffers()[1]).cast("B").cast("q")[column.offset :][: len(column)]
