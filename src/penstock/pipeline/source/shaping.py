"""Batches of the log, as they come, made into batches as Spark wants them.

Names are dictionary columns in the log and plain text in Spark. Batches of the log may have one row or fifty
thousand; each costs Spark something, and too large ones cost memory.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.core.archive import LOG_COLUMNS
from penstock.pipeline.source.payloads import Payloads
from penstock.pipeline.source.schema import DEAD_LETTER, OFFSET, PAYLOAD, VALUE, log_schema

LEAST_ROWS = 4_096
MOST_ROWS = 16_384
MOST_BYTES = 16 << 20
"""A batch that has this many bytes is handed on, however few rows it has."""


class Shape:
    """How the rows of one read look: what it needs of the log, and what it makes of that."""

    def __init__(self, schema: StructType) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._columns = [name for name in schema.names if name not in (VALUE, DEAD_LETTER)]
        self._payloads: Payloads | None = None
        if VALUE in schema.names:
            self._payloads = Payloads(schema[VALUE].dataType, self.schema.field(VALUE).type)
        needed = {*self._columns, OFFSET, *([] if self._payloads is None else [PAYLOAD])}
        self.needed = to_arrow_schema(
            log_schema(tuple(name for name in LOG_COLUMNS if name in needed)), timezone="UTC"
        )
        """What it takes of the log: always `offset` too, by which a read goes on after a failure."""

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with the columns of this read."""
        plain = {name: _plain(batch.column(name), self.schema.field(name).type) for name in self._columns}
        if self._payloads is not None:
            plain[VALUE], plain[DEAD_LETTER] = self._payloads.parse(batch.column(PAYLOAD))
        return pa.RecordBatch.from_arrays([plain[name] for name in self.schema.names], schema=self.schema)


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type.equals(kind) else column.cast(kind)


def resize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a useful size; the last one may be small."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows >= LEAST_ROWS and not waiting:
            yield from _slices(batch)
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= LEAST_ROWS or size >= MOST_BYTES:
            yield from _slices(_joined(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    parts = max(-(-batch.num_rows // MOST_ROWS), min(-(-batch.nbytes // MOST_BYTES), batch.num_rows))
    step = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
