"""What could not be stored was never accepted: it is taken back wherever it still waits.

A commit that fails takes with it every message that is not committed yet. Publishers learn of it from their
doors and send again. Here it is seen to that no one for whom such a message waits at QoS 1 or 2 gets it as
well, and that topics have the values they had. What has left, or waits at QoS 0, is not called back.
"""

from collections.abc import Callable
from functools import partial

from penstock.core.fetching import Fetching
from penstock.core.ledger import Ledger
from penstock.core.moves import FORGOTTEN, step
from penstock.core.outbox import Entry, Outbox
from penstock.core.owed import StoredOwed
from penstock.core.ports import Log, Ticket
from penstock.core.receipts import Receipts
from penstock.core.recording import Recording
from penstock.core.replaced import Replaced
from penstock.core.sessions import Session
from penstock.core.shared import SharedGroup
from penstock.core.tick import Tick
from penstock.model import Reason


class Unstored:
    """Watches over the commits of messages."""

    def __init__(
        self,
        log: Log,
        tick: Tick,
        sessions: dict[str, Session],
        ledger: Ledger,
        recording: Recording,
        fetching: Fetching,
        replaced: Replaced,
        receipts: Receipts,
    ) -> None:
        self._log = log
        self._tick = tick
        self._sessions = sessions
        self._ledger = ledger
        self._recording = recording
        self._fetching = fetching
        self._replaced = replaced
        self._receipts = receipts
        self._watched: Ticket = 0
        self.on_less: Callable[[Session], None] = lambda session: None  # perhaps nothing waits any more

    def watch(self) -> Ticket:
        """The log has got messages in this turn: answer the commit that takes them, and see how it ends."""
        ticket = self._log.ticket
        if ticket != self._watched and self._log.failure is None:
            self._watched = ticket
            self._log.when_committed(ticket, partial(self._settle, ticket))
        return ticket

    def _settle(self, ticket: Ticket, failure: Exception | None) -> None:
        if failure is None:
            self._replaced.forget(ticket)
        else:
            self._tick.take_back()
            self._replaced.put_back()
            self._receipts.take_back()
            self._recording.give_up(failure)
            for session in list(self._sessions.values()):
                self._withdraw(session)
            for group in {group: None for each in self._sessions.values() for group in each.groups or ()}:
                self._withdraw_from(group)

    def _withdraw(self, session: Session) -> None:
        received = session.received or {}
        for number, ticket in list(received.items()):
            if ticket is not None and not self._log.is_committed(ticket):
                del received[number]  # it will come again, and is to be taken then
                self._recording.note_step(session, step(number, FORGOTTEN))
        queues = [queue for queue in (session.outbox, session.owed) if queue]
        if sum(self._remove(queue, session.client_id) for queue in queues):
            self._recording.touch(session)
            self.on_less(session)

    def _withdraw_from(self, group: SharedGroup) -> None:
        if self._remove(group.owed, group.filter):
            group.again = {run.offset: None for run in group.owed.runs() if run.offset in group.again}
            self._recording.touch_group(group)

    def _remove(self, queue: Outbox, name: str) -> int:
        """Take what is not stored out of a queue; answer how much that was."""
        removed = queue.remove_entries(self._is_lost)
        for run, _ in removed:
            self._ledger.add(run, name, Reason.NEVER_STORED)
        offsets = queue.discard_after(self._log.last_offset) if isinstance(queue, StoredOwed) else ()
        for offset in offsets:
            self._fetching.note_gone(name, offset)
        return len(removed) + len(offsets)

    def _is_lost(self, entry: Entry) -> bool:
        run, form = entry
        was_to_be_stored = bool(run.shape.qos and form.qos) and not form.is_retained
        return was_to_be_stored and run.offset > self._log.last_offset
