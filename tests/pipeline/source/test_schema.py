"""The columns that a read declares."""

import json

import pytest
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.core.archive import LOG_COLUMNS
from penstock.pipeline.source import InvalidOption, PenstockSource
from penstock.pipeline.source.options import read_options
from penstock.pipeline.source.schema import check_schema, declared_schema, log_schema


def declared(**given: str) -> StructType:
    return declared_schema(read_options(given, is_stream=False))


def test_all_columns_of_the_log_are_there_and_may_be_null() -> None:
    schema = log_schema()
    assert tuple(schema.names) == LOG_COLUMNS
    assert all(field.nullable for field in schema.fields)
    assert schema["offset"].dataType == LongType()
    assert schema["topic"].dataType == StringType()
    assert schema["published_at"].dataType == schema["logged_at"].dataType == TimestampType()
    assert schema["qos"].dataType == ByteType()
    assert schema["payload"].dataType == BinaryType()
    assert schema["properties"].dataType == MapType(StringType(), StringType())


def test_columns_are_declared_in_the_order_they_are_asked_for() -> None:
    assert declared(columns="payload,topic") == StructType().add("payload", "binary").add("topic", "string")


def test_a_json_schema_adds_the_value_and_why_there_is_none() -> None:
    value = StructType().add("n", "integer")
    schema = declared(columns="topic", jsonSchema=json.dumps(value.jsonValue()))
    assert schema == StructType().add("topic", "string").add("value", value).add("dead_letter", "string")


def test_a_json_schema_may_be_one_type() -> None:
    schema = declared(columns="topic", jsonSchema='"double"')
    assert schema["value"].dataType == DoubleType()


def test_a_json_schema_may_be_written_as_in_sql() -> None:
    schema = declared(columns="topic", jsonSchema="n INT")
    value = StructType().add("n", "integer")
    assert schema == StructType().add("topic", "string").add("value", value).add("dead_letter", "string")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("level DOBLE", "DOBLE"),
        ("level VARCHAR(3)", "VARCHAR(3)"),
        ('"varchar(3)"', "VARCHAR(3)"),
        ("variant", "VARIANT"),
        ('"variant"', "VARIANT"),
    ],
)
def test_a_type_that_payloads_cannot_have_is_refused_by_its_name(text: str, name: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        declared(jsonSchema=text)
    assert str(caught.value).startswith(f"jsonSchema: there is no type {name} for payloads; there are STRING")


@pytest.mark.parametrize("text", ["{", '{"type": "no"}', '"no"', '{"a": 1}'])
def test_json_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="jsonSchema"):
        declared(jsonSchema=text)


def test_a_schema_given_by_hand_has_to_be_the_same() -> None:
    said = read_options({"columns": "topic,offset"}, is_stream=False)
    check_schema(StructType().add("topic", "string").add("offset", "long"), said)
    for other in (
        StructType().add("topic", "string"),
        StructType().add("topic", "string").add("offset", "integer"),
        StructType().add("offset", "long").add("topic", "string"),
    ):
        with pytest.raises(InvalidOption, match="topic, offset"):
            check_schema(other, said)


def test_spark_finds_the_source_by_the_name_of_a_module() -> None:
    from pyspark_penstock import DefaultSource  # noqa: PLC0415

    assert DefaultSource is PenstockSource
    assert DefaultSource.name() == "penstock"
