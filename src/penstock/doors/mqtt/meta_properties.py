"""Sequence, time and cursor as user properties, for MQTT 5 subscribers that ask for them.

A subscriber asks by a user property of its SUBSCRIBE. Its messages then have their position in the topic
and in the log, so that it can detect a gap and resume at any door.
"""

from msgspec import Struct

from penstock.common.cursor import Cursor, Position
from penstock.runs import Run

ASKED_BY = "penstock-meta"
"""User property of a SUBSCRIBE that requests them, with any value."""
LARGEST_BYTES = 128
"""More than the three properties ever take."""


class MetaProperties(Struct, frozen=True):
    """Writes the marks of one log's messages."""

    log_id: str
    epoch: int

    def of(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The marks of a run of one message: its sequence, its microseconds since 1970, its cursor."""
        return (
            ("ps-seq", str(run.sequence)),
            ("ps-ts", str(run.published_at)),
            ("ps-cursor", Cursor((Position(self.log_id, self.epoch, run.offset),)).encode()),
        )
