"""Frames as messages: which columns they may have, and rows that get their topic from an option."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.pipeline.sink.rows import InvalidColumns, check_columns, halves, with_topic

TEXT, BYTES = StringType(), BinaryType()
PAIRS = StructType().add("key", TEXT).add("value", TEXT)


def schema(**columns: DataType) -> StructType:
    fields = StructType()
    for name, kind in columns.items():
        fields.add(name, kind)
    return fields


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"qos": ByteType(), "retain": BooleanType(), "ttl_ms": LongType()},
        {"qos": IntegerType(), "content_type": TEXT, "message_id": TEXT, "response_topic": TEXT},
        {"correlation_id": BYTES, "properties": MapType(TEXT, TEXT)},
        {"correlation_id": TEXT, "properties": ArrayType(PAIRS)},
        {"properties": NullType(), "content_type": NullType()},
    ],
)
def test_columns_of_messages_are_taken(columns: dict[str, DataType]) -> None:
    for payload in (TEXT, BYTES):
        check_columns(schema(topic=TEXT, payload=payload, **columns), has_topic=False)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": TEXT, "payload": TEXT, "number": LongType()}, "no column 'number'; it has topic, payload"),
        ({"topic": TEXT}, "payload is missing"),
        ({"payload": TEXT}, "topic is missing"),
        ({"topic": BYTES, "payload": TEXT}, "topic cannot be binary; it is string"),
        ({"topic": TEXT, "payload": LongType()}, "payload cannot be bigint; it is binary or string"),
        ({"topic": TEXT, "payload": NullType()}, "payload cannot be void"),
        ({"topic": NullType(), "payload": TEXT}, "topic cannot be void"),
        ({"topic": TEXT, "payload": TEXT, "qos": DoubleType()}, "qos cannot be double"),
        ({"topic": TEXT, "payload": TEXT, "ttl_ms": TimestampType()}, "ttl_ms cannot be timestamp"),
        ({"topic": TEXT, "payload": TEXT, "retain": LongType()}, "retain cannot be bigint; it is boolean"),
        (
            {"topic": TEXT, "payload": TEXT, "properties": MapType(TEXT, LongType())},
            "properties cannot be map<string,bigint>; it is map<string,string>",
        ),
        (
            {"topic": TEXT, "payload": TEXT, "properties": ArrayType(TEXT)},
            "properties cannot be array<string>",
        ),
        (
            {
                "topic": TEXT,
                "payload": TEXT,
                "properties": ArrayType(StructType().add("k", TEXT).add("v", TEXT)),
            },
            "properties cannot be array<struct",
        ),
    ],
)
def test_other_columns_are_refused_by_name(columns: dict[str, DataType], text: str) -> None:
    with pytest.raises(InvalidColumns, match=text):
        check_columns(schema(**columns), has_topic=False)


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidColumns, match="payload is there twice"):
        check_columns(schema(topic=TEXT, payload=TEXT).add("payload", BYTES), has_topic=False)


def test_a_frame_needs_no_topic_if_there_is_one_for_all() -> None:
    check_columns(schema(payload=TEXT), has_topic=True)
    check_columns(schema(topic=NullType(), payload=TEXT), has_topic=True)
    batch = with_topic(pa.record_batch({"payload": ["1", "2"]}), "a/b")
    assert batch.to_pydict() == {"topic": ["a/b", "a/b"], "payload": ["1", "2"]}


@pytest.mark.parametrize("topics", [pa.array(["x", None, "y"]), pa.nulls(3)])
def test_only_rows_without_a_topic_get_that_of_the_option(topics: pa.Array) -> None:
    batch = with_topic(pa.record_batch({"payload": ["1", "2", "3"], "topic": topics}), "a/b")
    assert batch.column("topic").to_pylist() == [topic or "a/b" for topic in topics.to_pylist()]
    assert batch.schema.names == ["payload", "topic"]


def test_rows_stay_as_they_are_if_nothing_is_said_of_a_topic() -> None:
    batch = pa.record_batch({"topic": pa.array(["x", None]), "payload": ["1", "2"]})
    assert with_topic(batch, None) is batch


def test_halves_have_all_rows_in_order() -> None:
    first, last = halves(pa.record_batch({"payload": [1, 2, 3]}))
    assert first.column(0).to_pylist() + last.column(0).to_pylist() == [1, 2, 3]
    assert first.num_rows and last.num_rows
