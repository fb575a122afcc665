"""The columns of a frame as messages: which there may be, and how they go into a part of a stage."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
)

from penstock.errors import PenstockError

_TEXT = (StringType,)
_BYTES = (BinaryType, StringType)
_INTEGER = (ByteType, ShortType, IntegerType, LongType)

KINDS: dict[str, tuple[type[DataType], ...]] = {
    "topic": _TEXT,
    "payload": _BYTES,
    "qos": _INTEGER,
    "retain": (BooleanType,),
    "ttl_ms": _INTEGER,
    "content_type": _TEXT,
    "correlation_id": _BYTES,
    "message_id": _TEXT,
    "response_topic": _TEXT,
    "properties": (MapType, ArrayType),
}
"""The columns of a message, and what each may be."""
_NEEDED = ("topic", "payload")


class InvalidColumns(PenstockError):
    """The columns of a frame are not those of messages."""

    code = "invalid-columns"


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Refuse a frame whose rows are no messages, before anything is computed.

    Args:
        has_topic: there is a topic for rows that have none.

    Raises:
        InvalidColumns: saying which column is wrong.
    """
    names = schema.fieldNames()
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise InvalidColumns(f"a message has no column {unknown[0]!r}; it has {', '.join(KINDS)}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidColumns(f"the column {twice} is there twice")
    if "payload" not in names:
        raise InvalidColumns("the column payload is missing: to_json(struct(...)) makes one of others")
    if "topic" not in names and not has_topic:
        raise InvalidColumns("the column topic is missing; option topic is for frames without one")
    for field in schema.fields:
        if not _fits(field.name, field.dataType, has_topic):
            wanted = "map<string,string>" if field.name == "properties" else _names_of(KINDS[field.name])
            raise InvalidColumns(
                f"the column {field.name} cannot be {field.dataType.simpleString()}; it is {wanted}"
            )


def _fits(name: str, kind: DataType, has_topic: bool) -> bool:
    if isinstance(kind, NullType):
        return name not in _NEEDED or (name == "topic" and has_topic)
    if name == "properties":
        return _are_pairs(kind)
    return isinstance(kind, KINDS[name])


def _are_pairs(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = kind.elementType.fields
        are_texts = all(isinstance(field.dataType, StringType) for field in fields)
        return are_texts and [field.name for field in fields] == ["key", "value"]
    return False


def _names_of(kinds: Iterable[type[DataType]]) -> str:
    return " or ".join(kind().simpleString() for kind in kinds)


def with_topic(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """The rows of a batch, with a topic for those that have none."""
    if topic is None:
        return batch
    if "topic" not in batch.schema.names:
        return batch.add_column(0, "topic", pa.repeat(pa.scalar(topic), batch.num_rows))
    place = batch.schema.get_field_index("topic")
    column = batch.column(place)
    if not column.null_count:
        return batch
    filled = pc.fill_null(column.cast(pa.string()), topic)
    return batch.set_column(place, "topic", filled)


def halves(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The first and the last rows of a batch that has more than one."""
    middle = batch.num_rows // 2
    return batch.slice(0, middle), batch.slice(middle)
