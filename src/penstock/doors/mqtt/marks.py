"""Sequence, time and cursor as user properties, for MQTT 5 subscribers that asked for them.

A subscriber asks by a user property of its SUBSCRIBE; its messages then say where they stand in their
topic and in the log, so that it can notice a gap and go on from there at any door.
"""

from msgspec import Struct

from penstock.core.cursor import Cursor
from penstock.core.ports import Position
from penstock.model import Run

ASKED_BY = "penstock-meta"
"""The user property of a SUBSCRIBE that asks for marks, whatever its value."""
LARGEST_BYTES = 128
"""More than the three properties ever take."""


class Marks(Struct, frozen=True):
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
