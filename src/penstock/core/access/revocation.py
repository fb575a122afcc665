"""Revocation: applies changed rights to sessions, subscriptions and queued messages.

Rights are decided when a client connects, subscribes, or first publishes to a topic. After a reload every
such decision is made again, wherever a message may be queued.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.common.topics import split_share
from penstock.core.node import Node
from penstock.core.publishing.publish import Publisher
from penstock.core.sessions.lifecycle import SessionService
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.subscribe import Subscriber
from penstock.model import Reason
from penstock.runs import Run

OnWithdrawn = Callable[[Session, Sequence[str]], None]
"""Gets a session that is connected, and the filters that were taken from it."""


class Revocation:
    """Applies changed rights to existing sessions."""

    def __init__(
        self, node: Node, publishing: Publisher, subscribing: Subscriber, session_service: SessionService
    ) -> None:
        self._node = node
        self._publishing = publishing
        self._subscribing = subscribing
        self._session_service = session_service
        self.on_withdrawn: list[OnWithdrawn] = []

    def reconsider(self) -> None:
        """Decide anew which sessions may stay, and what each may publish and read."""
        self._node.tick.settle()  # what was published before is where it waits, and can be found there
        self._publishing.forget_topics(self._node.sessions.values())
        sessions = list(self._node.sessions.values())
        withdrawn = {session: filters for session in sessions if (filters := self._withdraw(session))}
        # Only now: what the unknown leave behind, a will or a place in a group, must reach no one it may not.
        self._session_service.end_unknown()
        for session, filters in withdrawn.items():
            if session.connection is not None:  # else it was closed as unknown, or is offline
                for notify in self.on_withdrawn:
                    notify(session, filters)
        for group in {group: None for session in sessions for group in session.groups or ()}:
            self._node.drainer.serve_group(group)

    def _withdraw(self, session: Session) -> list[str]:
        """Withdraw what a session may no longer read; other members of a shared group get it instead.

        Returns the filters that were removed.
        """
        is_forbidden = self._is_forbidden(session)
        if session.inflight is not None and session.connection is None:
            # Who is connected has got it; it is asked for again when it has to be sent again.
            removed = session.inflight.remove(is_forbidden)
            for pending in removed:
                self._node.ledger.add(pending.run, session.client_id, Reason.NOT_AUTHORIZED)
            if removed:  # after a start there are very many sessions, and most have lost nothing
                self._node.recorder.touch(session)
        queues = [queue for queue in (session.outbox, session.offline_queue) if queue]
        withdrawn = [entry for queue in queues for entry in queue.remove(is_forbidden)]
        for run, _ in self._node.queues.return_to_groups(withdrawn):
            self._node.ledger.add(run, session.client_id, Reason.NOT_AUTHORIZED)
        may_subscribe = partial(self._node.access.may_subscribe, session.identity)
        filters = [filter for filter in session.subscriptions if not may_subscribe(split_share(filter)[1])]
        for filter in filters:
            self._subscribing.unsubscribe(session, filter, is_forced=True)
        if session.catch_ups is not None:
            session.catch_ups.keep_if(may_subscribe)
        if withdrawn and session.connection is not None:
            self._node.drainer.wake(session)  # perhaps nothing waits any more
        return filters

    def _is_forbidden(self, session: Session) -> Callable[[Run], bool]:
        may_read = partial(self._node.access.may_read, session.identity)
        known: dict[str, bool] = {}  # a queue may hold ten thousand messages of one topic

        def is_forbidden(run: Run) -> bool:
            if run.topic not in known:
                known[run.topic] = not may_read(run.topic)
            return known[run.topic]

        return is_forbidden
