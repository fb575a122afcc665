"""Drops: records the messages that a session does not get, by reason.

Every drop goes to the ledger. Drops of a connected session also count for the slow-consumer report, and for
the losses that its door reports to the client. Of messages that are in the log only, the offsets are known.
"""

from collections.abc import Sequence

from penstock.core.delivery.offline_fetch import OfflineFetch
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.diagnostics.slow_consumers import SlowConsumers, note_loss
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Policy, Reason, Run


class Drops:
    """Records drops of queued messages."""

    def __init__(self, ledger: Ledger, slow_consumers: SlowConsumers, offline_fetch: OfflineFetch) -> None:
        self._ledger = ledger
        self._slow_consumers = slow_consumers
        self._offline_fetch = offline_fetch

    def drop(self, run: Run, session: Session, reason: Reason, policy: Policy, setting: str) -> None:
        """Record a run for which there was no room under a setting."""
        self._ledger.add(run, session.client_id, reason, policy, setting)
        self._slow_consumers.note_dropped(session, run.count, policy)
        note_loss(session, reason, run.count)

    def expire(self, run: Run, session: Session) -> None:
        """Record a run that expired while it was queued."""
        self._ledger.add(run, session.client_id, Reason.EXPIRED)
        note_loss(session, Reason.EXPIRED, run.count)

    def expire_in_group(self, run: Run, group: SharedGroup[Session]) -> None:
        """Record a run that expired in the queue of a shared group."""
        self._ledger.add(run, group.filter, Reason.EXPIRED)

    def refuse_size(self, run: Run, session: Session) -> None:
        """Record a run that exceeds the packet size of a session."""
        self._ledger.add(run, session.client_id, Reason.PACKET_TOO_LARGE)

    def withdraw(self, run: Run, session: Session) -> None:
        """Record a run that was never stored, so it was never accepted."""
        self._ledger.add(run, session.client_id, Reason.NEVER_STORED)

    def end(self, run: Run, session: Session) -> None:
        """Record a run that was still queued when its session ended."""
        self._ledger.add(run, session.client_id, Reason.SESSION_ENDED)

    def drop_evicted(self, offsets: Sequence[int], session: Session, policy: Policy) -> None:
        """Record messages that an offline queue evicted."""
        self._slow_consumers.note_dropped(session, len(offsets), policy)
        self._offline_fetch.note_lost(session.client_id, offsets, Reason.OWED_FULL, policy)

    def drop_offsets(self, offsets: Sequence[int], session: Session, reason: Reason) -> None:
        """Record messages of which only the offsets are known: they expired, or their session ended."""
        self._offline_fetch.note_lost(session.client_id, offsets, reason)

    def shrink_outbox(self, session: Session, policy: Policy, reason: Reason = Reason.OUTBOX_FULL) -> None:
        """Drop the oldest messages of an outbox until its limits hold."""
        if session.outbox is not None:
            for run in session.outbox.shrink():
                self.drop(run, session, reason, policy, "outbox")

    def end_block(self, session: Session) -> None:
        """Shrink the outbox of a subscriber for which publishers have waited too long."""
        self.shrink_outbox(session, Policy.BLOCK, Reason.BLOCK_TIMEOUT)
