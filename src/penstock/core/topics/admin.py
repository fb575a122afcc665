"""Topic administration: topics that are created and deleted on request.

Core makes a topic on first use. Doors whose clients create and delete topics do it here. A deleted topic
leaves two traces: its sequences are not used again, and its messages in the log stay readable by cursor. The
next use makes the topic again, with an empty history.
"""

from collections.abc import Callable, Sequence

from penstock.common.topics import check_topic, is_reserved
from penstock.core.access.identity import Identity
from penstock.core.durability.records import DECLARED, DeclaredRecord
from penstock.core.node import Node
from penstock.core.ports.log import Settled
from penstock.core.publishing.publish import Publisher
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import Group
from penstock.core.subscriptions.subscribe import Subscriber
from penstock.core.topics.topic import Gone, Topic
from penstock.errors import InvalidTopic, NotAuthorized, ShuttingDown, StorageUnavailable
from penstock.model import Door

MOST_GONE = 100_000
"""Deleted topics that are remembered one by one. An older one returns above every dropped
sequence, and exists again if the log has messages of it.
"""

OnDeleted = Callable[[str, Sequence[Session]], None]
"""Gets a topic that was deleted, and the sessions of the web door that had subscribed to just it."""


class TopicAdmin:
    """Makes topics, deletes them, and knows which there are."""

    def __init__(self, node: Node, publishing: Publisher, subscribing: Subscriber) -> None:
        self._node = node
        self._publishing = publishing
        self._subscribing = subscribing
        self._topics = node.topics
        self.on_deleted: list[OnDeleted] = []

    def has(self, name: str) -> bool:
        """Return whether a topic exists: created or used, and not deleted since."""
        return name in self._topics or (name not in self._topics.gone and self._is_logged(name))

    def _is_logged(self, name: str) -> bool:
        """Return whether a topic was used before the start, or so long ago that it was dropped here."""
        try:
            check_topic(name, self._node.settings.topic)
        except InvalidTopic:
            return False
        return self._node.catalog.last_sequence(name) > 0

    def declare(self, name: str, *, by: Identity | None = None) -> bool:
        """Create a topic that stays until it is deleted. Returns False if it was created before.

        Args:
            by: the caller; None for the server itself.

        Raises:
            PenstockError: the name is invalid, not allowed or one too many, or nothing can be stored now.
        """
        self._check(name, by)
        self._topics.make(name)
        is_new = name not in self._topics.declared
        if is_new:
            self._topics.declared.add(name)
            self._save(name, DeclaredRecord(floor=self._topics.floors.get(name, 0)))
        return is_new

    def delete(self, name: str, *, by: Identity | None = None) -> bool:
        """Delete a topic with its last messages and retained value. Returns False if there is none.

        Earlier publishes are delivered first, to flowing sessions. Web clients subscribed to exactly this
        topic are unsubscribed and notified; all other subscriptions stay, and match when the topic is used
        again.

        Raises:
            PenstockError: it is not allowed, or nothing can be stored now.
        """
        self._check(name, by)
        if not self.has(name):
            return False
        self._node.tick.settle()
        gone = self._forget(self._topics.get(name) or self._topics.restore(name))
        subscribers = self._web_subscribers(name)
        for session in subscribers:
            self._subscribing.unsubscribe(session, name)
            self._subscribing.drop_queued(session, name)
        self._topics.declared.discard(name)
        self._save(name, DeclaredRecord(gone.sequence, self._topics.floors[name]))
        self._forget_oldest()
        for notify in self.on_deleted:
            notify(name, subscribers)
        return True

    def when_stored(self, callback: Settled) -> None:
        """Call back when what was made or deleted in this turn outlives the server, if anything does."""
        self._node.recorder.when_stored(callback)

    def restore(self) -> None:
        """At start: the topics that were made, and those that were deleted and not used again since."""
        records: list[tuple[str, DeclaredRecord]] = []
        for name, record in self._node.state.scan(DECLARED):
            assert isinstance(record, DeclaredRecord)
            records.append((name, record))
        for name, record in sorted(
            records, key=lambda found: found[1].floor
        ):  # what was deleted first, first
            self._restore(name, record)
        self._forget_oldest()

    def _restore(self, name: str, record: DeclaredRecord) -> None:
        topics, log = self._topics, self._node.log
        if record.deleted_at is None:
            topics.declared.add(name)
            if name not in topics:
                topics.restore(name)
        elif name not in topics and log.last_sequence(name) <= record.deleted_at:
            topics.gone[name] = Gone(record.deleted_at)
        elif record.floor < log.first_offset:  # it is there again, and nothing is left of what was before
            self._node.recorder.delete(DECLARED, name)
            return
        if record.deleted_at is not None or record.floor:
            topics.floors[name] = record.floor

    def _check(self, name: str, by: Identity | None) -> None:
        """Check the right to publish to a topic."""
        check_topic(name, self._node.settings.topic)
        if self._publishing.is_stopping:
            raise ShuttingDown("the server is about to stop")
        if is_reserved(name):
            raise NotAuthorized("topics that begin with $ are the server's own")
        if by is not None and not self._node.access.may_publish(by, name):
            raise NotAuthorized(f"not allowed to make or delete {name}")
        if self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def _forget(self, topic: Topic) -> Gone:
        """Drop everything that a topic has."""
        node = self._node
        node.retained_rollback.note(
            topic, 0
        )  # whatever becomes of the commit under way, its value does not come back
        gone = self._topics.delete(topic, node.history.head)
        if topic.retained is not None:
            node.retained.delete(topic)
            node.recorder.forget_value(topic.name)
        return gone

    def _web_subscribers(self, name: str) -> list[Session]:
        """Web clients that listen to just this topic, or will when they have got its past."""
        group = self._node.router.find_group(name)
        classes = group.classes.values() if isinstance(group, Group) else ()
        listening = [session for members in classes for session in members]
        catching_up = [session for session in self._node.catching_up if name in (session.catch_ups or ())]
        return [session for session in (*listening, *catching_up) if session.door is Door.WEB]

    def _save(self, name: str, record: DeclaredRecord) -> None:
        self._node.recorder.put(DECLARED, name, record, is_urgent=True)

    def _forget_oldest(self) -> None:
        while len(self._topics.floors) > MOST_GONE:
            name = self._topics.forget_gone()
            if name not in self._topics.declared:
                self._node.recorder.delete(DECLARED, name)
