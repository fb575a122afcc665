"""Messages of a replay: read from lake and log, and rebuilt for publishing.

A rebuilt message has a new topic prefix, its own properties, and `ps-original-` properties that describe the
original. Properties are built column by column, for speed.
"""

from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from penstock.common.cursor import Cursor, Position
from penstock.lake import InvalidLake, lake_messages, lake_path
from penstock.spark.connection import Connection
from penstock.spark.jobs.replay.options import ReplayOptions
from penstock.spark.jobs.replay.plan import SLICE_BYTES, Slice, plan_slices
from penstock.spark.options import LATEST, position_text
from penstock.spark.source.positions import cursor_at, position_of

ORIGINAL = "ps-original-"
"""Prefix of the properties that describe the original message."""
NAMES = tuple(f"{ORIGINAL}{name}" for name in ("topic", "time", "sequence", "epoch", "cursor"))
TEXT = pa.string()
PAIRS = pa.list_(pa.struct([("key", TEXT), ("value", TEXT)]))
Pairs = list[tuple[str, str]]
_RESPONSE_TOPIC = "$response_topic"  # the log stores it as a property
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_EPOCH_AT, _OFFSET_AT, _CURSOR_BYTES = 9, 13, 21
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
"""Columns read from the log."""
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
"""Slice and offset, then the columns of a stage."""
STEP_S = 0.5
"""Resolution of the pace."""
MAX_GROUPS = 100_000
"""Approximate limit of the groups collected on the driver."""
BLOCK = 1_000
"""Limit of offsets per group, unless there would be too many groups."""
_ROW_BYTES = 400
"""Estimated size of a staged row besides its payload, mostly properties."""


