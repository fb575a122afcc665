"""Expiry of queued messages: those whose time to live has passed are removed and recorded.

An expired message is never sent, whether it was removed yet or not; removal frees its memory. Retained values
expire in `retained.py`, sessions in `lifecycle.py`.
"""

from collections import deque

from penstock.core.delivery.drops import Drops
from penstock.core.delivery.outbox import Outbox
from penstock.core.delivery.ports import ChangeRecorder
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Reason

REAP_MESSAGES = 2_000
"""Queued messages that one step examines; a queue is examined as a whole."""

Owner = Session | SharedGroup[Session]
"""Session or shared group with queued messages."""


class QueueExpiry:
    """Owners of queues in which a message may expire."""

    def __init__(self, drops: Drops, recorder: ChangeRecorder) -> None:
        self._drops = drops
        self._recorder = recorder
        self._owners: dict[Owner, None] = {}
        self._unexamined: deque[Owner] = deque()  # of this pass

    def watch(self, owner: Owner) -> None:
        """A message with a time to live was queued."""
        self._owners[owner] = None

    def begin_pass(self) -> None:
        """Once a second: every queue is to be examined."""
        self._unexamined = deque(self._owners)

    def reap(self, now: float) -> tuple[list[Session], bool]:
        """Remove expired messages from some queues.

        Returns sessions that may have nothing queued any more, and whether there are more queues to examine.
        """
        budget = REAP_MESSAGES
        visited: list[Session] = []
        while self._unexamined and budget > 0:
            owner = self._unexamined.popleft()
            if owner not in self._owners:
                continue
            del self._owners[owner]
            queues = _queues_of(owner)
            budget -= 1 + sum(len(queue) for queue in queues if now >= queue.next_expiry)
            for queue in queues:
                self._remove_expired(owner, queue, now)
            if any(queue.may_expire for queue in queues):
                self._owners[owner] = None
            if isinstance(owner, Session):
                visited.append(owner)
                self._drop_evicted(owner)
        return visited, bool(self._unexamined)

    def _remove_expired(self, owner: Owner, queue: Outbox, now: float) -> None:
        expired = queue.remove_expired(now)
        if not expired:
            return
        if isinstance(owner, Session):
            self._drops.expire_all(expired, owner)
        else:
            self._drops.expire_in_group(expired, owner)
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
