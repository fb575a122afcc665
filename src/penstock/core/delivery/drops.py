"""Drops: records the messages that a session does not get, by reason.

Every drop goes to the ledger. Drops of a connected session also count for the slow-consumer report, and for
the losses that its door reports to the client. Of messages that are in the log only, the offsets are known.

A queue that is given up as a whole is detached at once and recorded in background steps, so that a crowd of
slow sessions can be cut in one turn. `when_recorded` calls back when all of that is in the ledger.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.delivery.offline_fetch import OfflineFetch
from penstock.core.delivery.outbox import Entry
from penstock.core.diagnostics.ledger import Ledger, ranges_of
from penstock.core.diagnostics.slow_consumers import SlowConsumers, note_loss
from penstock.core.runtime.background import Background, StepQueue
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Policy, Reason, Run

ENTRIES_A_STEP = 1_000
"""Queued runs that are recorded in one step."""
MOST_UNRECORDED = 500_000
"""Most runs in detached queues; at this limit each further queue is recorded at once."""


class Drops:
    """Records drops of queued messages."""

    def __init__(
        self,
        ledger: Ledger,
        slow_consumers: SlowConsumers,
        offline_fetch: OfflineFetch,
        background: Background,
    ) -> None:
        self._ledger = ledger
        self._slow_consumers = slow_consumers
        self._offline_fetch = offline_fetch
        self._unrecorded = StepQueue(background)
        self._waiting = 0  # runs in detached queues

    # Whole queues

    def drop_queue(
        self, entries: deque[Entry], count: int, session: Session, policy: Policy, setting: str
    ) -> None:
        """Record a whole queue of a session that is cut; `count` is its number of messages."""
        self._slow_consumers.note_dropped(session, count, policy)
        note_loss(session, Reason.OUTBOX_FULL, count)
        self.record(entries, session.client_id, Reason.OUTBOX_FULL, policy, setting)

    def record(
        self,
        entries: deque[Entry],
        client_id: str,
        reason: Reason,
        policy: Policy | None = None,
        setting: str = "",
    ) -> None:
        """Enter a detached queue into the ledger, in steps. The queue is emptied by that."""
        if entries:
            self._waiting += len(entries)
            self._unrecorded.add(partial(self._record_some, entries, client_id, reason, policy, setting))
        while self._waiting > MOST_UNRECORDED and self._unrecorded.step_now():
            pass

    def _record_some(
        self, entries: deque[Entry], client_id: str, reason: Reason, policy: Policy | None, setting: str
    ) -> bool:
        """Step of background work: enter the next runs of a detached queue."""
        before = len(entries)
        some = [entries.popleft()[0] for _ in range(min(len(entries), ENTRIES_A_STEP))]
        for lost in ranges_of(some):
            self._ledger.add_range(lost, client_id, reason, policy, setting)
        self._waiting -= before - len(entries)
        return bool(entries)

    def when_recorded(self, callback: Callable[[], None]) -> None:
        """Call back when everything that was dropped so far is in the ledger."""

        def call_back() -> bool:
            callback()
            return False

        self._unrecorded.add(call_back)

    def finish(self) -> None:
        """Record at once what is not recorded yet: the server is about to stop."""
        while self._unrecorded.step_now():
            pass

    # Single runs

    def drop_all(
        self, runs: Sequence[Run], session: Session, reason: Reason, policy: Policy, setting: str
    ) -> None:
        """Record runs of one flush for which there was no room under a setting."""
        count = sum([run.count for run in runs])
        self._slow_consumers.note_dropped(session, count, policy)
        note_loss(session, reason, count)
        for lost in ranges_of(runs):
            self._ledger.add_range(lost, session.client_id, reason, policy, setting)

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
        self._offline_fetch.note_lost(session.client_id, offsets, Reason.OFFLINE_QUEUE_FULL, policy)

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
