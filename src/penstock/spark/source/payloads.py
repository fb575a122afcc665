"""JSON payloads decoded into Spark types, row by row; a row that does not match gets the reason instead.

Types are strict: a number in quotes is not a number. A missing field is null, unless the schema says NOT
NULL; fields that the schema does not name are dropped. Times are ISO 8601 texts, bytes are base64 texts.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, NotRequired, Required, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta
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
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.errors import InvalidOption

_PLAIN: dict[type[DataType], Any] = {
    StringType: str,
    BooleanType: bool,
    ByteType: Annotated[int, Meta(ge=-(1 << 7), lt=1 << 7)],
    ShortType: Annotated[int, Meta(ge=-(1 << 15), lt=1 << 15)],
    IntegerType: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)],
    LongType: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    DateType: date,
    TimestampType: Annotated[datetime, Meta(tz=True)],
    TimestampNTZType: Annotated[datetime, Meta(tz=False)],
    BinaryType: bytes,
}

TYPES = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, BINARY, ARRAY, MAP and STRUCT"
)
"""Types that payloads can have."""

_SAID = re.compile(r"(?<=Expected )`([a-z| ]+)`|(?<=got )`([a-z]+)`")
"""Type names in the messages of msgspec."""
_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "bytes": "a text in base64",
    "date": "a date",
    "datetime": "a time",
    "decimal": "a number",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "a text",
}
"""JSON types in plain words."""

_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""Errors that Arrow raises for a value out of range for its type."""


class Payloads:
    """Decoder of payloads into one Spark type.

    Raises:
        InvalidOption: JSON has no counterpart of this type.
    """

    def __init__(self, kind: DataType, arrow_type: pa.DataType) -> None:
        self._arrow_type = arrow_type
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(json_type(kind)).decode

    def parse(self, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The value of each payload, null if it does not match; and the reason, null if it matches."""
        values: list[Any] = []
        reasons: list[str | None] = []
        decode = self._decode
        for payload in payloads.to_pylist():
            try:
                values.append(decode(payload))
                reasons.append(None)
            except (msgspec.MsgspecError, UnicodeError) as error:
                values.append(None)
                reasons.append(_reason(error))
        return self._column(values, reasons), pa.array(reasons, pa.string())

    def _column(self, values: list[Any], reasons: list[str | None]) -> pa.Array:
        try:
            return pa.array(values, self._arrow_type)
        except _UNFIT:  # such as a number with too many digits: find the row
            return pa.concat_arrays([self._cell(values, reasons, row) for row in range(len(values))])

    def _cell(self, values: Sequence[Any], reasons: list[str | None], row: int) -> pa.Array:
        try:
            return pa.array([values[row]], self._arrow_type)
        except _UNFIT as error:
            reasons[row] = f"does not fit: {error}"
            return pa.nulls(1, self._arrow_type)


def json_type(kind: DataType) -> Any:
    """The msgspec type for a Spark type.

    Raises:
        InvalidOption: there is none.
    """
    if isinstance(kind, StructType):
        fields = {field.name: _field(field.dataType, field.nullable) for field in kind.fields}
        return TypedDict("Fields", fields)  # type: ignore[operator]
    if isinstance(kind, ArrayType):
        return list[_or_null(kind.elementType, kind.containsNull)]  # type: ignore[misc]
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise InvalidOption(f"jsonSchema: the keys of a MAP must be STRING, not {_name(kind.keyType)}")
        return dict[str, _or_null(kind.valueType, kind.valueContainsNull)]  # type: ignore[misc]
    try:
        return _PLAIN[type(kind)]
    except KeyError:
        raise no_such_type(_name(kind)) from None


def no_such_type(name: str) -> InvalidOption:
    """The error for a type that payloads cannot have."""
    return InvalidOption(f"jsonSchema: payloads cannot have the type {name.upper()}; use {TYPES}")


def _field(kind: DataType, is_nullable: bool) -> Any:
    found = _or_null(kind, is_nullable)
    return NotRequired[found] if is_nullable else Required[found]


def _or_null(kind: DataType, is_nullable: bool) -> Any:
    found = json_type(kind)
    return found | None if is_nullable else found


def _name(kind: DataType) -> str:
    return kind.simpleString()


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"does not fit: {_SAID.sub(_in_words, str(error))}"
    return f"not JSON: {error}"


def _in_words(said: re.Match[str]) -> str:
    """A type in words: `float | null` is "a number or null"."""
    return " or ".join(_WORDS.get(name, name) for name in (said[1] or said[2]).split(" | "))
