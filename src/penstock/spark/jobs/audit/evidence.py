"""Rows that the tasks of an audit exchange: evidence about files and the log, and findings about topics."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.jobs.audit.runs import Run

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
