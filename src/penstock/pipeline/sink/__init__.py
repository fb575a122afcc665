"""Writing to topics from Spark: `df.write` and `df.writeStream` with `format("penstock")`.

Each task stages the rows of its partition, and the driver's commit publishes all stages in one request whose
key is that of the batch: so a batch is published as a whole, and once, whatever is killed or tried again.
"""

from collections.abc import Mapping

from pyspark.sql.types import StructType

from penstock.pipeline.sink.batch import BatchWriter
from penstock.pipeline.sink.options import SinkOptions
from penstock.pipeline.sink.rows import check_columns
from penstock.pipeline.sink.stream import StreamWriter
from penstock.pipeline.source.errors import InvalidOption

__all__ = ["BatchWriter", "SinkOptions", "StreamWriter", "batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """What `df.write.format("penstock")` writes with.

    Raises:
        InvalidOption: an option or the mode is not for this.
        InvalidColumns: the columns are not those of messages.
    """
    if overwrite:
        raise InvalidOption("topics cannot be overwritten: write with mode('append')")
    known = SinkOptions.parse(options)
    check_columns(schema, has_topic=known.topic is not None)
    return BatchWriter(known)


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """What `df.writeStream.format("penstock")` writes with; each result of a query is a message.

    Raises:
        InvalidOption: an option is not for this.
        InvalidColumns: the columns are not those of messages.
    """
    known = SinkOptions.parse(options)
    if known.key is not None:
        raise InvalidOption("option key: a stream has its own, made of the query and the number of its batch")
    check_columns(schema, has_topic=known.topic is not None)
    return StreamWriter(known)
