"""Payloads as values: what fits, what does not, and why."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from penstock.spark.errors import InvalidOption
from penstock.spark.source.payloads import Payloads, json_type

READING = StructType().add("n", "integer").add("unit", "string")


def parse(kind: DataType, *payloads: bytes) -> tuple[list[Any], list[str | None]]:
    values, reasons = Payloads(kind, to_arrow_type(kind, timezone="UTC")).parse(
        pa.array(payloads, pa.binary())
    )
    assert values.type == to_arrow_type(kind, timezone="UTC")
    return values.to_pylist(), reasons.to_pylist()


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (StringType(), b'"text"', "text"),
        (BooleanType(), b"true", True),
        (ByteType(), b"-128", -128),
        (ShortType(), b"32767", 32767),
        (IntegerType(), b" 1 ", 1),
        (LongType(), b"-9223372036854775808", -(1 << 63)),
        (FloatType(), b"0.5", 0.5),
        (DoubleType(), b"21", 21.0),
        (DecimalType(10, 2), b"1.5", Decimal("1.50")),
        (DecimalType(10, 2), b'"1.5"', Decimal("1.50")),
        (DateType(), b'"2026-01-31"', date(2026, 1, 31)),
        (TimestampType(), b'"2026-01-31T13:00:00+01:00"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (TimestampNTZType(), b'"2026-01-31T12:00:00"', datetime(2026, 1, 31, 12)),
        (BinaryType(), b'"AAE="', b"\0\1"),
        (ArrayType(IntegerType()), b"[1, null]", [1, None]),
        (MapType(StringType(), LongType()), b'{"a": 1}', [("a", 1)]),
        (READING, b'{"n": 1, "unit": "C"}', {"n": 1, "unit": "C"}),
        (StructType().add("in", READING), b'{"in": {"n": 1}}', {"in": {"n": 1, "unit": None}}),
        (
            StructType().add("a b", "integer").add("class", "integer"),
            b'{"a b": 1, "class": 2}',
            {"a b": 1, "class": 2},
        ),
    ],
)
def test_a_payload_that_fits_becomes_a_value(kind: DataType, payload: bytes, value: object) -> None:
    assert parse(kind, payload) == ([value], [None])


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (IntegerType(), b'"1"'),
        (IntegerType(), b"2147483648"),
        (IntegerType(), b"1.5"),
        (ByteType(), b"128"),
        (LongType(), b"9223372036854775808"),
        (StringType(), b"1"),
        (BooleanType(), b"1"),
        (DoubleType(), b'"1"'),
        (DoubleType(), b"null"),
        (DecimalType(4, 2), b"1.234"),
        (DecimalType(4, 2), b"1234.5"),
        (DateType(), b'"yesterday"'),
        (TimestampType(), b'"2026-01-31T12:00:00"'),
        (TimestampNTZType(), b'"2026-01-31T12:00:00Z"'),
        (BinaryType(), b'"no base64"'),
        (ArrayType(IntegerType(), containsNull=False), b"[null]"),
        (MapType(StringType(), LongType(), valueContainsNull=False), b'{"a": null}'),
        (StructType().add("n", "integer", nullable=False), b"{}"),
        (READING, b'{"n": "1"}'),
        (READING, b"[]"),
    ],
)
def test_a_payload_that_does_not_fit_says_why(kind: DataType, payload: bytes) -> None:
    values, reasons = parse(kind, payload)
    assert values == [None]
    assert reasons[0] is not None
    assert reasons[0].startswith("does not fit: ")


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (
            StructType().add("level", "double"),
            b'{"level": "1"}',
            "a number or null, got a text - at `$.level`",
        ),
        (ByteType(), b"128", "a whole number <= 127"),
        (BooleanType(), b"[]", "true or false, got a list"),
        (TimestampType(), b"{}", "a time, got an object"),
    ],
)
def test_the_reason_is_told_in_the_words_of_json(kind: DataType, payload: bytes, reason: str) -> None:
    assert parse(kind, payload)[1] == [f"does not fit: Expected {reason}"]


def test_a_field_with_the_name_of_a_type_keeps_it() -> None:
    kind = StructType().add("int", "integer", nullable=False)
    assert parse(kind, b"{}")[1] == ["does not fit: Object missing required field `int`"]


@pytest.mark.parametrize("payload", [b"", b"{", b"hello", b"\xff\xfe", b'{"n": 1}{', b'{"unit": "\xff"}'])
def test_a_payload_that_is_no_json_says_so(payload: bytes) -> None:
    values, reasons = parse(READING, payload)
    assert values == [None]
    assert reasons[0] is not None
    assert reasons[0].startswith("not JSON: ")


def test_half_a_character_harms_nobody_else() -> None:
    values, reasons = parse(READING, b'{"unit": "C"}', b'{"unit": "\\ud800"}', b'{"unit": "F"}')
    assert [value and value["unit"] for value in values] == ["C", None, "F"]
    assert [reason is None for reason in reasons] == [True, False, True]


def test_what_is_missing_is_null_and_what_is_more_is_left_out() -> None:
    values, reasons = parse(READING, b'{"n": 1, "more": [1, 2]}', b'{"unit": null}', b"{}")
    assert values == [{"n": 1, "unit": None}, {"n": None, "unit": None}, {"n": None, "unit": None}]
    assert reasons == [None, None, None]


def test_one_row_that_does_not_fit_leaves_the_others_as_they_are() -> None:
    values, reasons = parse(DecimalType(4, 2), b"1.25", b"not", b"1.255", b"12.5")
    assert values == [Decimal("1.25"), None, None, Decimal("12.50")]
    assert [reason is None for reason in reasons] == [True, False, False, True]


def test_no_rows_are_no_rows() -> None:
    assert parse(READING) == ([], [])


@pytest.mark.parametrize("kind", [VariantType(), NullType(), MapType(IntegerType(), StringType())])
def test_types_that_json_has_not_are_refused(kind: DataType) -> None:
    with pytest.raises(InvalidOption, match="jsonSchema"):
        json_type(StructType().add("a", ArrayType(kind)))
