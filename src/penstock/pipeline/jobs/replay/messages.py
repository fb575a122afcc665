"""Rows of the log as messages to publish: under another topic, with what they were as properties."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from penstock.pipeline.jobs.replay.properties import PAIRS, TEXT, properties_of

COLUMNS = (
    "offset",
    "topic",
    "sequence",
    "epoch",
    "published_at",
    "expires_at",
    "qos",
    "retain",
    "payload",
    "content_type",
    "correlation_id",
    "message_id",
    "properties",
)
"""What is read of the log."""
SCHEMA = pa.schema(
    {
        "slice": pa.int32(),
        "offset": pa.int64(),
        "topic": TEXT,
        "payload": pa.binary(),
        "qos": pa.int8(),
        "retain": pa.bool_(),
        "ttl_ms": pa.int64(),
        "content_type": TEXT,
        "correlation_id": pa.binary(),
        "message_id": TEXT,
        "response_topic": TEXT,
        "properties": PAIRS,
    }
)
"""A slice and an offset, then the columns of a part of a stage."""


class Recast(Struct, frozen=True):
    """How rows become messages, each of a slice."""

    prefix: str
    log_id: str
    first: int
    """The number of the first slice."""
    ends: tuple[int, ...]
    """The last offset of each slice."""

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the log as messages, batch by batch."""
        for batch in batches:
            if batch.num_rows:
                yield self.batch(batch)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of some rows of the log."""
        responses, properties = properties_of(batch, self.log_id)
        columns = {
            "slice": self._slices(batch.column("offset")),
            "offset": batch.column("offset"),
            "topic": pc.binary_join_element_wise(self.prefix, batch.column("topic"), ""),
            "payload": batch.column("payload"),
            "qos": batch.column("qos"),
            "retain": batch.column("retain"),
            "ttl_ms": _lifetimes(batch),
            "content_type": batch.column("content_type"),
            "correlation_id": batch.column("correlation_id"),
            "message_id": batch.column("message_id"),
            "response_topic": responses,
            "properties": properties,
        }
        return pa.RecordBatch.from_arrays(
            [columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA
        )

    def _slices(self, offsets: pa.Array) -> pa.Array:
        return pa.array(self.first + np.searchsorted(np.array(self.ends), offsets.to_numpy()), pa.int32())


def _lifetimes(batch: pa.RecordBatch) -> pa.Array:
    """How long messages lived from when they were published, in milliseconds."""
    published, expires = (batch.column(name).cast(pa.int64()) for name in ("published_at", "expires_at"))
    return pc.max_element_wise(pc.divide(pc.subtract(expires, published), 1_000), 1, skip_nulls=False)
