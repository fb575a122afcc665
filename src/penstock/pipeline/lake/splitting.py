"""Which rows of a batch belong to which partition. Rows of one partition keep their order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.lake.layout import NO_VALUE, buckets_of, days_of, message_partition
from penstock.pipeline.lake.manifest import Partition

Piece = tuple[Partition, pa.RecordBatch]
Splitter = Callable[[pa.RecordBatch], Iterator[Piece]]

_Keys = np.ndarray[tuple[int], np.dtype[Any]]


def by_date_and_bucket(buckets: int) -> Splitter:
    """Messages by the day of `published_at` in UTC, and the bucket of `topic`."""
    return partial(_split_messages, buckets)


def by_columns(names: Sequence[str]) -> Splitter:
    """Rows by the values of some columns, which the rows then do not have any more."""
    return partial(_split_by_columns, tuple(names))


def as_one(partition: Mapping[str, str]) -> Splitter:
    """All rows to one partition, whose columns they do not have."""
    return partial(_as_one, tuple(partition.items()))


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with values where it has dictionaries: Parquet makes its own."""
    if not any(pa.types.is_dictionary(kind) for kind in batch.schema.types):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _as_one(partition: Partition, batch: pa.RecordBatch) -> Iterator[Piece]:
    if batch.num_rows:
        yield partition, plain(batch)


def _split_messages(buckets: int, batch: pa.RecordBatch) -> Iterator[Piece]:
    if not batch.num_rows:
        return
    topics = batch.column("topic")
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    of_names = buckets_of(topics.dictionary.to_pylist(), buckets)
    of_rows = of_names[topics.indices.to_numpy(zero_copy_only=False)]
    days = days_of(batch.column("published_at").cast(pa.timestamp("us", "UTC")))
    first_day = int(days.min())
    keys = of_rows if int(days.max()) == first_day else (days - first_day) * buckets + of_rows
    for key, rows in _pieces(plain(batch), keys):
        day, bucket = divmod(key, buckets)
        yield tuple(message_partition(first_day + day, bucket).items()), rows


def _split_by_columns(names: tuple[str, ...], batch: pa.RecordBatch) -> Iterator[Piece]:
    if not batch.num_rows:
        return
    rest = plain(batch.select([name for name in batch.schema.names if name not in names]))
    if not names:
        yield (), rest
        return
    keys: _Keys = np.zeros(batch.num_rows, np.int64)
    values: list[list[str]] = []
    for name in names:
        coded = pc.fill_null(batch.column(name).cast(pa.string()), NO_VALUE).dictionary_encode()
        values.append(coded.dictionary.to_pylist())
        keys = keys * len(values[-1]) + coded.indices.to_numpy(zero_copy_only=False)
    for key, rows in _pieces(rest, keys):
        yield tuple(zip(names, _values_at(key, values), strict=True)), rows


def _values_at(key: int, values: list[list[str]]) -> list[str]:
    found = []
    for each in reversed(values):
        key, index = divmod(key, len(each))
        found.append(each[index])
    return found[::-1]


def _pieces(batch: pa.RecordBatch, keys: _Keys) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each key, by keys."""
    if (keys == keys[0]).all():
        yield int(keys[0]), batch
        return
    order = np.argsort(keys, kind="stable")
    ordered, sorted_keys = batch.take(pa.array(order)), keys[order]
    ends = np.flatnonzero(np.diff(sorted_keys)) + 1
    for first, end in zip([0, *ends.tolist()], [*ends.tolist(), batch.num_rows], strict=True):
        yield int(sorted_keys[first]), ordered.slice(first, end - first)
