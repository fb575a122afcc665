"""What tasks tell the driver, and how both do their part of a write."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from penstock.pipeline.sink.options import SinkOptions
from penstock.pipeline.sink.rows import with_topic
from penstock.pipeline.sink.staging import StageWriter, clear, commit, drop, name_of


@dataclass
class Staged(WriterCommitMessage):
    """The rows of a partition that wait for their commit."""

    key: str
    run: str
    partition: int
    id: str | None
    """None if there are no rows."""
    rows: int


def stage_rows(options: SinkOptions, key: str, run: str, batches: Iterable[pa.RecordBatch]) -> Staged:
    """In a task: stage the rows of its partition."""
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    partition = task.partitionId()
    writer = StageWriter(options.connection, key, str(partition), run, str(task.taskAttemptId()))
    rows = writer.write(_messages_of(batches, options.topic))
    return Staged(key, run, partition, writer.id if rows else None, rows)


def _messages_of(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield with_topic(batch, topic)


def publish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """On the driver: publish what all tasks have staged, by the order of the partitions."""
    staged = sorted(_staged_of(messages), key=lambda each: each.partition)
    stages = {each.id: each.rows for each in staged if each.id is not None}
    if stages:
        commit(options.connection, staged[0].key, stages)


def forget(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], own: tuple[str, str] | None = None
) -> None:
    """On the driver: drop what a run has staged for a write that has failed; another may be at work.

    Args:
        own: the key and the run, where they are known without a message.
    """
    staged = _staged_of(messages)
    drop(options.connection, [each.id for each in staged if each.id is not None])
    for key, run in {(each.key, each.run) for each in staged} | ({own} if own is not None else set()):
        clear(options.connection, name_of(key), run)


def _staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
