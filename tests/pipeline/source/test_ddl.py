"""Schemas as SQL writes them."""

import pytest
from pyspark.sql.types import (
    ArrayType,
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
)

from penstock.pipeline.source import InvalidOption
from penstock.pipeline.source.ddl import parse_ddl

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
        ("level DOBLE, n INT", "there is no type DOBLE for payloads"),
        ("level", "there is no type LEVEL for payloads"),
        ("in STRUCT<n: VARCHAR(3)>", r"there is no type VARCHAR\(3\) for payloads"),
        ("level DOUBLE,", "cannot be read at its end"),
        ("level DOUBLE unit STRING", "cannot be read at 'unit'"),
        ("level DOUBLE; unit STRING", "cannot be read at ';'"),
        ("array<int", "cannot be read at its end"),
        ("array<int>>", "cannot be read at '>'"),
        ("map<string>", "cannot be read at '>'"),
        ("n array", "cannot be read at its end"),
        ("n decimal(a)", "cannot be read at 'a'"),
        ("n decimal(39)", r"DECIMAL\(39, 0\): a decimal has 1 to 38 digits"),
        ("n decimal(2, 3)", r"DECIMAL\(2, 3\): "),
        ("'n' INT", "cannot be read at \"'n'\""),
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
