"""The columns of the log as Spark has them, and those that a read declares."""

import json
import re

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

from penstock.core.ports import LOG_COLUMNS
from penstock.pipeline.source.errors import InvalidOption
from penstock.pipeline.source.options import ReadOptions

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

_INSIDE = re.compile(r"\([^()]*\)|<.*>", re.DOTALL)
"""What a type has in brackets."""


def log_schema(columns: tuple[str, ...] = LOG_COLUMNS) -> StructType:
    """Some columns of the log; each may be null."""
    return StructType([StructField(name, _TYPES.get(name, StringType())) for name in columns])


def declared_schema(options: ReadOptions) -> StructType | str:
    """The columns of a read; as text if Spark itself has to read a part of it.

    Raises:
        InvalidOption: what `jsonSchema` says is JSON, and no schema.
    """
    columns, text = log_schema(options.columns), options.json_schema
    if text is None:
        return columns
    if text.startswith(("{", '"')):
        return columns.add(VALUE, _type_in(text)).add(DEAD_LETTER, StringType())
    value = text if _is_type(text) else f"STRUCT<{text}>"
    named = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns)
    return f"{named}, {VALUE} {value}, {DEAD_LETTER} STRING"


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


def _is_type(text: str) -> bool:
    """Whether this is one type, such as `double` or `array<int>`, and not columns with their types."""
    return not re.search(r"[\s,:]", _INSIDE.sub("", text).strip())
