"""Messages as the log has them, made up."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

NOON = 1_794_830_400_000_000
"""2026-11-16T12:00:00Z in microseconds."""
DAY_US = 86_400_000_000

NAME = pa.dictionary(pa.int32(), pa.string())
TIME = pa.timestamp("us", "UTC")

SCHEMA = pa.schema(
    {
        "offset": pa.int64(),
        "topic": NAME,
        "sequence": pa.int64(),
        "published_at": TIME,
        "qos": pa.int8(),
        "payload": pa.binary(),
        "message_id": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
    }
)


def messages(first: int, count: int, topics: Sequence[str] = ("a", "b"), at: int = NOON) -> pa.RecordBatch:
    """Messages with offsets from `first` on, on topics in turn, all of one time."""
    offsets = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "offset": list(offsets),
        "topic": [topics[offset % len(topics)] for offset in offsets],
        "sequence": [offset // len(topics) for offset in offsets],
        "published_at": [at] * count,
        "qos": [1] * count,
        "payload": [b"%d" % offset for offset in offsets],
        "message_id": [None if offset % 2 else f"id-{offset}" for offset in offsets],
        "properties": [None if offset % 3 else [("n", str(offset))] for offset in offsets],
    }
    return pa.RecordBatch.from_arrays(
        [_array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)
