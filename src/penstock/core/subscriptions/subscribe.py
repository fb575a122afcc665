"""Subscribe and unsubscribe: validation, groups, retained values for new filters."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice

from penstock.common.topics import FilterSet, check_filter, split_share
from penstock.core.delivery.outbox import Entry
from penstock.core.delivery.reencoding import make_own
from penstock.core.node import Node
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.router import AnyGroup
from penstock.core.subscriptions.shared import SharedGroup, is_shared
from penstock.core.subscriptions.subscription import Options, Subscription
from penstock.core.topics.retained_backlog import Backlog
from penstock.errors import InvalidFilter, NotAuthorized, QuotaExceeded, StorageUnavailable
from penstock.model import Policy, Reason

FILTERS_A_STEP = 50
"""Filters that an ended session leaves in one step."""


class Subscriber:
    """Adds filters to sessions and removes them."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def subscribe(
        self,
        session: Session,
        filter: str,
        options: Options,
        encoding: Encoding,
        *,
        policy: Policy,
        retained: bool = True,
        retained_if_known: bool = True,
        sent_topics: set[str] | None = None,
    ) -> None:
        """Add a filter to a session, or replace it.

        `retained` sends the retained values that match, `retained_if_known` also when the filter was
        there before. Filters that are given the same set `sent_topics` send the value of a topic once.

        Raises:
            PenstockError: the filter is invalid, forbidden or one too many; nothing changed.
        """
        self.check(session, (filter,))
        share, inner = split_share(filter)
        old = session.subscriptions.get(filter)
        if session.catch_ups is not None:
            session.catch_ups.leave(filter)
        self._node.tick.settle()
        is_new = old is None or not old.options.qos  # at QoS 0 nothing is queued offline
        since = self._node.history.head if old is None or is_new else old.since
        subscription = Subscription(filter, options, encoding, policy, since)
        group = self._node.router.open_group(filter)
        if old is not None:
            group.leave(session, old)
            if share is None and not options.qos:
                self._node.recorder.note_past_subscription(session, old, self._node.history.head)
        group.join(session, subscription)
        session.subscriptions[filter] = subscription
        self._node.counters.subscriptions_added += old is None
        self._node.recorder.save(session)
        if share is None and retained and (old is None or retained_if_known) and self._may_have_value(inner):
            self._send_retained(session, inner, encoding.as_retained(), sent_topics)
        elif session.backlog and filter in session.backlog:
            session.backlog[
                filter
            ].encoding = encoding.as_retained()  # MQTT-3.8.4-4: replacing it loses nothing
        if isinstance(group, SharedGroup):
            self._node.recorder.begin_with(group)
            if session.connection is not None:
                self._node.drainer.serve_group(group)

    def check(self, session: Session, filters: Sequence[str]) -> None:
        """Refuse filters that a session may not have.

        Raises:
            PenstockError: one of them is invalid, forbidden or one too many.
        """
        catch_ups = session.catch_ups or ()
        has, new = len(session.subscriptions) + len(catch_ups), 0
        for filter in filters:
            check_filter(filter, self._node.settings.topic)
            _, inner = split_share(filter)
            if not self._node.access.may_subscribe(session.identity, inner):
                raise NotAuthorized(f"not allowed to subscribe to {inner}")
            new += filter not in session.subscriptions and filter not in catch_ups
        if new and has + new > self._node.settings.sessions.max_subscriptions:
            raise QuotaExceeded(f"{has} subscriptions already")
        if session.journal is not None and self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def unsubscribe(self, session: Session, filter: str, *, is_forced: bool = False) -> bool:
        """Remove a filter from a session. Returns False if it had no such filter.

        A session that is forced to leave a shared group does not keep unacknowledged deliveries: if it
        disconnects, other members get them.
        """
        old = session.subscriptions.get(filter)
        if old is None:
            return session.catch_ups is not None and session.catch_ups.leave(filter)
        self.leave(session, filter, keeps=not is_forced)
        if split_share(filter)[0] is None:
            self._node.recorder.note_past_subscription(session, old, self._node.history.head)
        self._node.recorder.save(session)
        return True

    def drop_queued(self, session: Session, left: str | Sequence[str]) -> None:
        """Take out of a session's outbox what came by filters that it has left, and by no other.

        It is recorded, as what did not leave before that.
        """
        if not session.outbox:
            return
        filters = FilterSet((left,) if isinstance(left, str) else left)
        unwanted: dict[str, bool] = {}

        def is_unwanted(entry: Entry) -> bool:
            run, encoding = entry
            if run.topic not in unwanted:
                unwanted[run.topic] = not self._wants(session, run.topic) and filters.match(run.topic)
            return unwanted[run.topic] and not is_shared(encoding)

        removed = deque(session.outbox.remove_entries(is_unwanted))
        self._node.drops.record(removed, session.client_id, Reason.SESSION_ENDED)
        self._node.drainer.wake(session)  # perhaps nothing waits any more

    def _wants(self, session: Session, topic: str) -> bool:
        return any(group.filter in session.subscriptions for group in self._node.router.match(topic))

    def is_filter(self, text: str) -> bool:
        """Return whether a text is a valid filter."""
        try:
            check_filter(text, self._node.settings.topic)
        except InvalidFilter:
            return False
        return True

    def leave(self, session: Session, filter: str, *, keeps: bool = True) -> None:
        """Take a filter from a session that has it."""
        self._node.tick.settle()
        self._node.counters.subscriptions_removed += 1
        if session.backlog:
            session.backlog.pop(filter, None)
        group = self._remove(session, filter)
        if isinstance(group, SharedGroup) and keeps:
            make_own(session, group)

    def leave_all(self, session: Session) -> None:
        """Take all filters from a session that has ended: a few at once, the others in background steps.

        Until then nothing reaches the session by them, because it is marked as over.
        """
        if session.subscriptions:
            self._node.counters.subscriptions_removed += len(session.subscriptions)
            self._node.endings.add(partial(self._leave_some, session))

    def _leave_some(self, session: Session) -> bool:
        for filter in list(islice(session.subscriptions, FILTERS_A_STEP)):
            self._remove(session, filter)
        return bool(session.subscriptions)

    def _remove(self, session: Session, filter: str) -> AnyGroup:
        """Remove a session from the group of a filter, and the group with its last member."""
        router = self._node.router
        group = router.find_group(filter)
        assert group is not None
        group.leave(session, session.subscriptions.pop(filter))
        if not group:
            router.close_group(filter)
            if isinstance(group, SharedGroup):
                self._note_unserved(group)
                self._node.recorder.forget_group(group)
        return group

    def _note_unserved(self, group: SharedGroup[Session]) -> None:
        self._node.drops.record_queue(group.offline_queue, group.filter, Reason.SESSION_ENDED)

    def _may_have_value(self, filter: str) -> bool:
        """Without values of clients only the server's own are left, which are all below `$`."""
        return bool(self._node.retained.of_clients) or filter.startswith("$")

    def _send_retained(
        self, session: Session, filter: str, encoding: Encoding, sent_topics: set[str] | None
    ) -> None:
        """Queue retained values; they leave in chunks, as the socket takes them."""
        if session.backlog is None:
            session.backlog = {}
        topics = self._node.retained.match(filter)
        session.backlog[filter] = Backlog(
            topics,
            encoding,
            self._node.history.head,
            session.client_id,
            session.door,
            sent_topics=sent_topics,
        )
        session.is_flowing = False
        self._node.drainer.wake(session)