class ReplayMessages:
    """The messages to replay, read through the data source."""

    def __init__(self, spark: SparkSession, options: ReplayOptions, connection: Connection) -> None:
        self._spark = spark
        self._options = options
        self._connection = connection
        self.left_out = 0
        """Number of messages that have the prefix already; set by `plan`."""

    def end(self) -> Position:
        """A position in their log, not before any of them.

        Raises:
            InvalidLake: only the lake is read, and it is empty.
        """
        options = self._options
        if not options.lake_only:
            filters = options.filters
            found = self._connection.retry(lambda client: client.position(LATEST, filters=filters))
            return position_of(found.cursor)
        assert options.lake is not None
        cursor = lake_messages(options.lake).manifest().cursor
        if cursor is None:
            raise InvalidLake(f"{lake_path(options.lake)}: there is no lake here")
        return position_of(cursor)

    def plan(self) -> list[Slice]:
        """Count the messages and cut them into slices; reads all of them."""
        options, end = self._options, self.end()
        until = cursor_at(end, end.offset) if options.until == LATEST else position_text(options.until)
        columns = ("offset", "topic", "published_at", "payload")
        frame = self._read(columns, position_text(options.start), until).where(self._is_timely())
        block = max(BLOCK, end.offset // MAX_GROUPS)
        groups, self.left_out = self._count(frame, block)
        large = [group for group in groups if group.bytes > SLICE_BYTES and group.rows > 1]
        if large:  # then each of their messages is a group of its own
            blocks = {group.first // block for group in large}
            fine, _ = self._count(frame.where(_block(block).isin(blocks)), 1)
            groups = [group for group in groups if group.first // block not in blocks] + fine
        return plan_slices(groups)

    def between(self, after: str, until: str) -> DataFrame:
        """The messages of some slices, with all columns needed for publishing."""
        return self._read(COLUMNS, after, until).where(self._is_timely() & ~self._is_copy())

    def _read(self, columns: tuple[str, ...], after: str, until: str) -> DataFrame:
        options = self._options
        given = {
            **options.server,
            "columns": ",".join(columns),
            "startingOffsets": after,
            "endingOffsets": until,
        }
        if options.filters:
            given["filter"] = msgspec.json.encode(options.filters).decode()
        if options.lake is not None:
            given["lake"] = options.lake
        if options.lake_only:
            given["address"] = ""
        if options.keep_going:
            given |= {"failOnDataLoss": "false", "missing": f"{options.state_file.absolute()}.missing"}
        return self._spark.read.format("penstock").options(**given).load()

    def _is_timely(self) -> Column:
        """Filter by the times of the range."""
        options, time, is_timely = self._options, F.col("published_at"), F.lit(True)
        if not isinstance(options.start, str):
            is_timely &= time >= F.lit(options.start)
        if not isinstance(options.until, str):
            is_timely &= time < F.lit(options.until)
        return is_timely

    def _is_copy(self) -> Column:
        """The topic has the prefix already: most likely published by an earlier replay."""
        prefix = self._options.prefix
        return F.startswith(F.col("topic"), F.lit(prefix)) if prefix else F.lit(False)

    def _count(self, frame: DataFrame, block: int) -> tuple[list[Slice], int]:
        """The groups to replay, and the number of copies left out."""
        speed, time = self._options.speed, F.unix_micros("published_at")
        moment = F.lit(0) if speed is None else F.floor(time / F.lit(round(STEP_S * speed * 1e6) or 1))
        counted = (
            frame.groupBy(
                _block(block).alias("block"),
                moment.cast("bigint").alias("moment"),
                self._is_copy().alias("is_copy"),
            )
            .agg(
                F.min("offset").alias("first"),
                F.max("offset").alias("last"),
                F.count("*").alias("rows"),
                F.sum(F.octet_length("payload") + F.lit(_ROW_BYTES)).alias("bytes"),
                F.min(time).alias("time"),
            )
            .select("is_copy", *Slice.__struct_fields__)
            .toArrow()
        )
        rows = zip(*(column.to_pylist() for column in counted.columns), strict=True)
        groups = [(is_copy, Slice(*group)) for is_copy, *group in rows]
        copies = sum(group.rows for is_copy, group in groups if is_copy)
        return [group for is_copy, group in groups if not is_copy], copies


def _block(block: int) -> Column:
    return F.floor(F.col("offset") / F.lit(block))


class MessageBuilder(Struct, frozen=True):
    """Builds messages from rows of the log, each with the number of its slice."""

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
    """Lifetime of each message from its publish time, in milliseconds."""
    published, expires = (batch.column(name).cast(pa.int64()) for name in ("published_at", "expires_at"))
    return pc.max_element_wise(pc.divide(pc.subtract(expires, published), 1_000), 1, skip_nulls=False)


def properties_of(batch: pa.RecordBatch, log_id: str) -> tuple[pa.Array, pa.Array]:
    """Response topics and properties of messages that are rows of the log."""
    responses, own = _own_of(batch.column("properties"))
    originals = (
        batch.column("topic").cast(TEXT),
        _times_of(batch.column("published_at")),
        batch.column("sequence").cast(TEXT),
        batch.column("epoch").cast(TEXT),
        cursors_of(log_id, batch.column("epoch"), batch.column("offset")),
    )
    return responses, _joined(own, originals, batch.num_rows)


def _own_of(column: pa.Array) -> tuple[pa.Array, list[Pairs]]:
    """Properties set by the sender, by row; an empty list if no row has any."""
    if column.null_count == len(column):
        return pa.nulls(len(column), TEXT), []
    split = [_split(pairs or []) for pairs in column.to_pylist()]
    return pa.array([response for response, _ in split], TEXT), [pairs for _, pairs in split]


def _split(kept: Pairs) -> tuple[str | None, Pairs]:
    """Split stored properties into the response topic and those of the sender."""
    response: str | None = None
    pairs: Pairs = []
    for key, value in kept:
        if key == _RESPONSE_TOPIC:
            response = value
        elif key.startswith("$$"):  # escaped: the sender wrote one less
            pairs.append((key[1:], value))
        elif not key.startswith(("$", ORIGINAL)):
            pairs.append((key, value))
    return response, pairs


def _times_of(column: pa.Array) -> pa.Array:
    """Times to the microsecond, in UTC."""
    times = column.cast(pa.timestamp("us", "UTC"))
    return pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ")


def cursors_of(log_id: str, epochs: pa.Array, offsets: pa.Array) -> pa.Array:
    """The cursor of each position, as `Cursor.encode` writes it."""
    rows, first = len(offsets), Cursor((Position(log_id, 0, 0),)).encode()
    packed = np.empty((rows, _CURSOR_BYTES), np.uint8)
    packed[:] = np.frombuffer(urlsafe_b64decode(first), np.uint8)
    packed[:, _EPOCH_AT:_OFFSET_AT] = _bytes_of(epochs, ">u4")
    packed[:, _OFFSET_AT:] = _bytes_of(offsets, ">u8")
    threes = packed.reshape(rows, _CURSOR_BYTES // 3, 3).astype(np.uint32)
    bits = (threes[:, :, 0] << 16) | (threes[:, :, 1] << 8) | threes[:, :, 2]
    letters = _LETTERS[np.stack([(bits >> shift) & 63 for shift in (18, 12, 6, 0)], axis=2)]
    ends = np.arange(rows + 1, dtype=np.int32) * len(first)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(letters.tobytes()))


def _bytes_of(numbers: pa.Array, kind: str) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    written = numbers.to_numpy().astype(kind)
    return np.frombuffer(written.tobytes(), np.uint8).reshape(len(numbers), written.itemsize)


def _joined(own: list[Pairs], originals: tuple[pa.Array, ...], rows: int) -> pa.Array:
    """Lists of pairs: in each row its own, then one of each column of originals."""
    flat = [pair for pairs in own for pair in pairs]
    counts = np.array([len(pairs) for pairs in own] or [0] * rows, np.int64)
    keys = pa.concat_arrays(
        [pa.array([key for key, _ in flat], TEXT), *(pa.repeat(pa.scalar(name), rows) for name in NAMES)]
    )
    values = pa.concat_arrays([pa.array([value for _, value in flat], TEXT), *originals])
    ends = np.concatenate([[0], np.cumsum(counts + len(NAMES))])
    places = np.full(ends[-1], -1, np.int64)  # index of each pair among all pairs
    columns = np.arange(len(NAMES))
    places[(ends[:-1] + counts)[:, None] + columns] = len(flat) + columns * rows + np.arange(rows)[:, None]
    places[places < 0] = np.arange(len(flat))
    pairs = pa.StructArray.from_arrays(
        [keys.take(places), values.take(places)], fields=list(PAIRS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs)
