"""Wire changes: a client reconnects with another protocol version or packet size.

Every encoding of its session is replaced: those of its filters, of the messages in flight, and of the queued
ones. Very many filters take steps, so that no turn of the loop is long.
"""

from collections.abc import Callable

from penstock.core.delivery import reencoding
from penstock.core.delivery.reencoding import PendingEncoding
from penstock.core.node import Node
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.subscription import Subscription

FILTERS_A_STEP = 256
UNSETTLED = object()
"""Wire of a session whose filters are not all re-encoded."""


class WireChanges:
    """Sessions whose filters are being re-encoded.

    Until the last filter is done nothing new is sent to them, and live messages are queued in the encoding
    that their filter has. If a client leaves, its next connection begins again.

    Args:
        resume: continues with queued and live messages.
    """

    def __init__(self, node: Node, resume: Callable[[Session], None]) -> None:
        self._node = node
        self._resume = resume
        self._changing: dict[Session, bool] = {}  # whether each is to be resumed at the end

    def postpones(self, session: Session) -> bool:
        """Return whether a session has to wait; then it is resumed at the end of its change."""
        if session not in self._changing:
            return False
        self._changing[session] = True
        return True

    def begin(self, session: Session, wire: object, reencode: Callable[[Encoding], Encoding]) -> None:
        """Replace every encoding of a session if its new connection has another wire."""
        self._changing.pop(session, None)
        if session.wire == wire:
            return
        change = _remembering(reencode)
        filters = list(session.subscriptions)
        if len(filters) <= FILTERS_A_STEP or _is_recovered(session):
            self._reencode_filters(session, filters, change)
            reencoding.reencode(session, change)
            session.wire = wire
            return
        session.wire = UNSETTLED
        reencoding.reencode(session, change)  # what was in flight is sent again at once
        connection = session.connection
        self._changing[session] = False

        def reencode_some() -> bool:
            if session.connection is not connection:
                if session.connection is None:
                    self._changing.pop(session, None)
                return False
            self._reencode_filters(session, filters[-FILTERS_A_STEP:], change)
            del filters[-FILTERS_A_STEP:]
            if filters:
                return True
            reencoding.reencode(session, change)  # what was queued meanwhile
            session.wire = wire
            if self._changing.pop(session, False):
                self._resume(session)
            return False

        self._node.run_in_background(reencode_some)

    def _reencode_filters(
        self, session: Session, filters: list[str], change: Callable[[Encoding], Encoding]
    ) -> None:
        subscriptions, find_group = session.subscriptions, self._node.router.find_group
        for filter in filters:
            old = subscriptions.get(filter)
            if old is None:
                continue  # unsubscribed meanwhile
            new = Subscription(filter, old.options, change(old.encoding), old.policy, old.since)
            group = find_group(filter)
            assert group is not None
            group.leave(session, old)
            subscriptions[filter] = new
            group.join(session, new)


def _remembering(reencode: Callable[[Encoding], Encoding]) -> Callable[[Encoding], Encoding]:
    """Call once for each encoding: there are few, however many filters and messages there are."""
    encodings: dict[Encoding, Encoding] = {}

    def change(encoding: Encoding) -> Encoding:
        changed = encodings.get(encoding)
        if changed is None:
            changed = encodings[encoding] = reencode(encoding)
        return changed

    return change


def _is_recovered(session: Session) -> bool:
    """Return whether a session has filters of before a restart, whose stand-ins merge with nothing else."""
    return any(isinstance(wanted.encoding, PendingEncoding) for wanted in session.subscriptions.values())
