"""What sessions are owed, read back from the log when they want it.

An owed list on disk is offsets. When its session is back, the messages are fetched in chunks, off the loop;
each gets the form that the session's subscriptions give it now. What is not there any more is recorded, with
the reason.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.access import Access
from penstock.core.ledger import Ledger
from penstock.core.owed import StoredOwed
from penstock.core.ports import Form, Log, Lost, Sink
from penstock.core.router import Router
from penstock.core.sessions import Session
from penstock.model import Door, Policy, Reason, Run, bare_shape

CHUNK_BYTES = 256 * 1024
MESSAGES_AT_ONCE = 1_000
LEAST_BYTES = 256
"""What a message is taken to weigh at least, so that a chunk is not too many of them."""


class Fetching:
    """Turns offsets into messages."""

    def __init__(self, log: Log, access: Access, ledger: Ledger, router: Router) -> None:
        self._log = log
        self._access = access
        self._ledger = ledger
        self._router = router
        self.on_fetched: Callable[[Session], None] = lambda session: None

    def fetch(self, session: Session, owed: StoredOwed) -> None:
        """Fetch the next of what a session is owed; `on_fetched` is called when it is there."""
        assert session.sink is not None
        count = min(MESSAGES_AT_ONCE, CHUNK_BYTES // max(owed.mean_bytes, LEAST_BYTES)) or 1
        offsets = owed.peek(count)
        session.is_fetching = True
        self._log.fetch(offsets, partial(self._on_fetched, session, session.sink, owed, offsets))

    def _on_fetched(
        self, session: Session, sink: Sink, owed: StoredOwed, offsets: Sequence[int], found: dict[int, Run]
    ) -> None:
        if session.sink is not sink or session.owed is not owed:
            return  # it has gone meanwhile; the offsets are still there for its return
        session.is_fetching = False
        forms: dict[str, Form | None] = {}  # most messages have a topic that others have too
        for offset in owed.discard_through(offsets[-1]):  # some may have been dropped meanwhile
            run = found.get(offset)
            if run is None:
                self.note_gone(session.client_id, offset)
            elif not self._access.may_read(session.identity, run.topic):
                self._ledger.add(run, session.client_id, Reason.NOT_AUTHORIZED)
            else:
                if run.topic not in forms:
                    forms[run.topic] = self.form_of(session, run)
                form = forms[run.topic]
                if form is not None:
                    owed.add_last(run, form)
                else:  # it wants this no more
                    self._ledger.add(run, session.client_id, Reason.SESSION_ENDED)
        self.on_fetched(session)

    def form_of(self, session: Session, run: Run) -> Form | None:
        """How a session wants a message now, if it does."""
        classes = self._router.find_audience(run.topic).classes()
        return next((form for form, members in classes if session in members), None)

    def note_lost(
        self, client_id: str, offsets: Sequence[int], reason: Reason, policy: Policy | None = None
    ) -> None:
        """Record messages that someone does not get and of which only the offsets are known."""

        def note(found: dict[int, Run]) -> None:
            for offset in now:
                run = found.get(offset)
                if run is None:
                    self.note_gone(client_id, offset)
                else:
                    self._ledger.add(run, client_id, reason, policy, "sessions.owed" if policy else "")
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
