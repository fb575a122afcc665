"""Audit trail: a record of connections, logins, subscriptions and acts of administrators.

It is off unless there is a writer, and then costs one comparison. It never sees a message: nothing here is on
the path of a publish or a delivery.
"""

from collections.abc import Callable

from penstock.core.sessions.session import Session
from penstock.model import Door

Writer = Callable[[str, dict[str, object]], None]
"""Gets every event with its details, in order; must not raise."""


class AuditTrail:
    """Events of all doors, for one writer."""

    def __init__(self) -> None:
        self._write: Writer | None = None

    def configure(self, write: Writer | None) -> None:
        """Write to this from now on; None writes nothing."""
        self._write = write

    def record(self, event: str, **details: object) -> None:
        """Record an event; details that are None are left out."""
        if self._write is not None:
            self._write(event, {key: value for key, value in details.items() if value is not None})

    def record_session(self, event: str, session: Session, **details: object) -> None:
        """Record an event of a session, with its client, user, door and address."""
        if self._write is None:
            return
        peer = getattr(session.connection, "peer", None)  # doors know addresses, core does not
        self.record(
            event,
            client=session.name,
            user=session.identity.user,
            door=str(session.door),
            peer=None if peer is None else str(peer),
            **details,
        )

    def record_login(self, user: str | None, door: Door, peer: object, *, refusal: str | None = None) -> None:
        """Record a login at a door whose requests are not sessions, or one that was refused."""
        if self._write is not None:
            event = "logged in" if refusal is None else "login refused"
            self.record(event, user=user, door=str(door), peer=str(peer), reason=refusal)
