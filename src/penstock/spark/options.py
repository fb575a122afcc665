"""Options of `format("penstock")`, for reading and for writing, validated before any request to a server."""

import json
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from penstock.client.address import Address
from penstock.common.cursor import Cursor
from penstock.common.topics import TopicLimits, check_filter, split_share
from penstock.errors import InvalidCursor, InvalidFilter
from penstock.spark.connection import RETRY_FOR_S, TIMEOUT_S, Connection
from penstock.spark.errors import InvalidOption
from penstock.wire.arrow import LOG_COLUMNS

EARLIEST, LATEST = "earliest", "latest"
HOLD_LAPSE_S = 86_400.0
DEFAULT_ADDRESS = "http://127.0.0.1:8080"
MAX_PARTS = 10_000
MAX_KEY_LENGTH = 200
ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)
"""Limits for checks on this side; the server applies its own."""

PositionSpec = str | datetime
"""`earliest`, `latest`, a cursor, or a time."""

READ_NAMES = (
    "address",
    "user",
    "password",
    "caFile",
    "timeout",
    "retryFor",
    "filter",
    "columns",
    "startingOffsets",
    "endingOffsets",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "parallelism",
    "failOnDataLoss",
    "missing",
    "hold",
    "holdLapse",
    "jsonSchema",
    "lake",
)
WRITE_NAMES = ("address", "user", "password", "caFile", "topic", "key", "retryFor", "timeout")

