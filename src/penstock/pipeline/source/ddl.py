"""A schema as SQL writes it, `level DOUBLE, tags ARRAY<STRING>`, read without Spark.

Spark has a parser of its own, in its JVM, which is out of reach where a source is asked for its columns; and
what it would say of a misspelt type is about a text that nobody wrote. Only types that payloads can have are
known here.
"""

import re
from collections.abc import Sequence

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
)

from penstock.pipeline.source.errors import InvalidOption
from penstock.pipeline.source.payloads import no_such_type

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
_MOST_DIGITS = 38
_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign>\S))"
)


def parse_ddl(text: str) -> DataType:
    """The struct that columns with their types make, or the type if it is only one, such as `array<int>`.

    Raises:
        InvalidOption: it is neither; the text says where it went wrong.
    """
    tokens = _Tokens(text)
    kind = tokens.kind() if tokens.is_one_type() else StructType(tokens.fields(""))
    if tokens.next:
        raise tokens.problem()
    return kind


class _Tokens:
    """The words and signs of a schema, taken one after the other."""

    def __init__(self, text: str) -> None:
        self._found: Sequence[re.Match[str]] = list(_TOKEN.finditer(text.rstrip()))
        self._at = 0

    @property
    def next(self) -> str:
        """What comes next, in capitals as SQL does not mind; empty at the end."""
        return self._peek().upper()

    def _peek(self) -> str:
        return self._found[self._at][0].strip() if self._at < len(self._found) else ""

    def is_one_type(self) -> bool:
        """Whether a type stands here, and not a name with a type behind it."""
        return len(self._found) < 2 or self._found[1][0].strip() in ("<", "(")

    def problem(self) -> InvalidOption:
        """What to say of the place where nothing fits."""
        place = f"at {self._peek()!r}" if self.next else "at its end"
        return InvalidOption(
            f"jsonSchema: it cannot be read {place}; write it like 'level DOUBLE, unit STRING'"
        )

    def take(self, *wanted: str) -> bool:
        """Go past these words and signs, if it is they that come next."""
        if [each[0].strip().upper() for each in self._found[self._at : self._at + len(wanted)]] != [*wanted]:
            return False
        self._at += len(wanted)
        return True

    def need(self, *wanted: str) -> None:
        """The same where nothing else will do."""
        if not self.take(*wanted):
            raise self.problem()

    def fields(self, end: str) -> list[StructField]:
        """Names with their types, up to a sign."""
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
        """A type, with all that is inside of it."""
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
        if not 1 <= digits <= _MOST_DIGITS or behind > digits:
            raise InvalidOption(
                f"jsonSchema: DECIMAL({digits}, {behind}): a decimal has 1 to {_MOST_DIGITS} digits, and not "
                "more of them behind the point"
            )
        return DecimalType(digits, behind)

    def _number(self) -> int:
        if not self.next.isdecimal():
            raise self.problem()
        return int(self._one("word"))

    def _brackets(self) -> str:
        """The length in `VARCHAR(3)`, for who is told of it."""
        if not self.take("("):
            return ""
        inside = []
        while self.next not in (")", ""):
            inside.append(self._peek())
            self._at += 1
        return f"({''.join(inside)})"
