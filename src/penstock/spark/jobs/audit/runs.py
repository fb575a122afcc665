"""Runs: consecutive messages of one topic, compressed to one row.

A run represents thousands of rows losslessly, so that the comparison across all files of a lake stays small.
A row that does not continue the run before it begins a new one.

Tasks of an audit exchange rows: evidence about files and the log, and findings about topics.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NUMBERS = ("topic", "epoch", "sequence", "offset")
"""Columns that identify a message."""
_Numbers = npt.NDArray[np.int64]
_JOINED = pa.schema(
    {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "epoch": pa.int64(),
        "sequence": pa.int64(),
        "offset": pa.int64(),
    }
)
LOG = ""
"""Path of evidence from the log, where a file has its path."""
RUN, BEHIND, DAMAGED, READ, GAP = "run", "behind", "damaged", "read", "gap"
"""A run; rows out of order in their file; a damaged file; the number of rows read; and a gap of the log."""
ROWS_AT_ONCE = 10_000
EVIDENCE = pa.schema(
    {
        "kind": pa.string(),
        "path": pa.string(),
        "topic": pa.string(),
        "epoch": pa.int64(),
        "first": pa.int64(),
        "last": pa.int64(),
        "first_offset": pa.int64(),
        "last_offset": pa.int64(),
        "is_inside": pa.bool_(),
        "text": pa.string(),
    }
)
EVIDENCE_COLUMNS = (
    "kind string, path string, topic string, epoch long, first long, last long, "
    "first_offset long, last_offset long, is_inside boolean, text string"
)
FINDINGS = pa.schema(
    {
        "kind": pa.string(),
        "topic": pa.string(),
        "epoch": pa.int64(),
        "first": pa.int64(),
        "last": pa.int64(),
        "messages": pa.int64(),
        "reason": pa.string(),
        "path": pa.string(),
        "other": pa.string(),
        "after": pa.int64(),
        "before": pa.int64(),
    }
)
FINDING_COLUMNS = (
    "kind string, topic string, epoch long, first long, last long, messages long, "
    "reason string, path string, other string, after long, before long"
)


class Run(NamedTuple):
    """Messages of a topic with consecutive sequences and rising offsets."""

    topic: str
    epoch: int
    first: int
    last: int
    """Last sequence, inclusive."""
    first_offset: int
    last_offset: int
    path: str
    """The data file; empty for the log."""
    is_inside: bool
    """They are audited; other runs only serve as neighbours."""

    @property
    def messages(self) -> int:
        """Number of messages."""
        return self.last - self.first + 1

    @property
    def order(self) -> tuple[str, int, int, str]:
        """Sort key: by topic, then in publish order; the log before files."""
        return self.topic, self.epoch, self.first, self.path


class OffsetRange(NamedTuple):
    """Offsets after `after`, up to and including `until`."""

    after: int
    until: int

    def meets(self, after: int, before: int) -> bool:
        """The range has an offset between two others."""
        return max(after, self.after) + 1 <= min(before - 1, self.until)


class ScannedRows:
    """Messages of one file, or of a slice of the log, in file order."""

    def __init__(self, batches: Iterable[pa.RecordBatch], path: str, audited: OffsetRange) -> None:
        table = _concatenate(batches)
        self._path = path
        self._audited = audited
        names = table.column("topic").combine_chunks()
        self._names = names.dictionary.to_pylist() if len(names) else []
        codes = _numbers(names.indices) if len(names) else np.empty(0, np.int64)
        self.order = np.argsort(codes, kind="stable")  # by topic, in file order within a topic
        self._codes = codes[self.order]
        self._epochs, self._sequences, self._offsets = (
            _numbers(table.column(name).combine_chunks())[self.order] for name in NUMBERS[1:]
        )

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def topics(self) -> list[str]:
        """The topics of the rows."""
        return list(self._names)

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The lowest and the highest offset."""
        return (int(self._offsets.min()), int(self._offsets.max())) if len(self) else None

    def runs(self) -> Iterator[Run]:
        """All rows as runs, topic by topic."""
        return self._runs(np.arange(len(self)))

    def behind(self) -> Iterator[Run]:
        """Rows that follow a later message of their topic. A duplicate is not out of order."""
        keys = self._codes * (len(self) + 1) + self._ranks()
        highest = np.maximum.accumulate(keys)  # per topic, as all keys of the next topic are higher
        _, firsts = np.unique(keys, return_index=True)
        is_first = np.zeros(len(self), bool)
        is_first[firsts] = True
        return self._runs(np.flatnonzero((keys < highest) & is_first))

    def _ranks(self) -> _Numbers:
        """Rank of each row by epoch and sequence; equal rows share a rank."""
        order = np.lexsort((self._sequences, self._epochs))
        epochs, sequences = self._epochs[order], self._sequences[order]
        steps = (np.diff(epochs, prepend=epochs[:1]) != 0) | (np.diff(sequences, prepend=sequences[:1]) != 0)
        ranks = np.empty(len(self), np.int64)
        ranks[order] = np.cumsum(steps)
        return ranks

    def _runs(self, rows: _Numbers) -> Iterator[Run]:
        """Some of the rows, in order, as runs."""
        if not len(rows):
            return
        codes, epochs = self._codes[rows], self._epochs[rows]
        sequences, offsets = self._sequences[rows], self._offsets[rows]
        inside = (offsets > self._audited.after) & (offsets <= self._audited.until)
        goes_on = (
            (codes[1:] == codes[:-1])
            & (epochs[1:] == epochs[:-1])
            & (sequences[1:] == sequences[:-1] + 1)
            & (offsets[1:] > offsets[:-1])
            & (inside[1:] == inside[:-1])
        )
        starts = np.flatnonzero(np.concatenate(([True], ~goes_on)))
        ends = np.concatenate((starts[1:], [len(rows)])) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield Run(
                self._names[codes[start]],
                int(epochs[start]),
                int(sequences[start]),
                int(sequences[end]),
                int(offsets[start]),
                int(offsets[end]),
                self._path,
                bool(inside[start]),
            )


