"""Port of delivery: the recorder that stores changes of sessions and shared groups with each turn."""

from typing import Protocol

from penstock.core.ports.log import Settled
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup


class ChangeRecorder(Protocol):
    """Stores what delivery changed. `durability/recorder.py` implements it."""

    def save(self, session: Session) -> None:
        """Mark identity or subscriptions of a session as changed."""
        ...

    def touch(self, session: Session, *, is_urgent: bool = False) -> None:
        """Mark the in-flight window or queue of a session as changed."""
        ...

    def touch_group(self, group: SharedGroup[Session]) -> None:
        """Mark the queue of a shared group as changed."""
        ...

    def when_stored(self, callback: Settled) -> None:
        """Call back when this turn is committed, or failed to be."""
        ...
