"""Drops: records the messages that a session does not get, by reason.

Every drop goes to the ledger. Drops of a connected session also count for the slow-consumer report, and for
the losses that its door reports to the client. Of messages that are in the log only, the offsets are known.

A queue that is given up as a whole is detached at once and recorded in background steps, so that a crowd of
slow sessions can be cut in one turn. `when_recorded` calls back when all of that is in the ledger.
"""

from collections import deque
from collections.abc import Callable, Sequence

from penstock.core.delivery.offline_fetch import OfflineFetch
from penstock.core.delivery.outbox import Entry, Outbox
from penstock.core.diagnostics.ledger import Ledger, ranges_of
from penstock.core.diagnostics.slow_consumers import SlowConsumers, note_loss
from penstock.core.runtime.background import Background, StepQueue
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Policy, Reason
from penstock.runs import Run

ENTRIES_A_STEP = 1_000
"""Queued runs that are recorded in one step."""
MOST_UNRECORDED_BYTES = 64 * 1024 * 1024
"""Most bytes of detached queues; at this limit each further queue is recorded at once."""
ENTRY_BYTES = 100
"""Weight of a queued run beside its message."""


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
        self._unrecorded_bytes = 0

    # Whole queues

    @property
    def is_behind(self) -> bool:
        """So much waits to be recorded that further queues should be given up one at a time."""
        return self._unrecorded_bytes > MOST_UNRECORDED_BYTES // 2

    def drop_queue(self, queue: Outbox, session: Session, policy: Policy, setting: str) -> None:
        """Record all messages of a session that is cut, in steps. The queue is empty after the call."""
        self._slow_consumers.note_dropped(session, queue.messages, policy)
        note_loss(session, Reason.OUTBOX_FULL, queue.messages)
        self.record_queue(queue, session.client_id, Reason.OUTBOX_FULL, policy, setting)

    def record_queue(
        self, queue: Outbox, client_id: str, reason: Reason, policy: Policy | None = None, setting: str = ""
    ) -> None:
        """Enter all messages of a queue into the ledger, in steps. The queue is empty after the call."""
        size = queue.bytes
        self.record(queue.detach(), client_id, reason, policy, setting, size=size)

    def record(
        self,
        entries: deque[Entry],
        client_id: str,
        reason: Reason,
        policy: Policy | None = None,
        setting: str = "",
        *,
        size: int = 0,
    ) -> None:
        """Enter detached entries into the ledger, in steps; `size` is that of their messages."""
        if not entries:
            return
        size += ENTRY_BYTES * len(entries)
        self._unrecorded_bytes += size

        def record_some() -> bool:
            some = [entries.popleft()[0] for _ in range(min(len(entries), ENTRIES_A_STEP))]
            for lost in ranges_of(some):
                self._ledger.add_range(lost, client_id, reason, policy, setting)
            if not entries:
                self._unrecorded_bytes -= size
            return bool(entries)

        self._unrecorded.add(record_some)
        while self._unrecorded_bytes > MOST_UNRECORDED_BYTES and self._unrecorded.step_now():
            pass

    def when_recorded(self, callback: Callable[[], None]) -> None:
        """Call back when everything that was dropped so far is in the ledger."""

        def call_back() -> bool:
            callback()
            return False

        self._unrecorded.add(call_back)

    def finish(self) -> None:
        """Record at once what is not recorded yet: the server is about to stop."""
        self._unrecorded.finish()

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

    def expire_all(self, runs: Sequence[Run], session: Session) -> None:
        """Record runs that expired while they were queued."""
        note_loss(session, Reason.EXPIRED, sum([run.count for run in runs]))
        for lost in ranges_of(runs):
            self._ledger.add_range(lost, session.client_id, Reason.EXPIRED)

    def expire_in_group(self, runs: Sequence[Run], group: SharedGroup[Session]) -> None:
        """Record runs that expired in the queue of a shared group."""
        for lost in ranges_of(runs):
            self._ledger.add_range(lost, group.filter, Reason.EXPIRED)

    def refuse_size(self, run: Run, session: Session) -> None:
        """Record a run that exceeds the packet size of a session."""
        self._ledger.add(run, session.client_id, Reason.PACKET_TOO_LARGE)

    def withdraw(self, run: Run, session: Session) -> None:
        """Record a run that was never stored, so it was never accepted."""
        self._ledger.add(run, session.client_id, Reason.NEVER_STORED)

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
