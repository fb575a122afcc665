"""What the tasks of an audit send home, as rows of one shape: runs, and what is wrong with a file."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.pipeline.jobs.audit.findings import Finding
from penstock.pipeline.jobs.audit.runs import Run

RUN, BEHIND, DAMAGED, READ, GAP = "run", "behind", "damaged", "read", "gap"
"""A run; rows out of order in their file; a file that is not as it should be; how much was read; and what the
log could not serve."""

ROWS_AT_ONCE = 10_000


class Evidence(NamedTuple):
    """One row. What a number means depends on the kind."""

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
        """A run as a row."""
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


def batches_of(rows: Iterable[Evidence | Finding], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow has them, some thousands at a time."""
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_AT_ONCE)):
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*chunk, strict=True), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def runs_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Run]:
    """The runs in rows that have the columns of a run, in their order."""
    for batch in batches:
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in Run._fields]
        yield from map(Run._make, zip(*columns, strict=True))
