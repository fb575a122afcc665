"""Spark data source `penstock`: topics as tables to read, stream, write and stream to.

Spark finds the class through the module `pyspark_penstock`; no registration is needed. Spark creates one per
query in a Python process without a Spark context; readers and writers travel to workers by pickle.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import InvalidOption, without_traceback
from penstock.spark.options import WriteOptions, read_options, write_options
from penstock.spark.sink.writer import BatchWriter, StreamWriter, check_columns
from penstock.spark.source.reader import BatchReader, StreamReader
from penstock.spark.source.schema import check_schema, declared_schema


class PenstockDataSource(DataSource):
    """The format `penstock`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "penstock"

    @without_traceback
    def schema(self) -> StructType:
        """The columns of a read."""
        return declared_schema(read_options(self.options, is_stream=True))

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = read_options(self.options, is_stream=False)
        check_schema(schema, options)
        return BatchReader(options, schema)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's names
        """For `spark.readStream`."""
        options = read_options(self.options, is_stream=True)
        check_schema(schema, options)
        return StreamReader(options, schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        return batch_writer(self.options, schema, overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        return stream_writer(self.options, schema)


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer for `df.write.format("penstock")`.

    Raises:
        InvalidOption: an option or the mode is not valid for a write.
        InvalidColumns: the columns are not those of messages.
    """
    if overwrite:
        raise InvalidOption("topics cannot be overwritten: write with mode('append')")
    return BatchWriter(_checked(given, schema))


def stream_writer(given: Mapping[str, str], schema: StructType) -> StreamWriter:
    """The writer for `df.writeStream.format("penstock")`; each row of a result is a message.

    Raises:
        InvalidOption: an option is not valid for a stream.
        InvalidColumns: the columns are not those of messages.
    """
    options = _checked(given, schema)
    if options.key is not None:
        raise InvalidOption("key: a stream has its own keys, made of the query and the number of the batch")
    return StreamWriter(options)


def _checked(given: Mapping[str, str], schema: StructType) -> WriteOptions:
    options = write_options(given)
    check_columns(schema, has_topic=options.topic is not None)
    return options
