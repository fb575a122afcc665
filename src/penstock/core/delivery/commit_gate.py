"""Commit gate: bytes of QoS 2 deliveries leave after the commit that knows their packet ids.

Otherwise a crash could send a message twice under two ids. Bytes behind a gated delivery wait as well, so
the order stays. If the commit fails, nothing has been sent: the deliveries return to the queue and the
connection ends.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.delivery.drops import Drops
from penstock.core.delivery.outbox import Entry
from penstock.core.delivery.ports import ChangeRecorder
from penstock.core.ports.connection import ConnectionPort
from penstock.core.ports.log import Log
from penstock.core.sessions.session import Ending, Session


class CommitGate:
    """The last step of every delivery."""

    def __init__(
        self,
        log: Log,
        recorder: ChangeRecorder,
        drops: Drops,
        on_sent: Callable[[Session], None],
        on_unsent: Callable[[Session, Sequence[Entry]], None],
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._drops = drops
        self._on_sent = on_sent
        self._on_unsent = on_unsent

    def note(self, session: Session, first: int, level: int) -> None:
        """Deliveries have got their numbers, from `first` on (0 if there are none): this has to be stored."""
        if first:
            self._recorder.touch(session)
            if level == 2 and not session.first_uncommitted_id and self._has_to_wait(session, first):
                session.first_uncommitted_id = first

    def _has_to_wait(self, session: Session, first: int) -> bool:
        """Its number is stored, or its message, which goes with all of its turn, is not stored yet."""
        pending = session.inflight.entries[first] if session.inflight else None
        is_new = pending is not None and pending.run.offset > self._log.last_offset
        return is_new or session.journal is not None

    def write(self, session: Session, data: bytes) -> None:
        """Send bytes, or keep them until they may leave if the session's gate is shut."""
        connection = session.connection
        if connection is None:
            return
        if session.first_uncommitted_id and not self._log.is_committed(self._log.ticket):
            session.is_flowing = False
            self._recorder.when_stored(partial(self._settle, session, connection, data))
        else:
            session.first_uncommitted_id = 0
            connection.write(data)

    def _settle(
        self, session: Session, connection: ConnectionPort, data: bytes, failure: Exception | None
    ) -> None:
        if session.connection is not connection:
            return  # nothing of this has left, and it was taken back
        first, session.first_uncommitted_id = session.first_uncommitted_id, 0
        if failure is None:
            connection.write(data)
            self._on_sent(session)
        else:
            self._withdraw(session, first)
            session.close(Ending.UNSTORED)

    def _withdraw(self, session: Session, first: int) -> None:
        """Withdraw deliveries that were never sent. Messages that are not stored were never accepted."""
        assert session.inflight is not None
        unsent: list[Entry] = []
        for pending in session.inflight.take_from(first):
            run, encoding = pending.run, pending.encoding
            if run.offset > self._log.last_offset and not encoding.is_retained:
                self._drops.withdraw(run, session)
            else:
                unsent.append((run, encoding))
        self._on_unsent(session, unsent)
