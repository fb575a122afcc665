"""Who keeps the log from letting go: holds, how far each is behind the end of the log, and when it lapses."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from penstock.client import Hold, HttpRefused, LogPosition
from penstock.pipeline.lake import Manifest

SHOWN_HOLDS = 50
NO_LOG = "no-log"
"""What a server says that has no data directory."""


class Asking(Protocol):
    """A client, as far as it is needed here."""

    def holds(self) -> list[Hold]: ...

    def position(
        self, at: datetime | str = "latest", *, after: str | None = None, filters: Sequence[str] = ()
    ) -> LogPosition: ...


class HoldRow(Struct, frozen=True, kw_only=True):
    """One hold, as it is now."""

    name: str
    owner: str
    lag: int
    """How many messages there are behind it, at most."""
    lapses_in_s: float
    is_of_lake: bool
    """The archive of the lake that is shown has it."""


class LogSide(Struct, frozen=True, kw_only=True):
    """The end of the log, seen from a lake."""

    is_there: bool = True
    """The server has a data directory."""
    holds: list[HoldRow] = []
    """Those with most behind them first."""
    lag: int | None = None
    """How many rows the log has that the lake has not, at most; None if the lake is of another log."""


def look_at_log(client: Asking, manifest: Manifest | None) -> LogSide:
    """How things are at the end of the log.

    Raises:
        PenstockError: the server is away, or this user may not know.
    """
    try:
        end = client.position("latest")
    except HttpRefused as error:
        if error.code == NO_LOG:
            return LogSide(is_there=False)
        raise
    rows = rows_of(client.holds(), end.offset, manifest, datetime.now(UTC))
    return LogSide(holds=rows[:SHOWN_HOLDS], lag=_lag(client, manifest, end.log_id))


def rows_of(holds: list[Hold], last_offset: int, manifest: Manifest | None, now: datetime) -> list[HoldRow]:
    """Holds as they are now, those with most behind them first."""
    name = None if manifest is None else manifest.hold_name
    rows = [
        HoldRow(
            name=hold.name,
            owner=hold.owner,
            lag=max(last_offset - hold.offset, 0),
            lapses_in_s=(hold.lapses_at - now).total_seconds(),
            is_of_lake=hold.name == name,
        )
        for hold in holds
    ]
    return sorted(rows, key=lambda row: (-row.lag, row.name))


def _lag(client: Asking, manifest: Manifest | None, log_id: str) -> int | None:
    if manifest is None or manifest.cursor is None or manifest.log_id != log_id:
        return None
    return client.position("latest", after=manifest.cursor, filters=manifest.filters).lag_rows
