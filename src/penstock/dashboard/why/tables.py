"""Records of what was not delivered, and of what waits, as rows of tables."""

from penstock.dashboard.nondeliveries import Record, Waiting
from penstock.dashboard.times import to_second
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
        to_second(record.last_at),
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
