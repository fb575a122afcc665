"""Filters come and go: groups are joined and left, and retained values are sent to who is new."""

from collections.abc import Sequence

from penstock.core.backlog import Backlog
from penstock.core.node import Node
from penstock.core.outbox import Entry
from penstock.core.ports import Form
from penstock.core.reforming import make_own
from penstock.core.sessions import Options, Session, Subscription
from penstock.core.shared import SharedForm, SharedGroup
from penstock.core.topics import FilterSet, check_filter, split_share
from penstock.errors import InvalidFilter, NotAuthorized, QuotaExceeded, StorageUnavailable
from penstock.model import Policy, Reason


class Subscribing:
    """Adds filters to sessions and takes them away."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def subscribe(
        self,
        session: Session,
        filter: str,
        options: Options,
        form: Form,
        *,
        policy: Policy,
        retained: bool = True,
        retained_if_known: bool = True,
        told: set[str] | None = None,
    ) -> None:
        """Add a filter to a session, or replace it.

        `retained` sends the retained values that match, `retained_if_known` also when the filter was
        there before. Filters that are given the same set `told` send the value of a topic once.

        Raises:
            PenstockError: the filter is invalid, forbidden or one too many; nothing changed.
        """
        self.check(session, (filter,))
        share, inner = split_share(filter)
        old = session.subscriptions.get(filter)
        if session.joins is not None:
            session.joins.leave(filter)
        self._node.tick.settle()
        is_new = old is None or not old.options.qos  # at QoS 0 nothing is owed
        since = self._node.history.head if old is None or is_new else old.since
        subscription = Subscription(filter, options, form, policy, since)
        group = self._node.router.open_group(filter)
        if old is not None:
            group.leave(session, old)
            if share is None and not options.qos:
                self._node.recording.note_former(session, old, self._node.history.head)
        group.join(session, subscription)
        session.subscriptions[filter] = subscription
        self._node.counters.subscriptions_added += old is None
        self._node.recording.save(session)
        if share is None and retained and (old is None or retained_if_known) and self._may_have_value(inner):
            self._send_retained(session, inner, form.as_retained(), told)
        elif session.backlog and filter in session.backlog:
            session.backlog[filter].form = form.as_retained()  # MQTT-3.8.4-4: replacing it loses nothing
        if isinstance(group, SharedGroup):
            self._node.recording.begin_with(group)
            if session.sink is not None:
                self._node.delivery.serve_group(group)

    def check(self, session: Session, filters: Sequence[str]) -> None:
        """Refuse filters that a session may not have.

        Raises:
            PenstockError: one of them is invalid, forbidden or one too many.
        """
        joins = session.joins or ()
        has, new = len(session.subscriptions) + len(joins), 0
        for filter in filters:
            check_filter(filter, self._node.settings.topic)
            _, inner = split_share(filter)
            if not self._node.access.may_subscribe(session.identity, inner):
                raise NotAuthorized(f"not allowed to subscribe to {inner}")
            new += filter not in session.subscriptions and filter not in joins
        if new and has + new > self._node.settings.sessions.max_subscriptions:
            raise QuotaExceeded(f"{has} subscriptions already")
        if session.moves is not None and self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def unsubscribe(self, session: Session, filter: str, *, is_forced: bool = False) -> bool:
        """Remove a filter from a session; False if it had none such.

        A session that is forced to leave a shared group does not keep what it was chosen for: if it goes
        away without having acknowledged that, the others get it.
        """
        old = session.subscriptions.get(filter)
        if old is None:
            return session.joins is not None and session.joins.leave(filter)
        self.leave(session, filter, keeps=not is_forced)
        if split_share(filter)[0] is None:
            self._node.recording.note_former(session, old, self._node.history.head)
        self._node.recording.save(session)
        return True

    def forget_waiting(self, session: Session, left: str | Sequence[str]) -> None:
        """Take out of a session's outbox what came by filters that it has left, and by no other.

        It is recorded, as what did not leave before that.
        """
        if not session.outbox:
            return
        filters = FilterSet((left,) if isinstance(left, str) else left)
        unwanted: dict[str, bool] = {}

        def is_unwanted(entry: Entry) -> bool:
            run, form = entry
            if run.topic not in unwanted:
                unwanted[run.topic] = not self._wants(session, run.topic) and filters.match(run.topic)
            return unwanted[run.topic] and not isinstance(form, SharedForm)

        for run, _ in session.outbox.remove_entries(is_unwanted):
            self._node.ledger.add(run, session.client_id, Reason.SESSION_ENDED)
        self._node.lagging.wake(session)  # perhaps nothing waits any more

    def _wants(self, session: Session, topic: str) -> bool:
        return any(group.filter in session.subscriptions for group in self._node.router.match(topic))

    def is_filter(self, text: str) -> bool:
        """Somebody could subscribe to this."""
        try:
            check_filter(text, self._node.settings.topic)
        except InvalidFilter:
            return False
        return True

    def leave(self, session: Session, filter: str, *, keeps: bool = True) -> None:
        """Take a filter from a session that has it."""
        self._node.tick.settle()
        subscription = session.subscriptions.pop(filter)
        self._node.counters.subscriptions_removed += 1
        if session.backlog:
            session.backlog.pop(filter, None)
        group = self._node.router.find_group(filter)
        assert group is not None
        group.leave(session, subscription)
        if isinstance(group, SharedGroup) and keeps:
            make_own(session, group)
        if not group:
            self._node.router.close_group(filter)
            if isinstance(group, SharedGroup):
                self._note_unserved(group)
                self._node.recording.forget_group(group)

    def _note_unserved(self, group: SharedGroup) -> None:
        for run, _ in group.owed.take(group.owed.bytes + 1):
            self._node.ledger.add(run, group.filter, Reason.SESSION_ENDED)

    def _may_have_value(self, filter: str) -> bool:
        """Without values of clients only the server's own are left, which are all below `$`."""
        return bool(self._node.retained.of_clients) or filter.startswith("$")

    def _send_retained(self, session: Session, filter: str, form: Form, told: set[str] | None) -> None:
        """Queue retained values; they leave in chunks, as the socket takes them."""
        if session.backlog is None:
            session.backlog = {}
        topics = self._node.retained.match(filter)
        session.backlog[filter] = Backlog(
            topics, form, self._node.history.head, session.client_id, session.door, told=told
        )
        session.is_flowing = False
        self._node.lagging.wake(session)
