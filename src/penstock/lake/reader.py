"""Reader of one data file, batch by batch, with verification of page checksums.

Files never change once written, so a reader that has a manifest reads a consistent snapshot.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.errors import DamagedFile

OFFSET = "offset"
BATCH_ROWS = 16_384


def read_file(
    path: str | Path,
    columns: Sequence[str] | None = None,
    first_offset: int | None = None,
    last_offset: int | None = None,
    *,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a data file in file order, with plain columns instead of dictionaries.

    Args:
        columns: only these, in this order.
        first_offset: only rows from this offset on.
        last_offset: only rows up to and including this offset.
        schema: instead of `columns`: exactly these; columns that the file lacks are null.

    Raises:
        DamagedFile: it is unreadable, or a checksum is wrong.
        FileNotFoundError: it was deleted; a newer manifest no longer names it.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, memory_map=False) as file:
            for batch in _rows_between(file, columns, first_offset, last_offset, schema):
                yield batch if schema is None else _fit(batch, schema)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedFile(f"{path}: {' '.join(str(error).split())}") from None


def _rows_between(
    file: pq.ParquetFile,
    columns: Sequence[str] | None,
    first: int | None,
    last: int | None,
    schema: pa.Schema | None,
) -> Iterator[pa.RecordBatch]:
    there = file.schema_arrow.names
    wanted = there if columns is None and schema is None else list(columns or schema.names)  # type: ignore[union-attr]
    wanted = [name for name in wanted if name in there] if schema is not None else wanted
    is_cut = first is not None or last is not None
    asked = [*wanted, OFFSET] if is_cut and OFFSET not in wanted else wanted
    groups = [group for group in range(file.num_row_groups) if _meets(file.metadata, group, first, last)]
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=asked, use_threads=False):
        rows = _cut(batch, first, last) if is_cut else batch
        if rows.num_rows:
            yield rows.select(wanted)


def _meets(metadata: pq.FileMetaData, group: int, first: int | None, last: int | None) -> bool:
    """A row group may contain offsets of this range."""
    position = metadata.schema.names.index(OFFSET) if OFFSET in metadata.schema.names else None
    if position is None:
        return True
    statistics = metadata.row_group(group).column(position).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return (last is None or statistics.min <= last) and (first is None or statistics.max >= first)


def _cut(batch: pa.RecordBatch, first: int | None, last: int | None) -> pa.RecordBatch:
    offsets = batch.column(OFFSET)
    ends = pc.min_max(offsets).as_py()
    if (first is None or ends["min"] >= first) and (last is None or ends["max"] <= last):
        return batch
    mask = None if first is None else pc.greater_equal(offsets, first)
    if last is not None:
        below = pc.less_equal(offsets, last)
        mask = below if mask is None else pc.and_(mask, below)
    return batch.filter(mask)


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    there = set(batch.schema.names)
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
