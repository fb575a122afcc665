"""How a part becomes rows, on a worker: whatever it is a part of."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.pipeline.source.log_part import LogPart, read_log_part
from penstock.pipeline.source.missing import Losses
from penstock.pipeline.source.options import ReadOptions
from penstock.pipeline.source.shaping import Shape, resize


def read_part(part: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in batches as Spark wants them."""
    shape = Shape(schema)
    return resize(shape.shape(batch) for batch in _rows_of(part, options, shape))


def _rows_of(part: InputPartition, options: ReadOptions, shape: Shape) -> Iterator[pa.RecordBatch]:
    if isinstance(part, LogPart):
        assert options.connection is not None
        losses = Losses(options.fail_on_data_loss, options.missing)
        yield from read_log_part(part, options.connection, options.filters, shape.needed.names, losses)
    elif type(part) is not InputPartition:  # which is what Spark makes of no parts at all
        from penstock.pipeline.source.lake_part import LakePart, read_lake_part  # noqa: PLC0415 - seldom

        assert isinstance(part, LakePart)
        yield from read_lake_part(part, options.filters, shape.needed)