_STREAM_ONLY = ("maxRowsPerTrigger", "maxBytesPerTrigger", "hold", "holdLapse")
_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})
"""Options of Spark itself, which it passes on to writers."""
_BOOLEANS = {"true": True, "false": False}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SIMILARITY = 0.75  # with less, filter would be similar to caFile


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Options of a read, validated."""

    connection: Connection | None
    """None: read the lake only, and connect to no server."""
    filters: tuple[str, ...] = ()
    columns: tuple[str, ...] = LOG_COLUMNS
    starting: PositionSpec = EARLIEST
    ending: PositionSpec = LATEST
    max_rows: int | None = None
    max_bytes: int | None = None
    parallelism: int
    fail_on_data_loss: bool = True
    missing: str | None = None
    hold: str | None = None
    hold_lapse_s: float = HOLD_LAPSE_S
    json_schema: str | None = None
    lake: str | None = None


class WriteOptions(Struct, frozen=True, kw_only=True):
    """Options of a write, validated."""

    connection: Connection
    topic: str | None = None
    """For rows without a topic."""
    key: str | None = None
    """Idempotency key of the batch: a second write with the same key publishes nothing."""


def read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Parse the options of a read.

    Raises:
        InvalidOption: one is unknown or out of range, or they contradict each other.
    """
    said = _Given(given)
    if "path" in said:
        raise InvalidOption("there is no path to load: choose topics with the option filter")
    said.check_names(READ_NAMES)
    if not is_stream and (wrong := [name for name in _STREAM_ONLY if name in said]):
        raise InvalidOption(f"{wrong[0]} is an option of streams: this is a read that ends by itself")
    options = ReadOptions(
        connection=said.connection() if said.get("address", str, DEFAULT_ADDRESS) else None,
        filters=said.get("filter", _filters, ()),
        columns=said.get("columns", _columns, LOG_COLUMNS),
        starting=said.get("startingOffsets", parse_position, EARLIEST),
        ending=said.get("endingOffsets", _ending, LATEST),
        max_rows=said.get("maxRowsPerTrigger", _count, None),
        max_bytes=said.get("maxBytesPerTrigger", _size, None),
        parallelism=said.get("parallelism", _count, os.cpu_count() or 1),
        fail_on_data_loss=said.get("failOnDataLoss", _boolean, True),
        missing=said.get("missing", _folder, None),
        hold=said.get("hold", _text, None),
        hold_lapse_s=said.get("holdLapse", _positive_seconds, HOLD_LAPSE_S),
        json_schema=said.get("jsonSchema", _text, None),
        lake=said.get("lake", _text, None),
    )
    _check_combination(said, options)
    return options


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write.

    Raises:
        InvalidOption: one is unknown or out of range.
    """
    said = _Given({name: text for name, text in given.items() if name.lower() not in _SPARK_OWN})
    if "path" in said:
        raise InvalidOption(
            "topics have no path: call save() and start() without one; the column topic names the topic"
        )
    said.check_names(WRITE_NAMES, " for writing")
    return WriteOptions(connection=said.connection(), topic=said.raw("topic", str), key=said.raw("key", _key))


def parse_position(text: str, words: str = f"{EARLIEST}, {LATEST}") -> PositionSpec:
    """Parse `earliest`, `latest`, a cursor, or a time with its zone.

    Args:
        words: the words to name in an error.

    Raises:
        ValueError: it is none of these.
    """
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        if not text[:1].isdigit():  # no cursor begins with a digit
            Cursor.decode(text)
            return text
        when = datetime.fromisoformat(text)
    except (ValueError, InvalidCursor):
        raise ValueError(
            f"write {words}, a cursor, or a time with its zone such as 2026-01-31T12:00:00Z, not {text!r}"
        ) from None
    if when.tzinfo is None:
        raise ValueError(f"{text!r} needs its time zone, such as 2026-01-31T12:00:00Z")
    return when


def position_text(position: PositionSpec) -> str:
    """A position as option text."""
    return position if isinstance(position, str) else time_text(position)


def time_text(when: datetime) -> str:
    """A time to the microsecond, in UTC."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Given:
    """The options as given; Spark ignores the case of their names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def check_names(self, names: Sequence[str], purpose: str = "") -> None:
        """Refuse unknown options.

        Raises:
            InvalidOption: there is one; the text suggests a similar name.
        """
        known = {name.lower(): name for name in names}
        for name in sorted(self._given.keys() - known.keys()):
            close = get_close_matches(name, known, 1, _SIMILARITY)
            meant = f"did you mean {known[close[0]]}? " if close else ""
            raise InvalidOption(
                f"there is no option {name}{purpose}: {meant}The options are {', '.join(names)}"
            )

    def get(self, name: str, parse: Callable[[str], Any], default: Any) -> Any:
        """The value of an option, without blanks around it.

        Raises:
            InvalidOption: the value is not valid for this option.
        """
        return self.raw(name, lambda text: parse(text.strip()), default)

    def raw(self, name: str, parse: Callable[[str], Any], default: Any = None) -> Any:
        """The value of an option in which blanks count."""
        if name not in self:
            return default
        try:
            return parse(self._given[name.lower()])
        except (ValueError, InvalidFilter) as error:
            raise InvalidOption(f"{name}: {error}") from None

    def connection(self) -> Connection:
        """The connection that the options describe."""
        return Connection(
            address=self.get("address", _address, DEFAULT_ADDRESS),
            user=self.get("user", _text, None),
            password=self.raw("password", str),
            ca_file=self.get("caFile", _certificates, None),
            timeout_s=self.get("timeout", _positive_seconds, TIMEOUT_S),
            retry_for_s=self.get("retryFor", _seconds, RETRY_FOR_S),
        )


def _check_combination(said: _Given, options: ReadOptions) -> None:
    if options.connection is None and options.lake is None:
        raise InvalidOption("address is empty: give the address of a server, or a lake to read")
    if options.connection is None and options.hold is not None:
        raise InvalidOption("hold needs a server: give its address")
    if options.hold is None and "holdLapse" in said:
        raise InvalidOption("holdLapse needs hold, the name of the hold")
    if not options.fail_on_data_loss and options.missing is None:
        raise InvalidOption("failOnDataLoss=false needs missing: a directory that records missing rows")
    if options.ending == EARLIEST:
        raise InvalidOption("endingOffsets cannot be earliest: give latest, a cursor or a time")
    if options.parallelism > MAX_PARTS:
        raise InvalidOption(f"parallelism is {options.parallelism}, and can be at most {MAX_PARTS}")


def _address(text: str) -> str:
    return str(Address.parse(text))


def _certificates(text: str) -> str:
    try:
        ssl.create_default_context(cafile=_text(text))
    except ssl.SSLError:
        raise ValueError(f"there are no certificates in {text}") from None
    except OSError as error:
        raise ValueError(f"{text}: {error.strerror}") from None
    return text


def _filters(text: str) -> tuple[str, ...]:
    filters = tuple(_listed(text))
    if not filters:
        raise ValueError("it names no topic filter; leave it out to read all topics")
    for each in filters:
        check_filter(each, ANY_LENGTH)
        if split_share(each)[0] is not None:
            raise ValueError(f"{each}: a read of the log cannot be shared; leave out the group")
    return filters


def _columns(text: str) -> tuple[str, ...]:
    columns = tuple(_listed(text))
    for name in columns:
        if name not in LOG_COLUMNS:
            raise ValueError(f"there is no column {name!r}; the columns are {', '.join(LOG_COLUMNS)}")
    if not columns or len(set(columns)) < len(columns):
        raise ValueError("name each column once")
    return columns


def _listed(text: str) -> list[str]:
    """Texts separated by commas, or a JSON list for texts that contain a comma."""
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        parts = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"{text} is not a valid JSON list") from None
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{text} is not a JSON list of texts")
    return list(parts)


def _ending(text: str) -> PositionSpec:
    return parse_position(text, LATEST)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or int(found[1]) < 1:
        raise ValueError(f"{text!r} is not a number of bytes, such as 67108864 or 64m")
    return int(found[1]) * _UNITS[found[2].lower()]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is not a number of seconds")
    return seconds


def _positive_seconds(text: str) -> float:
    seconds = _seconds(text)
    if not seconds:
        raise ValueError("it must be more than 0 seconds")
    return seconds


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


def _key(text: str) -> str:
    is_printable = text.isascii() and text.isprintable() and text == text.strip()
    if not (0 < len(text) <= MAX_KEY_LENGTH and is_printable):
        raise ValueError(
            f"a key has 1 to {MAX_KEY_LENGTH} printable ASCII characters, without blanks around them"
        )
    return text


def _folder(text: str) -> str:
    from penstock.lake import InvalidLake, lake_path  # noqa: PLC0415 - most reads need no folder

    try:
        return str(lake_path(_text(text)))
    except InvalidLake:
        raise ValueError(f"{text}: give a directory that all machines see under the same path") from None


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text
