"""Records of what was not delivered, and of what waits, as rows of tables."""

from datetime import UTC, datetime

from penstock.dashboard.nondeliveries import Record, Waiting
from penstock.dashboard.units import count

RECORD_COLUMNS = (
    "client",
    "reason",
    "which means",
    "policy",
    "setting",
    "last time (UTC)",
    "sequences",
    "messages",
)
WAITING_COLUMNS = ("client", "where", "connected", "before it")


def record_cells(record: Record) -> list[str]:
    """One record of the ledger."""
    return [
        record.client_id,
        record.reason,
        record.words,
        record.policy or "",
        record.setting,
        time_text(record.last_at),
        record.sequences,
        count(record.count),
    ]


def waiting_cells(waiting: Waiting) -> list[str]:
    """Where a message waits for one client."""
    return [
        waiting.client_id,
        waiting.place,
        "yes" if waiting.connected else "no",
        count(waiting.ahead),
    ]


def time_text(time: datetime) -> str:
    """A time to the second, in UTC."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
