"""Writes a frame once: `df.write.format("penstock")`."""

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.pipeline.sink.messages import Staged, forget, publish, stage_rows
from penstock.pipeline.sink.options import SinkOptions


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver, and sent to the tasks and to the process that commits as it is."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._run = uuid4().hex[:12]
        self._key = options.key or f"spark-{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: stage the rows of a partition."""
        return stage_rows(self._options, self._key, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what was staged, unless that was done under this key before."""
        publish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish nothing."""
        forget(self._options, messages, (self._key, self._run))
