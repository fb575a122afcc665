"""Options of a replay: the messages to publish again, their destination, and the speed."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.common.topics import check_filter, check_topic
from penstock.errors import InvalidFilter, InvalidTopic
from penstock.lake import lake_path
from penstock.spark.errors import InvalidOption
from penstock.spark.options import ANY_LENGTH, EARLIEST, LATEST, PositionSpec, position_text

PREFIX = "replay/"
REPLAYS = "_replays"
"""Folder of a lake that holds the state files of replays."""


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """Options of a replay."""

    server: Mapping[str, str]
    """Connection options of `format("penstock")`: the server to publish to, whose log is read too."""
    lake: str | None = None
    lake_only: bool = False
    """Do not read the log: the messages of the lake may come from another server."""
    filters: tuple[str, ...] = ()
    start: PositionSpec = EARLIEST
    until: PositionSpec = LATEST
    """A time is exclusive."""
    prefix: str = PREFIX
    speed: float | None = None
    """1 is the original speed; None: as fast as the server accepts messages."""
    force: bool = False
    """Allow an empty prefix, so that messages go to their original topics."""
    keep_going: bool = False
    """Record what is missing in the range instead of failing."""
    state: Path | None = None
    again: bool = False
    """Start from the beginning, and ignore an earlier state."""

    def check(self) -> None:
        """Validate the options.

        Raises:
            InvalidOption: one is not valid, or they contradict each other.
            InvalidLake: the path cannot be that of a lake.
        """
        if not self.prefix and not self.force:
            raise InvalidOption(
                "without a prefix messages would go to their original topics: --force allows it"
            )
        try:
            check_topic(f"{self.prefix}topic", ANY_LENGTH)
        except InvalidTopic as error:
            raise InvalidOption(f"--prefix {self.prefix}: {error}") from None
        for filter in self.filters:
            try:
                check_filter(filter, ANY_LENGTH)
            except InvalidFilter as error:
                raise InvalidOption(f"--filter {filter}: {error}") from None
        if self.speed is not None and not 0 < self.speed < float("inf"):
            raise InvalidOption("--speed is a factor above 0: 1 is the original speed, 10 is ten times that")
        if self.lake_only and self.lake is None:
            raise InvalidOption("--lake-only needs --lake")
        if self.lake is not None:
            lake_path(self.lake)
        elif self.state is None:
            raise InvalidOption("a replay without a lake needs --state: a file that records its progress")

    @property
    def identity(self) -> dict[str, str]:
        """The options that distinguish one replay from another, besides the destination server."""
        texts = {
            "lake": "" if self.lake is None else str(lake_path(self.lake)),
            "lake_only": "yes" if self.lake_only else "",
            "filters": " ".join(sorted(self.filters)),
            "from": position_text(self.start),
            "until": position_text(self.until),
            "prefix": self.prefix,
            "speed": "" if self.speed is None else f"{self.speed:g}",
        }
        return {name: text for name, text in texts.items() if text}

    @property
    def state_file(self) -> Path:
        """The file that records progress; the same options have the same file."""
        if self.state is not None:
            return self.state
        assert self.lake is not None
        name = blake2b(msgspec.json.encode(self.identity), digest_size=8).hexdigest()
        return lake_path(self.lake) / REPLAYS / f"{name}.jsonl"
