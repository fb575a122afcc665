"""What a replay is told: which messages, where to, and how fast."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.core.cursor import Cursor
from penstock.core.settings import TopicLimits
from penstock.core.topics import check_filter, check_topic
from penstock.errors import InvalidCursor, InvalidFilter, InvalidTopic
from penstock.pipeline.lake import lake_path
from penstock.pipeline.source.errors import InvalidOption

EARLIEST, LATEST = "earliest", "latest"
PREFIX = "replay/"
REPLAYS = "_replays"
"""The folder of a lake where replays remember how far they have got."""

Place = str | datetime
"""`earliest`, `latest`, a cursor, or a time."""

_ANY_LENGTH = TopicLimits(max_bytes=65_535, max_levels=65_535)  # the server has its own opinion


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """Everything that a replay was told."""

    server: Mapping[str, str]
    """Where to publish, and whose log is read: the options of `format("penstock")`."""
    lake: str | None = None
    lake_only: bool = False
    """The log is not read: what is in the lake may be of another server."""
    filters: tuple[str, ...] = ()
    start: Place = EARLIEST
    until: Place = LATEST
    """A time is not included."""
    prefix: str = PREFIX
    speed: float | None = None
    """1 is as it was; None: as fast as the server takes it."""
    force: bool = False
    """The prefix may be empty: messages go to the topics that they came from."""
    keep_going: bool = False
    """What is missing in the range is written down, and is no error."""
    state: Path | None = None
    again: bool = False
    """Begin at the beginning, whatever was done before."""

    def check(self) -> None:
        """Refuse what does not go together.

        Raises:
            InvalidOption: saying what.
            InvalidLake: this cannot be the path of one.
        """
        if not self.prefix and not self.force:
            raise InvalidOption(
                "without a prefix messages would go to the topics that they came from: --force allows it"
            )
        try:
            check_topic(f"{self.prefix}topic", _ANY_LENGTH)
        except InvalidTopic as error:
            raise InvalidOption(f"--prefix {self.prefix}: {error}") from None
        for filter in self.filters:
            try:
                check_filter(filter, _ANY_LENGTH)
            except InvalidFilter as error:
                raise InvalidOption(f"--filter {filter}: {error}") from None
        if self.speed is not None and not 0 < self.speed < float("inf"):
            raise InvalidOption("--speed is a factor above 0: 1 is as fast as it was, 10 is ten times that")
        if self.lake_only and self.lake is None:
            raise InvalidOption("--lake-only needs --lake")
        if self.lake is not None:
            lake_path(self.lake)
        elif self.state is None:
            raise InvalidOption(
                "a replay without a lake needs --state: a file where it remembers how far it has got"
            )

    @property
    def what(self) -> dict[str, str]:
        """What tells one replay from another, beside the server that gets the messages."""
        told = {
            "lake": "" if self.lake is None else str(lake_path(self.lake)),
            "lake_only": "yes" if self.lake_only else "",
            "filters": " ".join(sorted(self.filters)),
            "from": place_text(self.start),
            "until": place_text(self.until),
            "prefix": self.prefix,
            "speed": "" if self.speed is None else f"{self.speed:g}",
        }
        return {name: text for name, text in told.items() if text}

    @property
    def state_file(self) -> Path:
        """Where it remembers how far it has got; the same options have the same file."""
        if self.state is not None:
            return self.state
        assert self.lake is not None
        name = blake2b(msgspec.json.encode(self.what), digest_size=8).hexdigest()
        return lake_path(self.lake) / REPLAYS / f"{name}.jsonl"


def parse_place(text: str) -> Place:
    """Where a range begins or ends: `earliest`, `latest`, a cursor, or a time with its zone.

    Raises:
        ValueError: it is nothing of that.
    """
    if text in (EARLIEST, LATEST):
        return text
    if not text[:1].isdigit():  # no cursor begins like that
        try:
            Cursor.decode(text)
        except InvalidCursor as error:
            raise ValueError(f"{text!r}: {error}") from None
        return text
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"{text!r} needs its time zone, such as 2026-01-31T12:00:00Z")
    return when


def place_text(place: Place) -> str:
    """The same as text."""
    return place if isinstance(place, str) else time_text(place)


def time_text(when: datetime) -> str:
    """A time to the microsecond, in UTC."""
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
