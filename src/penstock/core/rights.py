"""What follows when rights change: who may stay, what may still be read, and what waits for whom.

Rights are decided when a client connects, subscribes or publishes to a topic for the first time. When the
rules change, everything that was decided is decided again, wherever a message may be waiting.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.attendance import Attendance
from penstock.core.node import Node
from penstock.core.outbox import Entry
from penstock.core.publishing import Publishing
from penstock.core.sessions import Session
from penstock.core.subscribing import Subscribing
from penstock.core.topics import split_share
from penstock.model import Reason, Run

OnWithdrawn = Callable[[Session, Sequence[str]], None]
"""Gets a session that is connected, and the filters that were taken from it."""


class Rights:
    """Carries out what new rules mean for those who are known."""

    def __init__(
        self, node: Node, publishing: Publishing, subscribing: Subscribing, attendance: Attendance
    ) -> None:
        self._node = node
        self._publishing = publishing
        self._subscribing = subscribing
        self._attendance = attendance
        self.on_withdrawn: list[OnWithdrawn] = []

    def reconsider(self) -> None:
        """Decide anew who may stay, and who may publish and read what."""
        self._node.tick.settle()  # what was published before is where it waits, and can be found there
        self._publishing.forget_topics(self._node.sessions.values())
        sessions = list(self._node.sessions.values())
        withdrawn = {session: filters for session in sessions if (filters := self._withdraw(session))}
        # Only now: what the unknown leave behind, a will or a place in a group, must reach no one it may not.
        self._attendance.end_unknown()
        for session, filters in withdrawn.items():
            if session.sink is not None:  # else it was told that it is not known any more, or is away
                for tell in self.on_withdrawn:
                    tell(session, filters)
        for group in {group: None for session in sessions for group in session.groups or ()}:
            self._node.delivery.serve_group(group)

    def _withdraw(self, session: Session) -> list[str]:
        """Take from a session what it may not read any more; others of a shared group get that instead.

        Answers the filters that were taken from it.
        """
        is_forbidden = self._is_forbidden(session)
        if session.inflight is not None and session.sink is None:
            # Who is connected has got it; it is asked for again when it has to be sent again.
            for pending in session.inflight.remove(is_forbidden):
                self._node.ledger.add(pending.run, session.client_id, Reason.NOT_AUTHORIZED)
            self._node.recording.touch(session)
        withdrawn: list[Entry] = []
        for queue in (session.outbox, session.owed):
            if queue:
                withdrawn += queue.remove(is_forbidden)
        for run, _ in self._node.keeping.offer_again(withdrawn):
            self._node.ledger.add(run, session.client_id, Reason.NOT_AUTHORIZED)
        may_subscribe = partial(self._node.access.may_subscribe, session.identity)
        filters = [filter for filter in session.subscriptions if not may_subscribe(split_share(filter)[1])]
        for filter in filters:
            self._subscribing.unsubscribe(session, filter, is_forced=True)
        if session.joins is not None:
            session.joins.keep_if(may_subscribe)
        if withdrawn and session.sink is not None:
            self._node.lagging.wake(session)  # perhaps nothing waits any more
        return filters

    def _is_forbidden(self, session: Session) -> Callable[[Run], bool]:
        may_read = partial(self._node.access.may_read, session.identity)
        known: dict[str, bool] = {}  # a queue may hold ten thousand messages of one topic

        def is_forbidden(run: Run) -> bool:
            if run.topic not in known:
                known[run.topic] = not may_read(run.topic)
            return known[run.topic]

        return is_forbidden
