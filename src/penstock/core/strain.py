"""What a connected session has lost of late, and what waits for it: enough for its door to warn it.

Losses are counted where they happen, and cost nothing while there are none. Whoever asks takes them away, so
that each is told once.
"""

from msgspec import Struct

from penstock.core.clock import Clock
from penstock.core.outbox import Outbox
from penstock.core.policy import Limits
from penstock.core.sessions import Session
from penstock.model import Reason


class Losses(Struct):
    """Messages that a session lost since its door last asked."""

    dropped: int = 0
    """There was no room for them."""
    expired: int = 0
    """They had waited for longer than they lived."""


class Strain(Struct, frozen=True):
    """How a session fares."""

    dropped: int
    expired: int
    waiting: int
    """Messages that wait for it now."""
    limit: int
    """How many may."""
    oldest_age_s: float
    """How long ago the oldest of them was published."""


def note_loss(session: Session, reason: Reason, count: int) -> None:
    """Count messages that a session did not get because it was slow."""
    if session.losses is None:
        session.losses = Losses()
    if reason is Reason.EXPIRED:
        session.losses.expired += count
    else:
        session.losses.dropped += count


class Strains:
    """Tells doors how their sessions fare."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits

    def take(self, session: Session) -> Strain | None:
        """What a session has lost since this was last asked, and what waits; None if it has lost nothing."""
        losses, session.losses = session.losses, None
        if losses is None:
            return None
        return Strain(
            losses.dropped,
            losses.expired,
            len(session.outbox or ()),
            limit_of(session, self._limits.messages),
            _age_s(session.outbox, self._clock.wall_us()),
        )


def limit_of(session: Session, most: int) -> int:
    """How many messages may wait for a session, of which no more than `most` ever may."""
    return most if session.outbox_messages is None else min(session.outbox_messages, most)


def _age_s(outbox: Outbox | None, now_us: int) -> float:
    oldest = next(outbox.runs(), None) if outbox else None
    return 0.0 if oldest is None else max(now_us - oldest.published_at, 0) / 1_000_000
