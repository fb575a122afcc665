"""A read that ends by itself: what lies between two places when it is planned."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.pipeline.source.errors import plainly
from penstock.pipeline.source.options import LATEST, ReadOptions
from penstock.pipeline.source.planning import Planner
from penstock.pipeline.source.reading import read_part


class BatchReader(DataSourceReader):
    """Plans on the driver, once; reads on workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The parts of everything that is asked for."""
        options, planner = self._options, Planner(self._options)
        until = None if options.ending == LATEST else planner.cursor(options.ending)
        portion = planner.portion(options.starting, until)
        planner.accept(portion)
        return list(portion.parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        return read_part(partition, self._options, self._schema)
