"""Encodings of sessions without a connection, and re-encoding of queued messages.

An encoding belongs to the wire of a connection. `PendingEncoding` stands in for it after a restart until the
client reconnects. Queued messages are re-encoded when a client returns on another wire, or its session
leaves a shared group.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from msgspec import Struct

from penstock.core.delivery.inflight import Pending
from penstock.core.ports.connection import Encoding, Frame
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup, group_of, own_encoding, reencode_any
from penstock.core.subscriptions.subscription import Options
from penstock.runs import Run, Shape


class PendingEncoding(Struct, frozen=True):
    """Stand-in for an encoding until its subscriber reconnects; it never encodes."""

    wishes: tuple[Options, ...]
    """Options of its subscriptions; several where filters overlap."""
    is_retained: bool = False

    limit_bytes = 0

    @property
    def qos(self) -> int:
        return max(options.qos for options in self.wishes)

    @property
    def no_local(self) -> bool:
        return all(options.no_local for options in self.wishes)

    @property
    def has_cursor(self) -> bool:
        return any(options.marks for options in self.wishes)

    def passes(self, shape: Shape, longest: int) -> bool:
        """Nothing leaves before the session has a connection."""
        return False

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        raise AssertionError("the session has no connection to encode for")

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        raise AssertionError("the session has no connection to encode for")

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        return []

    def merge(self, *others: Encoding) -> Encoding:
        wishes = [other.wishes for other in others if isinstance(other, PendingEncoding)]
        assert len(wishes) == len(others)
        return PendingEncoding((*self.wishes, *chain.from_iterable(wishes)))

    def as_retained(self) -> Encoding:
        return PendingEncoding(self.wishes, is_retained=True)


def reencode(session: Session, change: Callable[[Encoding], Encoding]) -> None:
    """Replace the encodings of everything queued or in flight for a session."""
    _reencode_queued(session, lambda encoding: reencode_any(encoding, change))
    for backlog in session.backlog.values() if session.backlog else ():
        backlog.encoding = change(backlog.encoding)


def make_own(session: Session, group: SharedGroup[Session]) -> None:
    """Turn deliveries of a shared group into a session's own: it left the group."""
    _reencode_queued(
        session, lambda encoding: own_encoding(encoding) if group_of(encoding) is group else encoding
    )


def _reencode_queued(session: Session, change: Callable[[Encoding], Encoding]) -> None:
    if session.inflight is not None:
        for number, pending in session.inflight.entries.items():
            if pending is not None:
                session.inflight.entries[number] = Pending(
                    pending.run, change(pending.encoding), pending.level
                )
    for queue in (session.outbox, session.offline_queue):
        if queue:
            queue.reencode(change)
