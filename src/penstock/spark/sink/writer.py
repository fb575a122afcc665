"""Writers that Spark calls: `df.write` and `df.writeStream` with `format("penstock")`, exactly once.

Each task stages the rows of its partition. The driver's commit publishes all stages in one request, with the
batch as idempotency key: a batch is published completely and once, whatever is killed or retried.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
)

from penstock.spark.errors import InvalidColumns
from penstock.spark.options import WriteOptions
from penstock.spark.sink.staging import StageWriter, commit, drop_matching, drop_stages, stage_prefix

_TEXT = (StringType,)
_BYTES = (BinaryType, StringType)
_INTEGER = (ByteType, ShortType, IntegerType, LongType)
KINDS: dict[str, tuple[type[DataType], ...]] = {
    "topic": _TEXT,
    "payload": _BYTES,
    "qos": _INTEGER,
    "retain": (BooleanType,),
    "ttl_ms": _INTEGER,
    "content_type": _TEXT,
    "correlation_id": _BYTES,
    "message_id": _TEXT,
    "response_topic": _TEXT,
    "properties": (MapType, ArrayType),
}
"""Columns of a message with their types."""
_NEEDED = ("topic", "payload")
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties of a task that identify the query and the batch. The id of a query lives as long as its
checkpoint.
"""


@dataclass
class Staged(WriterCommitMessage):
    """Commit message of a task: the rows of its partition are staged."""

    key: str
    run: str
    partition: int
    id: str | None
    """None if there are no rows."""
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch; Spark sends copies to tasks and to the process that commits."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = uuid4().hex[:12]
        self._key = options.key or f"spark-{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Task: stage the rows of a partition."""
        return stage_rows(self._options, self._key, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged rows, unless this key was published before."""
        publish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the staged rows."""
        discard(self._options, messages, (self._key, self._run))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query; stateless, because Spark creates it anew for each commit."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Task: stage the rows of a partition of one batch."""
        return stage_rows(self._options, _key(), self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Publish the staged rows, unless this batch was published before a restart."""
        publish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop the staged rows; the query retries the batch."""
        discard(self._options, messages)


def _key() -> str:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    if not (query and batch):  # else all batches would share a key, and only the first be published
        raise RuntimeError("Spark does not report the query and the batch of these rows")
    return f"{query}:{batch}"


def stage_rows(options: WriteOptions, key: str, run: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Task: stage the rows of a partition."""
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    partition = task.partitionId()
    writer = StageWriter(options.connection, key, str(partition), run, str(task.taskAttemptId()))
    rows = writer.write(_messages_of(batches, options.topic))
    return Staged(key, run, partition, writer.id if rows else None, rows)


def _messages_of(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield with_topic(batch, topic)


def publish(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Driver: publish everything that tasks have staged, in the order of partitions."""
    staged = sorted(_staged_of(messages), key=lambda each: each.partition)
    stages = {each.id: each.rows for each in staged if each.id is not None}
    if stages:
        commit(options.connection, staged[0].key, stages)


def discard(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], own: tuple[str, str] | None = None
) -> None:
    """Driver: drop what a run has staged for a failed write; other runs may be active.

    Args:
        own: key and run, if known without a commit message.
    """
    staged = _staged_of(messages)
    drop_stages(options.connection, [each.id for each in staged if each.id is not None])
    for key, run in {(each.key, each.run) for each in staged} | ({own} if own is not None else set()):
        drop_matching(options.connection, stage_prefix(key), run)


def _staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Refuse a DataFrame whose rows are not messages, before anything is computed.

    Args:
        has_topic: there is a topic for rows without one.

    Raises:
        InvalidColumns: the text names the column.
    """
    names = schema.fieldNames()
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise InvalidColumns(f"a message has no column {unknown[0]!r}; it has {', '.join(KINDS)}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidColumns(f"the column {twice} exists twice")
    if "payload" not in names:
        raise InvalidColumns("the column payload is missing: make one of others with to_json(struct(...))")
    if "topic" not in names and not has_topic:
        raise InvalidColumns("the column topic is missing: add it, or set the option topic")
    for field in schema.fields:
        if not _fits(field.name, field.dataType, has_topic):
            wanted = "map<string,string>" if field.name == "properties" else _names_of(KINDS[field.name])
            raise InvalidColumns(
                f"the column {field.name} is {field.dataType.simpleString()}, and must be {wanted}"
            )


def _fits(name: str, kind: DataType, has_topic: bool) -> bool:
    if isinstance(kind, NullType):
        return name not in _NEEDED or (name == "topic" and has_topic)
    if name == "properties":
        return _are_pairs(kind)
    return isinstance(kind, KINDS[name])


def _are_pairs(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = kind.elementType.fields
        are_texts = all(isinstance(field.dataType, StringType) for field in fields)
        return are_texts and [field.name for field in fields] == ["key", "value"]
    return False


def _names_of(kinds: Iterable[type[DataType]]) -> str:
    return " or ".join(kind().simpleString() for kind in kinds)


def with_topic(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """The rows of a batch, with a default topic for rows without one."""
    if topic is None:
        return batch
    if "topic" not in batch.schema.names:
        return batch.add_column(0, "topic", pa.repeat(pa.scalar(topic), batch.num_rows))
    place = batch.schema.get_field_index("topic")
    column = batch.column(place)
    if not column.null_count:
        return batch
    filled = pc.fill_null(column.cast(pa.string()), topic)
    return batch.set_column(place, "topic", filled)
