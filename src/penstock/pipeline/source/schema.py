"""The columns of the log as Spark has them, and those that a read declares."""

import json

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    _parse_datatype_json_value,
)

from penstock.core.archive import LOG_COLUMNS
from penstock.pipeline.source.ddl import parse_ddl
from penstock.pipeline.source.errors import InvalidOption
from penstock.pipeline.source.options import ReadOptions
from penstock.pipeline.source.payloads import json_type

OFFSET, EPOCH, TOPIC = "offset", "epoch", "topic"
PUBLISHED_AT, PAYLOAD = "published_at", "payload"
VALUE, DEAD_LETTER = "value", "dead_letter"

_TYPES: dict[str, DataType] = {
    "offset": LongType(),
    "sequence": LongType(),
    "epoch": LongType(),
    "published_at": TimestampType(),
    "expires_at": TimestampType(),
    "logged_at": TimestampType(),
    "qos": ByteType(),
    "retain": BooleanType(),
    "payload": BinaryType(),
    "correlation_id": BinaryType(),
    "properties": MapType(StringType(), StringType()),
}
"""What is no text."""


def log_schema(columns: tuple[str, ...] = LOG_COLUMNS) -> StructType:
    """Some columns of the log; each may be null."""
    return StructType([StructField(name, _TYPES.get(name, StringType())) for name in columns])


def declared_schema(options: ReadOptions) -> StructType:
    """The columns of a read.

    Raises:
        InvalidOption: what `jsonSchema` says is no schema, or none that payloads can have.
    """
    columns, text = log_schema(options.columns), options.json_schema
    if text is None:
        return columns
    value = _type_in(text) if text.startswith(("{", '"')) else parse_ddl(text)
    json_type(value)  # now and not in a task: a type may be one of Spark's, and none of JSON's
    return columns.add(VALUE, value).add(DEAD_LETTER, StringType())


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema that was given by hand and is another one.

    Raises:
        InvalidOption: it is not what this read has.
    """
    wanted = log_schema(options.columns)
    names = [*wanted.names, *([] if options.json_schema is None else [VALUE, DEAD_LETTER])]
    is_same = schema.names == names and all(
        schema[field.name].dataType == field.dataType for field in wanted.fields
    )
    if not is_same:
        raise InvalidOption(
            f"the columns of this read are {', '.join(names)}: choose them with the option columns, not "
            "with a schema, and describe payloads with jsonSchema"
        )


def _type_in(text: str) -> DataType:
    try:
        return _parse_datatype_json_value(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, PySparkException) as error:
        raise InvalidOption(f"jsonSchema: this is no schema as Spark writes it: {error}") from None
