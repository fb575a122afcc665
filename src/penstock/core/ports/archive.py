"""Archive port: bulk reads of the log as Arrow, and retention holds.

Only a log on disk implements it. A hold keeps messages that a reader has not read yet.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.common.statement import Gap
from penstock.core.ports.log import Wanted


class ArrowSpan(Struct, frozen=True):
    """Part of a log between two offsets, as complete Arrow IPC streams."""

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
    """Approximate stored size."""


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
    """Lifetime of a hold from each renewal on."""
    lapses_at: int
    """When it lapses if there is none, in microseconds of wall time."""
    filters: tuple[str, ...] = ()
    """Filters of its owner; empty for everything. All topics are kept in any case."""


class Holds(Protocol):
    """All holds of a log. What is changed in one turn of the loop is stored with the log's commit of it."""

    def create(
        self, name: str, owner: str, offset: int, lapse_s: float, filters: tuple[str, ...] = ()
    ) -> Hold:
        """Keep everything after an offset; an existing hold of the same owner moves there.

        Raises:
            InvalidHold: the name or the lapse time breaks a rule.
            NotAuthorized: another owner has a hold of this name.
            InvalidCursor: what follows the offset is not there any more.
            QuotaExceeded: there are too many holds, or too many of this owner.
        """
        ...

    def find(self, name: str, owner: str) -> Hold:
        """Return a hold of this owner.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: another owner has it.
        """
        ...

    def renew(self, name: str, owner: str) -> Hold:
        """Renew a hold for its whole lapse time.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: another owner has it.
        """
        ...

    def move(self, name: str, owner: str, offset: int) -> Hold:
        """Keep only what is after this offset from now on; renews the hold too.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: another owner has it.
            InvalidCursor: what follows the offset is not there any more.
        """
        ...

    def release(self, name: str, owner: str | None) -> None:
        """End a hold; without an owner, that of any owner.

        Raises:
            UnknownHold: there is none of this name, or it has lapsed.
            NotAuthorized: another owner has it.
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
        """Retention holds; called on the loop."""
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
        """Read between two offsets as Arrow streams of one schema, about `limit_bytes` of them.

        A read that examined much and found little ends as well, but always makes progress. One that reached
        its row limit ends with the last row.

        Args:
            columns: some of `LOG_COLUMNS`, in the requested order; None for all.
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
        """Split a range into at most this many parts of about the same size, without reading it.

        The parts are adjacent, and there is at least one. With a limit on rows they end before it is
        exceeded; with one on stored bytes too, but each has at least one piece, so that it makes progress.
        Only gaps that show without reading rows are reported: a read may find more.
        """
        ...
