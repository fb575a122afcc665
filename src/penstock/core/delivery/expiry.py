"""Expiry of queued messages: those whose time to live has passed are removed and recorded.

An expired message is never sent, whether it was removed yet or not; removal frees its memory. Retained values
expire in `retained.py`, sessions in `lifecycle.py`.
"""

from penstock.core.delivery.drops import Drops
from penstock.core.delivery.outbox import Outbox
from penstock.core.delivery.ports import ChangeRecorder
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Reason

REAP_MESSAGES = 100_000
"""Most queued messages that one pass examines."""

Owner = Session | SharedGroup[Session]
"""Session or shared group with queued messages."""


class QueueExpiry:
    """Owners of queues in which a message may expire."""

    def __init__(self, drops: Drops, recorder: ChangeRecorder) -> None:
        self._drops = drops
        self._recorder = recorder
        self._owners: dict[Owner, None] = {}

    def watch(self, owner: Owner) -> None:
        """A message with a time to live was queued."""
        self._owners[owner] = None

    def reap(self, now: float) -> list[Session]:
        """Remove expired messages from every queue; return sessions that may have nothing queued any more."""
        budget = REAP_MESSAGES
        visited: list[Session] = []
        for owner in list(self._owners):
            if budget <= 0:
                break  # the others have their turn in a second
            del self._owners[owner]
            queues = _queues_of(owner)
            budget -= sum(len(queue) for queue in queues if now >= queue.next_expiry)
            for queue in queues:
                self._remove_expired(owner, queue, now)
            if any(queue.may_expire for queue in queues):
                self._owners[owner] = None
            if isinstance(owner, Session):
                visited.append(owner)
                self._drop_evicted(owner)
        return visited

    def _remove_expired(self, owner: Owner, queue: Outbox, now: float) -> None:
        expired = queue.remove_expired(now)
        if isinstance(owner, Session):
            for run in expired:
                self._drops.expire(run, owner)
        elif expired:
            for run in expired:
                self._drops.expire_in_group(run, owner)
            owner.forget(expired)
            self._recorder.touch_group(owner)

    def _drop_evicted(self, session: Session) -> None:
        """Record messages in the log that an offline queue found expired."""
        evicted = session.offline_queue.take_evicted() if session.offline_queue is not None else ()
        if evicted:
            self._drops.drop_offsets(evicted, session, Reason.EXPIRED)
            self._recorder.touch(session)


def _queues_of(owner: Owner) -> list[Outbox]:
    """Return the queues of a session or group that have messages."""
    queues = (owner.outbox, owner.offline_queue) if isinstance(owner, Session) else (owner.offline_queue,)
    return [queue for queue in queues if queue]
