"""Rows reduced to runs: messages of one topic that stand one behind another and count on by one.

A run says the same as its rows and takes one line for thousands of them, so that what has to be compared
across all files of a lake stays small. Nothing is left out on the way: a row that does not continue the run
before it begins another.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NUMBERS = ("topic", "epoch", "sequence", "offset")
"""The columns that say which message a row is."""

_Numbers = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Messages of a topic with consecutive sequences, whose offsets rise."""

    topic: str
    epoch: int
    first: int
    last: int
    """Sequences, both included."""
    first_offset: int
    last_offset: int
    path: str
    """The data file they are in; empty for the log."""
    is_inside: bool
    """They belong to what is audited; the others are only its neighbours."""

    @property
    def messages(self) -> int:
        """How many messages."""
        return self.last - self.first + 1

    @property
    def order(self) -> tuple[str, int, int, str]:
        """By topic, then as they were published; what the log has comes before what a file has of it."""
        return self.topic, self.epoch, self.first, self.path


class Stretch(NamedTuple):
    """The offsets behind `after`, up to and including `until`."""

    after: int
    until: int

    def meets(self, after: int, before: int) -> bool:
        """Whether there is an offset of it between two others."""
        return max(after, self.after) + 1 <= min(before - 1, self.until)


class Rows:
    """Which messages the rows of one file, or of a part of the log, are; in the order they stand there."""

    def __init__(self, batches: Iterable[pa.RecordBatch], path: str, stretch: Stretch) -> None:
        table = _joined(batches)
        self._path = path
        self._stretch = stretch
        names = table.column("topic").combine_chunks()
        self._names = names.dictionary.to_pylist() if len(names) else []
        codes = _numbers(names.indices) if len(names) else np.empty(0, np.int64)
        self.order = np.argsort(codes, kind="stable")  # by topic, and there as they stand
        self._codes = codes[self.order]
        self._epochs, self._sequences, self._offsets = (
            _numbers(table.column(name).combine_chunks())[self.order] for name in NUMBERS[1:]
        )

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def topics(self) -> list[str]:
        """The topics that there are."""
        return list(self._names)

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The lowest and the highest offset."""
        return (int(self._offsets.min()), int(self._offsets.max())) if len(self) else None

    def runs(self) -> Iterator[Run]:
        """All of them as runs, topic by topic."""
        return self._runs(np.arange(len(self)))

    def behind(self) -> Iterator[Run]:
        """Those that stand behind a later message of their topic. A repeated one is not out of order."""
        keys = self._codes * (len(self) + 1) + self._ranks()
        highest = np.maximum.accumulate(keys)  # of each topic, because the next topic's keys are all higher
        _, firsts = np.unique(keys, return_index=True)
        is_first = np.zeros(len(self), bool)
        is_first[firsts] = True
        return self._runs(np.flatnonzero((keys < highest) & is_first))

    def _ranks(self) -> _Numbers:
        """For each row its place among all pairs of epoch and sequence; equal ones share it."""
        order = np.lexsort((self._sequences, self._epochs))
        epochs, sequences = self._epochs[order], self._sequences[order]
        steps = (np.diff(epochs, prepend=epochs[:1]) != 0) | (np.diff(sequences, prepend=sequences[:1]) != 0)
        ranks = np.empty(len(self), np.int64)
        ranks[order] = np.cumsum(steps)
        return ranks

    def _runs(self, rows: _Numbers) -> Iterator[Run]:
        """Some of the rows, in their order, as runs."""
        if not len(rows):
            return
        codes, epochs = self._codes[rows], self._epochs[rows]
        sequences, offsets = self._sequences[rows], self._offsets[rows]
        inside = (offsets > self._stretch.after) & (offsets <= self._stretch.until)
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


_JOINED = pa.schema(
    {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "epoch": pa.int64(),
        "sequence": pa.int64(),
        "offset": pa.int64(),
    }
)


def _joined(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The numbers of all rows, with one dictionary of topics."""
    taken = []
    for batch in batches:
        columns = batch.select(NUMBERS)
        if any(column.null_count for column in columns.columns):
            raise ValueError("a row has no topic, epoch, sequence or offset")
        plain = [
            _plain(column).cast(field.type) for column, field in zip(columns.columns, _JOINED, strict=True)
        ]
        taken.append(pa.RecordBatch.from_arrays(plain, schema=_JOINED))
    return pa.Table.from_batches(taken, _JOINED)


def _plain(column: pa.Array) -> pa.Array:
    return (
        column
        if pa.types.is_dictionary(column.type) or pa.types.is_integer(column.type)
        else (column.dictionary_encode())
    )


def _numbers(column: pa.Array) -> _Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
