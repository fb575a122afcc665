"""Topics as Spark tables: `spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

Spark finds the class by the module `pyspark_penstock`; nothing has to be registered. For each query it makes
one on the driver, in a process without a Spark context; readers travel to the workers by pickle.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.pipeline.source.batch import BatchReader
from penstock.pipeline.source.errors import DataLoss, InvalidOption, plainly
from penstock.pipeline.source.options import read_options
from penstock.pipeline.source.schema import check_schema, declared_schema
from penstock.pipeline.source.stream import StreamReader

__all__ = ["DataLoss", "InvalidOption", "PenstockSource"]


class PenstockSource(DataSource):
    """The format `penstock`: topics to read, and to publish to."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` calls it."""
        return "penstock"

    @plainly
    def schema(self) -> StructType:
        """The columns that a read has."""
        return declared_schema(read_options(self.options, is_stream=True))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = read_options(self.options, is_stream=False)
        check_schema(schema, options)
        return BatchReader(options, schema)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the names are Spark's
        """For `spark.readStream`."""
        options = read_options(self.options, is_stream=True)
        check_schema(schema, options)
        return StreamReader(options, schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `frame.write`."""
        from penstock.pipeline.sink import batch_writer  # noqa: PLC0415 - readers do without

        return batch_writer(self.options, schema, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `frame.writeStream`."""
        from penstock.pipeline.sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema)
