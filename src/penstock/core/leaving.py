"""Bytes on their way out to a session: at once, or when the commit that knows of them is made.

At QoS 2 a message may be sent only when the next server would know that it was: otherwise a crash could send
it twice under two numbers. What waits for its commit holds back whatever is behind it, so the order stays. If
the commit fails, nothing of it has left: it is taken back, and the connection ends.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.ledger import Ledger
from penstock.core.outbox import Entry
from penstock.core.ports import Log, Sink
from penstock.core.recording import Recording
from penstock.core.sessions import Ending, Session
from penstock.model import Reason


class Leaving:
    """The last step of every delivery."""

    def __init__(self, log: Log, recording: Recording, ledger: Ledger) -> None:
        self._log = log
        self._recording = recording
        self._ledger = ledger
        self.on_left: Callable[[Session], None] = lambda session: None
        self.on_unsent: Callable[[Session, Sequence[Entry]], None] = lambda session, entries: None

    def note(self, session: Session, first: int, level: int) -> None:
        """Deliveries have got their numbers, from `first` on (0 if there are none): this has to be stored."""
        if first:
            self._recording.touch(session)
            if level == 2 and not session.gate and self._has_to_wait(session, first):
                session.gate = first

    def _has_to_wait(self, session: Session, first: int) -> bool:
        """Its number is stored, or its message, which goes with all of its turn, is not stored yet."""
        pending = session.inflight.entries[first] if session.inflight else None
        is_new = pending is not None and pending.run.offset > self._log.last_offset
        return is_new or session.moves is not None

    def write(self, session: Session, data: bytes) -> None:
        """Send bytes, or keep them until they may leave if the session's gate is shut."""
        sink = session.sink
        if sink is None:
            return
        if session.gate and not self._log.is_committed(self._log.ticket):
            session.is_flowing = False
            self._recording.when_stored(partial(self._settle, session, sink, data))
        else:
            session.gate = 0
            sink.write(data)

    def _settle(self, session: Session, sink: Sink, data: bytes, failure: Exception | None) -> None:
        if session.sink is not sink:
            return  # nothing of this has left, and it was taken back
        first, session.gate = session.gate, 0
        if failure is None:
            sink.write(data)
            self.on_left(session)
        else:
            self._take_back(session, first)
            session.is_paused = True  # nothing more leaves until its door has let go of it
            sink.close(Ending.UNSTORED)

    def _take_back(self, session: Session, first: int) -> None:
        """Take numbers back that nobody has seen. Messages that are not stored were never accepted."""
        assert session.inflight is not None
        unsent: list[Entry] = []
        for pending in session.inflight.take_from(first):
            run, form = pending.run, pending.form
            if run.offset > self._log.last_offset and not form.is_retained:
                self._ledger.add(run, session.client_id, Reason.NEVER_STORED)
            else:
                unsent.append((run, form))
        self.on_unsent(session, unsent)
