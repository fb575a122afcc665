"""Writes the batches of a streaming query: `df.writeStream.format("penstock")`."""

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.pipeline.sink.messages import Staged, forget, publish, stage_rows
from penstock.pipeline.sink.options import SinkOptions

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""What a task of a streaming query knows of it. The query has this id as long as its checkpoint."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Made on the driver for the tasks, and again for each commit: it remembers nothing but its options."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: stage the rows of a partition of one batch."""
        return stage_rows(self._options, _key(), self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Publish what was staged, unless that was done for this batch before the query was restarted."""
        publish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish nothing of a batch; the query begins it again."""
        forget(self._options, messages)


def _key() -> str:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
    if not (query and batch):  # a key of that would be the same for every batch, and only the first published
        raise RuntimeError("Spark does not tell which query and which batch these rows are of")
    return f"{query}:{batch}"