def _concatenate(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The identifying columns of all rows, with one dictionary of topics."""
    taken = []
    for batch in batches:
        columns = batch.select(NUMBERS)
        if any(column.null_count for column in columns.columns):
            raise ValueError("a row has no topic, epoch, sequence or offset")
        plain = [
            _encode(column).cast(field.type) for column, field in zip(columns.columns, _JOINED, strict=True)
        ]
        taken.append(pa.RecordBatch.from_arrays(plain, schema=_JOINED))
    return pa.Table.from_batches(taken, _JOINED)


def _encode(column: pa.Array) -> pa.Array:
    return (
        column
        if pa.types.is_dictionary(column.type) or pa.types.is_integer(column.type)
        else (column.dictionary_encode())
    )


def _numbers(column: pa.Array) -> _Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


class Kind(StrEnum):
    """Kind of a finding."""

    MISSING = "missing"
    """Not in the lake, and should be."""
    KNOWN = "known"
    """Not in the lake, for a declared or acceptable reason."""
    DOUBLE = "double"
    """More than once in the lake."""
    OUT_OF_ORDER = "out-of-order"
    """Not in publish order."""
    ONLY_IN_LOG = "only-in-log"
    """In the log, and should be in the lake."""
    CLAIM = "claim"
    """Messages of a bucket (`epoch`) between two offsets (`first`, `last`) that use up room of a reason."""
    SUM = "sum"
    """Number of messages of all topics that are missing for a known reason."""
    TALLY = "tally"
    """Statistics of what was compared; not a finding."""


class Finding(NamedTuple):
    """Statement about consecutive sequences of a topic."""

    kind: str
    topic: str
    epoch: int
    first: int
    last: int
    messages: int
    reason: str = ""
    path: str = ""
    """The data file in question."""
    other: str = ""
    """Of a double: the other file."""
    after: int | None = None
    """Published after this offset ..."""
    before: int | None = None
    """... and before this one."""


class Evidence(NamedTuple):
    """One row of evidence. The meaning of the numbers depends on the kind."""

    kind: str
    path: str
    topic: str | None = None
    epoch: int | None = None
    first: int | None = None
    last: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    is_inside: bool | None = None
    text: str | None = None

    @classmethod
    def of_run(cls, run: Run, kind: str = RUN) -> "Evidence":
        """A run as evidence."""
        return cls(
            kind,
            run.path,
            run.topic,
            run.epoch,
            run.first,
            run.last,
            run.first_offset,
            run.last_offset,
            run.is_inside,
        )


def to_batches(rows: Iterable[Evidence | Finding], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of some thousands."""
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_AT_ONCE)):
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*chunk, strict=True), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def read_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[Run]:
    """The runs in record batches with the columns of a run."""
    for batch in batches:
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in Run._fields]
        yield from map(Run._make, zip(*columns, strict=True))
