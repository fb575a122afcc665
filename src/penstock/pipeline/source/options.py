"""What can be said with `.option(...)` to read topics, checked before anything is asked of a server."""

import json
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from penstock.client.address import Address
from penstock.core.archive import LOG_COLUMNS
from penstock.core.cursor import Cursor
from penstock.core.settings import TopicLimits
from penstock.core.topics import check_filter, split_share
from penstock.errors import InvalidCursor, InvalidFilter
from penstock.pipeline.source.connection import RETRY_FOR_S, TIMEOUT_S, Connection
from penstock.pipeline.source.errors import InvalidOption

EARLIEST, LATEST = "earliest", "latest"
HOLD_LAPSE_S = 86_400.0
HERE = "http://127.0.0.1:8080"

Place = str | datetime
"""`earliest`, `latest`, a cursor, or a time."""

NAMES = (
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
_OF_STREAMS = ("maxRowsPerTrigger", "maxBytesPerTrigger", "hold", "holdLapse")
_BOOLEANS = {"true": True, "false": False}
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_ANY_LENGTH = TopicLimits(max_bytes=65535, max_levels=65535)  # the server has its own opinion
_MOST_PARTS = 10_000
_ALIKE = 0.75  # with less, filter would be like caFile


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Everything that a read was told."""

    connection: Connection | None
    """None: read what is in the lake, and ask nobody."""
    filters: tuple[str, ...] = ()
    columns: tuple[str, ...] = LOG_COLUMNS
    starting: Place = EARLIEST
    ending: Place = LATEST
    max_rows: int | None = None
    max_bytes: int | None = None
    parallelism: int
    fail_on_data_loss: bool = True
    missing: str | None = None
    hold: str | None = None
    hold_lapse_s: float = HOLD_LAPSE_S
    json_schema: str | None = None
    lake: str | None = None


def read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """What the options of a read say.

    Raises:
        InvalidOption: one is unknown or out of range, or they do not go together.
    """
    said = _Said(given)
    said.check_names()
    if not is_stream and (wrong := [name for name in _OF_STREAMS if name in said]):
        raise InvalidOption(f"{wrong[0]} is an option of streams: this is a read that ends by itself")
    options = ReadOptions(
        connection=_connection(said),
        filters=said.get("filter", _filters, ()),
        columns=said.get("columns", _columns, LOG_COLUMNS),
        starting=said.get("startingOffsets", _beginning, EARLIEST),
        ending=said.get("endingOffsets", _end, LATEST),
        max_rows=said.get("maxRowsPerTrigger", _count, None),
        max_bytes=said.get("maxBytesPerTrigger", _size, None),
        parallelism=said.get("parallelism", _count, os.cpu_count() or 1),
        fail_on_data_loss=said.get("failOnDataLoss", _boolean, True),
        missing=said.get("missing", _folder, None),
        hold=said.get("hold", _text, None),
        hold_lapse_s=said.get("holdLapse", _seconds, HOLD_LAPSE_S),
        json_schema=said.get("jsonSchema", _text, None),
        lake=said.get("lake", _text, None),
    )
    _check_together(said, options)
    return options


def _check_together(said: "_Said", options: ReadOptions) -> None:
    if options.connection is None and options.lake is None:
        raise InvalidOption("without an address there has to be a lake to read")
    if options.connection is None and options.hold is not None:
        raise InvalidOption("hold needs a server: give its address")
    if options.hold is None and "holdLapse" in said:
        raise InvalidOption("holdLapse needs hold, the name of what lapses")
    if not options.fail_on_data_loss and options.missing is None:
        raise InvalidOption(
            "failOnDataLoss=false needs missing: a directory where it is written down what was not there"
        )
    if options.ending == EARLIEST:
        raise InvalidOption("endingOffsets is latest, a cursor or a time: nothing ends at the beginning")
    if options.parallelism > _MOST_PARTS:
        raise InvalidOption(f"parallelism is {_MOST_PARTS} at most")


def check_names(given: Iterable[str], names: Sequence[str], purpose: str = "") -> None:
    """Refuse an option that nobody would look at.

    Raises:
        InvalidOption: there is one; the text says how it may have been meant.
    """
    known = {name.lower(): name for name in names}
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, 1, _ALIKE)
            meant = f"did you mean {known[close[0]]}? " if close else ""
            raise InvalidOption(
                f"there is no option {name}{purpose}: {meant}The options are {', '.join(names)}"
            )


class _Said:
    """The options as they were given, under the names that they have here."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def check_names(self) -> None:
        """Refuse what nobody would look at."""
        if "path" in self._given:
            raise InvalidOption("there is no path to load: topics are chosen with the option filter")
        check_names(self._given, NAMES)

    def get(self, name: str, parse: Callable[[str], Any], default: Any) -> Any:
        """The value of an option.

        Raises:
            InvalidOption: it is not what this option takes.
        """
        if name not in self:
            return default
        try:
            return parse(self._given[name.lower()].strip())
        except (ValueError, InvalidFilter) as error:
            raise InvalidOption(f"{name}: {error}") from None


def _connection(said: _Said) -> Connection | None:
    address = said.get("address", _address, HERE)
    connection = Connection(
        address=address,
        user=said.get("user", _text, None),
        password=said.get("password", str, None),
        ca_file=said.get("caFile", _certificates, None),
        timeout_s=said.get("timeout", _seconds, TIMEOUT_S),
        retry_for_s=said.get("retryFor", _seconds_or_none, RETRY_FOR_S),
    )
    return connection if address else None


def _address(text: str) -> str:
    return str(Address.parse(text)) if text else ""


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
        raise ValueError("there is no topic filter in it; leave it out to read all topics")
    for each in filters:
        check_filter(each, _ANY_LENGTH)
        if split_share(each)[0] is not None:
            raise ValueError(f"{each}: a log is not shared; leave out the group")
    return filters


def _columns(text: str) -> tuple[str, ...]:
    columns = tuple(_listed(text))
    for name in columns:
        if name not in LOG_COLUMNS:
            raise ValueError(f"there is no column {name!r}; the columns are {', '.join(LOG_COLUMNS)}")
    if not columns or len(set(columns)) < len(columns):
        raise ValueError("name each column that you want once")
    return columns


def _listed(text: str) -> list[str]:
    """Texts with commas between them, or a JSON list for those that hold a comma."""
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        parts = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError("this begins like a JSON list and is none") from None
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("a JSON list of texts is wanted")
    return list(parts)


def _beginning(text: str) -> Place:
    return _place(text, f"{EARLIEST}, {LATEST}")


def _end(text: str) -> Place:
    return _place(text, LATEST)


def _place(text: str, words: str) -> Place:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        if not text[:1].isdigit():  # no cursor begins like that
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


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"a whole number from 1 on is wanted, not {text!r}")
    return int(text)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or int(found[1]) < 1:
        raise ValueError(f"a number of bytes is wanted, such as 67108864 or 64m, not {text!r}")
    return int(found[1]) * _UNITS[found[2].lower()]


def _seconds_or_none(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"a number of seconds is wanted, not {text!r}") from None
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a number of seconds is wanted, not {text!r}")
    return seconds


def _seconds(text: str) -> float:
    seconds = _seconds_or_none(text)
    if not seconds:
        raise ValueError("more than 0 seconds are wanted")
    return seconds


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"true or false is wanted, not {text!r}")
    return _BOOLEANS[text.lower()]


def _folder(text: str) -> str:
    from penstock.pipeline.lake import InvalidLake, lake_path  # noqa: PLC0415 - most reads have no folders

    try:
        return str(lake_path(_text(text)))
    except InvalidLake:
        raise ValueError(f"{text}: give a directory that all machines see under the same path") from None


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text
