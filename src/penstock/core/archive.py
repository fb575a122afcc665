"""A log that is read in bulk: what a door and the pipeline need of it, beside what core does.

It has no twin in memory: only a log on disk is read in bulk. Its holds are how readers keep what they have
not read yet.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.ports import Gap, Wanted

LOG_COLUMNS = (
    "offset",
    "topic",
    "sequence",
    "epoch",
    "published_at",
    "expires_at",
    "qos",
    "retain",
    "payload",
    "content_type",
    "correlation_id",
    "message_id",
    "client_id",
    "node_id",
    "door",
    "properties",
    "logged_at",
)
"""The columns of the log as Arrow has it, in their order."""


class ArrowSpan(Struct, frozen=True):
    """What a log has between two offsets, as complete Arrow IPC streams one after another."""

    streams: tuple[bytes, ...]
    until: int
    rows: int
    gaps: tuple[Gap, ...] = ()


class Portion(Struct, frozen=True):
    """A part of a log: what lies after one offset, up to another."""

    after: int
    until: int
    rows: int
    """There may be fewer, but not more."""
    bytes: int
    """What it takes as stored, about."""


class Portions(Struct, frozen=True):
    """A part of a log in portions that meet, and what is known to be missing of it."""

    parts: tuple[Portion, ...]
    gaps: tuple[Gap, ...] = ()


class Hold(Struct, frozen=True):
    """A named position by which a reader keeps what it has not read: everything after `offset`."""

    name: str
    owner: str
    offset: int
    lapse_s: float
    """How long it lasts from each sign of life on."""
    lapses_at: int
    """When it lapses if there is none, in microseconds of wall time."""
    filters: tuple[str, ...] = ()
    """What its owner wants to read; nothing stands for everything. All topics are kept in any case."""


class Holds(Protocol):
    """All holds of a log. What is changed in one turn of the loop is stored with the log's commit of it."""

    def create(
        self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...] = ()
    ) -> Hold:
        """Keep everything after an offset; if the owner has a hold of this name already, it takes this place.

        Raises:
            InvalidHold: the name or the lapse time breaks a rule.
            NotAuthorized: someone else has a hold of this name.
            InvalidCursor: what follows the offset is not there any more.
            QuotaExceeded: there are too many holds, or too many of this owner.
        """
        ...

    def find(self, name: str, owner: str) -> Hold:
        """A hold of this owner.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        ...

    def renew(self, name: str, owner: str) -> Hold:
        """Let a hold last for its whole lapse time again.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        ...

    def move(self, name: str, owner: str, offset: int) -> Hold:
        """Keep only what is after this offset from now on; that renews the hold too.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
            InvalidCursor: what follows the offset is not there any more.
        """
        ...

    def release(self, name: str, owner: str | None) -> None:
        """End a hold; without an owner, whoever has it.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: it is someone else's.
        """
        ...

    def listing(self) -> list[Hold]:
        """All holds that have not lapsed, by name."""
        ...


class Archive(Protocol):
    """A log that is read in bulk, by offsets and off the loop. Nothing is seen before it is committed."""

    @property
    def log_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def holds(self) -> Holds:
        """What readers keep; asked on the loop."""
        ...

    def end_of(self, epoch: int) -> int | None:
        """The last committed offset of an epoch, None if it is not known; of this one, `last_offset`."""
        ...

    async def arrow(
        self,
        after: int,
        until: int,
        limit_bytes: int,
        wanted: Wanted,
        columns: Sequence[str] | None = None,
        limit_rows: int | None = None,
    ) -> ArrowSpan:
        """What is between two offsets as Arrow streams of the same schema, about `limit_bytes` of them.

        A read that looked at much and found little ends as well, but it always gets on. One that has all rows
        of its limit ends with the last of them.

        Args:
            columns: some of `LOG_COLUMNS`, in the order they are to have; None for all.
        """
        ...

    async def arrow_end(self, columns: Sequence[str] | None, metadata: Mapping[str, str]) -> bytes:
        """A complete Arrow stream of the same schema with one empty batch that carries this metadata."""
        ...

    async def find_time(self, wall_us: int) -> int:
        """The offset after which the first message of this time or later lies; 0 if that may have left."""
        ...

    async def portions(
        self,
        after: int,
        until: int,
        parts: int,
        wanted: Wanted,
        limit_rows: int | None = None,
        limit_bytes: int | None = None,
    ) -> Portions:
        """What is between two offsets in at most so many parts of about the same size, without reading it.

        They meet, and there is at least one. With a limit on rows they end before there are more. With one on
        bytes, as stored, they do too, but have at least one piece that is asked for, so that they get on. The
        gaps are those that show without a look at the rows: a read may find more that cannot be read.
        """
        ...
