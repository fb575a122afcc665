"""Search for the oldest offset that is queued or in flight: the log keeps everything from there on.

There may be a million sessions, so some are examined in each step. Between two steps a message may move from
one member of a shared group to another: members are examined in the last step, all together.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from penstock.core.durability.recorder import first_queued_offset
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup

SESSIONS_A_STEP = 200

Found = Callable[[int | None], None]
"""Called with the oldest offset; None if there is none."""


class OldestQueuedSearch:
    """Examines all sessions once.

    Args:
        head: the newest offset; what is published during the search comes after it.
    """

    def __init__(self, sessions: Iterable[Session], head: int, found: Found) -> None:
        self._left = list(sessions)
        self._head = head
        self._found = found
        self._oldest: int | None = None
        self._groups: dict[SharedGroup[Session], None] = {}
        self._steps = 0

    def step(self) -> bool:
        """Examine some sessions. Returns whether there are more."""
        self._steps += 1
        some = self._left[-SESSIONS_A_STEP:]
        del self._left[-SESSIONS_A_STEP:]
        for session in some:
            if session.groups:
                self._groups.update(session.groups)
            else:
                self._examine(session)
        if self._left:
            return True
        self._examine_groups()
        if self._steps > 1:  # sessions that were examined before may have got what was published since
            self._note(self._head + 1)
        self._found(self._oldest)
        return False

    def _examine_groups(self) -> None:
        members = {session: None for group in self._groups for session in group.members}
        for session in members:
            self._examine(session)
        for group in self._groups:
            for offset in (*group.again, *(run.offset for run in islice(group.offline_queue.runs(), 1))):
                self._note(offset)

    def _examine(self, session: Session) -> None:
        first = first_queued_offset(session)
        if first is not None:
            self._note(first)
        for pending in session.inflight.entries.values() if session.inflight else ():
            if pending is not None and not pending.encoding.is_retained:  # values are kept elsewhere
                self._note(pending.run.offset)
                if not session.groups:
                    break  # the first is the oldest, unless others had them before

    def _note(self, offset: int) -> None:
        if self._oldest is None or offset < self._oldest:
            self._oldest = offset
