"""Rollback after a failed commit.

A failed commit takes every message with it that is not committed yet. Doors report the failure to publishers,
which send again. Rollback removes these messages from QoS 1 and 2 queues, and restores the retained values
they replaced. Messages that were sent, or are queued at QoS 0, stay.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.delivery.inflight import FORGOTTEN, step
from penstock.core.delivery.outbox import Entry, Outbox
from penstock.core.diagnostics.ledger import Ledger
from penstock.core.durability.recorder import Recorder
from penstock.core.ports.log import Log, Ticket
from penstock.core.runtime.clock import Clock
from penstock.core.runtime.tick import Tick
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.topics.registry import Registry
from penstock.core.topics.retained import Retained
from penstock.core.topics.retained_value import RetainedValue
from penstock.core.topics.topic import Topic
from penstock.model import Reason


class RetainedRollback:
    """Remembers, for each commit under way, the values as they were before it."""

    def __init__(
        self, log: Log, clock: Clock, topics: Registry, retained: Retained, recorder: Recorder
    ) -> None:
        self._log = log
        self._clock = clock
        self._topics = topics
        self._retained = retained
        self._recorder = recorder
        self._values: dict[Ticket, dict[Topic, RetainedValue | None]] = {}

    def note(self, topic: Topic, qos: int) -> None:
        """A topic is about to get another value, or none. At QoS 0 that is accepted whatever happens."""
        if not self._log.is_durable:
            return
        if qos:
            self._values.setdefault(self._log.ticket, {}).setdefault(topic, topic.retained)
        else:
            for values in self._values.values():
                values.pop(topic, None)

    def forget(self, ticket: Ticket) -> None:
        """A commit was made."""
        self._values.pop(ticket, None)

    def put_back(self) -> None:
        """No commit that is under way will be made."""
        before: dict[Topic, RetainedValue | None] = {}
        for values in self._values.values():
            before = values | before  # the first of them came before all the others
        self._values.clear()
        for topic, value in before.items():
            self._topics.setdefault(topic.name, topic)  # it may have been forgotten for lack of a value
            self._put(topic, value)

    def _put(self, topic: Topic, value: RetainedValue | None) -> None:
        now = self._clock.monotonic()
        if value is None or value.is_expired(now):
            self._retained.delete(topic)
            self._recorder.forget_value(topic.name)
        else:
            self._retained.restore(topic, value)
            left_us = round((value.expires_at - now) * 1_000_000)
            expires_at = self._clock.wall_us() + left_us if value.expires_at else None
            self._recorder.save_value(topic.name, value, expires_at)


class Rollback:
    """Watches over the commits of messages."""

    def __init__(
        self,
        log: Log,
        tick: Tick,
        sessions: dict[str, Session],
        ledger: Ledger,
        recorder: Recorder,
        retained_rollback: RetainedRollback,
        participants: Sequence[Callable[[], None]],
        note_gone: Callable[[str, int], None],
        wake: Callable[[Session], None],
    ) -> None:
        self._log = log
        self._tick = tick
        self._sessions = sessions
        self._ledger = ledger
        self._recorder = recorder
        self._retained_rollback = retained_rollback
        self._participants = participants
        self._note_gone = note_gone
        self._watched: Ticket = 0
        self._wake = wake  # of a session for which perhaps nothing is queued any more

    def watch(self) -> Ticket:
        """Watch the commit of this turn. Returns its ticket."""
        ticket = self._log.ticket
        if ticket != self._watched and self._log.failure is None:
            self._watched = ticket
            self._log.when_committed(ticket, partial(self._settle, ticket))
        return ticket

    def _settle(self, ticket: Ticket, failure: Exception | None) -> None:
        if failure is None:
            self._retained_rollback.forget(ticket)
        else:
            self._tick.take_back()
            self._retained_rollback.put_back()
            for roll_back in self._participants:
                roll_back()
            self._recorder.give_up(failure)
            for session in list(self._sessions.values()):
                self._withdraw(session)
            for group in {group: None for each in self._sessions.values() for group in each.groups or ()}:
                self._withdraw_from(group)

    def _withdraw(self, session: Session) -> None:
        received = session.received or {}
        for number, ticket in list(received.items()):
            if ticket is not None and not self._log.is_committed(ticket):
                del received[number]  # it will come again, and is to be taken then
                self._recorder.note_step(session, step(number, FORGOTTEN))
        queues = [queue for queue in (session.outbox, session.offline_queue) if queue]
        if sum(self._remove(queue, session.client_id) for queue in queues):
            self._recorder.touch(session)
            self._wake(session)

    def _withdraw_from(self, group: SharedGroup[Session]) -> None:
        if self._remove(group.offline_queue, group.filter):
            group.again = {
                run.offset: None for run in group.offline_queue.runs() if run.offset in group.again
            }
            self._recorder.touch_group(group)

    def _remove(self, queue: Outbox, name: str) -> int:
        """Remove uncommitted messages from a queue; return their number."""
        removed = queue.remove_entries(self._is_lost)
        for run, _ in removed:
            self._ledger.add(run, name, Reason.NEVER_STORED)
        offsets = queue.discard_after(self._log.last_offset)
        for offset in offsets:
            self._note_gone(name, offset)
        return len(removed) + len(offsets)

    def _is_lost(self, entry: Entry) -> bool:
        run, encoding = entry
        was_to_be_stored = bool(run.shape.qos and encoding.qos) and not encoding.is_retained
        return was_to_be_stored and run.offset > self._log.last_offset
