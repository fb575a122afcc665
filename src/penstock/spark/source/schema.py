"""Schema of a read: the columns of the log, and the decoded payload described by `jsonSchema`.

`jsonSchema` is DDL such as `level DOUBLE, tags ARRAY<STRING>`, or JSON as Spark writes it. DDL is parsed
here: Spark's own parser lives in the JVM, which a data source cannot reach when it is asked for its columns.
Only types that payloads can have are known.
"""

import json
import re
from collections.abc import Sequence

from pyspark.errors import PySparkException
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_json_value,
)

from penstock.spark.errors import InvalidOption
from penstock.spark.options import ReadOptions
from penstock.spark.source.payloads import json_type, no_such_type
from penstock.wire.arrow import LOG_COLUMNS

_PLAIN: dict[str, DataType] = {
    "STRING": StringType(),
    "BOOLEAN": BooleanType(),
    "TINYINT": ByteType(),
    "BYTE": ByteType(),
    "SMALLINT": ShortType(),
    "SHORT": ShortType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "LONG": LongType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_LTZ": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "BINARY": BinaryType(),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_MAX_DIGITS = 38
_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign>\S))"
)
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
"""Types of the columns that are not text."""


def log_schema(columns: tuple[str, ...] = LOG_COLUMNS) -> StructType:
    """Some columns of the log; each is nullable."""
    return StructType([StructField(name, _TYPES.get(name, StringType())) for name in columns])


def declared_schema(options: ReadOptions) -> StructType:
    """The columns of a read.

    Raises:
        InvalidOption: `jsonSchema` is not a valid schema, or not one that payloads can have.
    """
    columns, text = log_schema(options.columns), options.json_schema
    if text is None:
        return columns
    value = _type_in(text) if text.startswith(("{", '"')) else parse_ddl(text)
    json_type(value)  # fail here, not in a task, on types that JSON lacks
    return columns.add(VALUE, value).add(DEAD_LETTER, StringType())


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema set by `.schema(...)` that differs from the columns of the read.

    Raises:
        InvalidOption: it differs.
    """
    wanted = log_schema(options.columns)
    names = [*wanted.names, *([] if options.json_schema is None else [VALUE, DEAD_LETTER])]
    is_same = schema.names == names and all(
        schema[field.name].dataType == field.dataType for field in wanted.fields
    )
    if not is_same:
        raise InvalidOption(
            f"the columns of this read are {', '.join(names)}: choose columns with the option columns, not "
            "with a schema, and describe payloads with jsonSchema"
        )


def _type_in(text: str) -> DataType:
    try:
        return _parse_datatype_json_value(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, PySparkException) as error:
        raise InvalidOption(f"jsonSchema: this is not a valid Spark schema in JSON: {error}") from None


def parse_ddl(text: str) -> DataType:
    """Parse columns with their types into a struct, or a single type such as `array<int>`.

    Raises:
        InvalidOption: it is neither; the text names the token in question.
    """
    tokens = _DdlParser(text)
    kind = tokens.kind() if tokens.is_one_type() else StructType(tokens.fields(""))
    if tokens.next:
        raise tokens.problem()
    return kind


class _DdlParser:
    """Recursive-descent parser over the tokens of a schema."""

    def __init__(self, text: str) -> None:
        self._found: Sequence[re.Match[str]] = list(_TOKEN.finditer(text.rstrip()))
        self._at = 0

    @property
    def next(self) -> str:
        """The next token in upper case, as SQL ignores case; empty at the end."""
        return self._peek().upper()

    def _peek(self) -> str:
        return self._found[self._at][0].strip() if self._at < len(self._found) else ""

    def is_one_type(self) -> bool:
        """The text is a type, not a name followed by a type."""
        return len(self._found) < 2 or self._found[1][0].strip() in ("<", "(")

    def problem(self) -> InvalidOption:
        """The error for the current token."""
        place = f"at {self._peek()!r}" if self.next else "at its end"
        return InvalidOption(f"jsonSchema: invalid {place}; write it like 'level DOUBLE, unit STRING'")

    def take(self, *wanted: str) -> bool:
        """Consume these tokens, if they come next."""
        if [each[0].strip().upper() for each in self._found[self._at : self._at + len(wanted)]] != [*wanted]:
            return False
        self._at += len(wanted)
        return True

    def need(self, *wanted: str) -> None:
        """Consume these tokens, or raise."""
        if not self.take(*wanted):
            raise self.problem()

    def fields(self, end: str) -> list[StructField]:
        """Fields up to an end token."""
        if self.next == end:
            return []
        fields = [self._field()]
        while self.take(","):
            fields.append(self._field())
        return fields

    def _field(self) -> StructField:
        name = self._name()
        self.take(":")
        kind = self.kind()
        is_nullable = not self.take("NOT", "NULL")
        if self.take("COMMENT"):
            self._one("text")
        return StructField(name, kind, is_nullable)

    def _name(self) -> str:
        quoted = self.next.startswith("`")
        return self._one("quoted").replace("``", "`") if quoted else self._one("word")

    def _one(self, group: str) -> str:
        if self._at >= len(self._found) or (found := self._found[self._at][group]) is None:
            raise self.problem()
        self._at += 1
        return found

    def kind(self) -> DataType:
        """A type with everything nested in it."""
        word = self._one("word").upper()
        if word in _DECIMALS:
            return self._decimal()
        if word == "ARRAY":
            self.need("<")
            kind: DataType = ArrayType(self.kind())
        elif word == "MAP":
            self.need("<")
            keys = self.kind()
            self.need(",")
            kind = MapType(keys, self.kind())
        elif word == "STRUCT":
            self.need("<")
            kind = StructType(self.fields(">"))
        elif word in _PLAIN:
            return _PLAIN[word]
        else:
            raise no_such_type(word + self._brackets())
        self.need(">")
        return kind

    def _decimal(self) -> DecimalType:
        digits, behind = 10, 0
        if self.take("("):
            digits = self._number()
            behind = self._number() if self.take(",") else 0
            self.need(")")
        if not 1 <= digits <= _MAX_DIGITS or behind > digits:
            raise InvalidOption(
                f"jsonSchema: DECIMAL({digits}, {behind}) is not valid: a decimal has 1 to {_MAX_DIGITS} "
                "digits, of which any number follows the point"
            )
        return DecimalType(digits, behind)

    def _number(self) -> int:
        if not self.next.isdecimal():
            raise self.problem()
        return int(self._one("word"))

    def _brackets(self) -> str:
        """The length in `VARCHAR(3)`, for the error text."""
        if not self.take("("):
            return ""
        inside = []
        while self.next not in (")", ""):
            inside.append(self._peek())
            self._at += 1
        return f"({''.join(inside)})"
