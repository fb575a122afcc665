"""Columns of a read, and schemas in DDL."""

import json

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.datasource import PenstockDataSource
from penstock.spark.errors import InvalidOption
from penstock.spark.options import read_options
from penstock.spark.source.schema import check_schema, declared_schema, log_schema, parse_ddl
from penstock.wire.arrow import LOG_COLUMNS

N = StructType().add("n", "integer")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("n int, s STRING", StructType().add("n", "integer").add("s", "string")),
        (" n : Integer ", N),
        ("n INT NOT NULL, m INT", StructType().add("n", "integer", nullable=False).add("m", "integer")),
        ("n INT COMMENT 'how many, or so'", N),
        ("`a b` INT, `c``d` INT", StructType().add("a b", "integer").add("c`d", "integer")),
        ("n decimal(10, 2)", StructType().add("n", DecimalType(10, 2))),
        ("date DATE, map MAP<STRING, BIGINT>", None),
        ("struct<>", StructType()),
        ("double", DoubleType()),
        ("byte", ByteType()),
        ("timestamp_ntz", TimestampNTZType()),
        ("numeric", DecimalType(10, 0)),
        ("decimal(5)", DecimalType(5, 0)),
        ("array<struct<n: int>>", ArrayType(N)),
        ("map<string,array<array<long>>>", MapType(StringType(), ArrayType(ArrayType(LongType())))),
        ("in STRUCT<n: INT NOT NULL>", StructType().add("in", StructType().add("n", "integer", False))),
        ("array<int>", ArrayType(IntegerType())),
    ],
)
def test_columns_make_a_struct_and_one_type_is_itself(text: str, kind: DataType | None) -> None:
    if kind is None:  # names that are words of SQL
        kind = StructType().add("date", "date").add("map", MapType(StringType(), LongType()))
    assert parse_ddl(text) == kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("level DOBLE, n INT", "payloads cannot have the type DOBLE"),
        ("level", "payloads cannot have the type LEVEL"),
        ("in STRUCT<n: VARCHAR(3)>", r"payloads cannot have the type VARCHAR\(3\)"),
        ("level DOUBLE,", "invalid at its end"),
        ("level DOUBLE unit STRING", "invalid at 'unit'"),
        ("level DOUBLE; unit STRING", "invalid at ';'"),
        ("array<int", "invalid at its end"),
        ("array<int>>", "invalid at '>'"),
        ("map<string>", "invalid at '>'"),
        ("n array", "invalid at its end"),
        ("n decimal(a)", "invalid at 'a'"),
        ("n decimal(39)", r"DECIMAL\(39, 0\) is not valid: a decimal has 1 to 38 digits"),
        ("n decimal(2, 3)", r"DECIMAL\(2, 3\) is not valid: "),
        ("'n' INT", "invalid at \"'n'\""),
    ],
)
def test_what_is_no_schema_is_told_where_it_went_wrong(text: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=f"^jsonSchema: .*{words}"):
        parse_ddl(text)


def test_every_type_of_the_reference_is_known() -> None:
    words = ["STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE"]
    words += ["TIMESTAMP", "TIMESTAMP_NTZ", "BINARY"]
    kinds = parse_ddl(", ".join(f"c_{word} {word}" for word in words))
    assert isinstance(kinds, StructType)
    assert [field.dataType.simpleString().upper() for field in kinds.fields] == words


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
    assert str(caught.value).startswith(f"jsonSchema: payloads cannot have the type {name}; use STRING")


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

    assert DefaultSource is PenstockDataSource
    assert DefaultSource.name() == "penstock"
