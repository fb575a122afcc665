"""Offline fetch: loads the messages of an offline queue from the log.

A log-backed offline queue holds offsets. After reconnection the messages are fetched in chunks, off the loop,
and encoded for the session's present subscriptions. Messages that the log no longer has are recorded with
their reason.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.access.access import Access
from penstock.core.delivery.offline_queue import OfflineQueue
from penstock.core.diagnostics.ledger import Ledger, ranges_of
from penstock.core.ports.connection import ConnectionPort, Encoding
from penstock.core.ports.log import LogReader, Lost
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.router import Router
from penstock.model import Door, Policy, Reason
from penstock.runs import Run, bare_shape

CHUNK_BYTES = 256 * 1024
MESSAGES_AT_ONCE = 1_000
LEAST_BYTES = 256
"""Least weight of a message, so that a chunk does not have too many."""


class OfflineFetch:
    """Turns offsets into messages."""

    def __init__(self, log: LogReader, access: Access, ledger: Ledger, router: Router) -> None:
        self._log = log
        self._access = access
        self._ledger = ledger
        self._router = router

    def fetch(self, session: Session, offline_queue: OfflineQueue, done: Callable[[Session], None]) -> None:
        """Load the next messages of an offline queue from the log, then call `done`."""
        assert session.connection is not None
        count = min(MESSAGES_AT_ONCE, CHUNK_BYTES // max(offline_queue.mean_bytes, LEAST_BYTES)) or 1
        offsets = offline_queue.peek(count)
        session.is_fetching = True
        self._log.fetch(
            offsets, partial(self._on_fetched, session, session.connection, offline_queue, offsets, done)
        )

    def _on_fetched(
        self,
        session: Session,
        connection: ConnectionPort,
        offline_queue: OfflineQueue,
        offsets: Sequence[int],
        done: Callable[[Session], None],
        found: dict[int, Run],
    ) -> None:
        if session.connection is not connection or session.offline_queue is not offline_queue:
            return  # it has gone meanwhile; the offsets are still there for its return
        session.is_fetching = False
        encodings: dict[str, Encoding | None] = {}  # most messages have a topic that others have too
        for offset in offline_queue.discard_through(offsets[-1]):  # some may have been dropped meanwhile
            run = found.get(offset)
            if run is None:
                self.note_gone(session.client_id, offset)
            elif not self._access.may_read(session.identity, run.topic):
                self._ledger.add(run, session.client_id, Reason.NOT_AUTHORIZED)
            else:
                if run.topic not in encodings:
                    encodings[run.topic] = self.encoding_of(session, run)
                encoding = encodings[run.topic]
                if encoding is not None:
                    offline_queue.add_last(run, encoding)
                else:  # it wants this no more
                    self._ledger.add(run, session.client_id, Reason.SESSION_ENDED)
        done(session)

    def encoding_of(self, session: Session, run: Run) -> Encoding | None:
        """Return the encoding that a session's subscriptions give a message now; None if none matches."""
        classes = self._router.find_audience(run.topic).classes()
        return next((encoding for encoding, members in classes if session in members), None)

    def note_lost(
        self, client_id: str, offsets: Sequence[int], reason: Reason, policy: Policy | None = None
    ) -> None:
        """Record losses of which only the offsets are known."""

        def note(found: dict[int, Run]) -> None:
            for offset in now if len(found) < len(now) else ():
                if offset not in found:
                    self.note_gone(client_id, offset)
            setting = "sessions.owed" if policy else ""
            for lost in ranges_of([found[offset] for offset in now if offset in found]):
                self._ledger.add_range(lost, client_id, reason, policy, setting)
            if later:
                self.note_lost(client_id, later, reason, policy)

        now, later = offsets[:MESSAGES_AT_ONCE], offsets[MESSAGES_AT_ONCE:]
        if now:
            self._log.fetch(now, note)

    def note_gone(self, client_id: str, offset: int) -> None:
        """Record a message that the log has no more, or never had."""
        self._ledger.add(_unknown(offset), client_id, self._log.reason_of(offset))

    def note_damaged(self, client_id: str, lost: Lost) -> None:
        """Record messages that the log has and cannot read."""
        count, shape = lost.last - lost.first + 1, bare_shape(Door.SERVER, 0, False)
        self._ledger.add(
            Run(lost.topic, b"", 0, 0, count, shape, sequence=lost.first), client_id, Reason.DAMAGED
        )


def _unknown(offset: int) -> Run:
    """Stands for a message of which nothing but its offset is known; its row says that for the sequence."""
    return Run("", b"", 0, 0, 1, bare_shape(Door.SERVER, 0, False), sequence=offset, offset=offset)
