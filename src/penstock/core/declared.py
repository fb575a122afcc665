"""Topics that were made on purpose, and topics that are taken away.

Core makes a topic on first use. A door whose clients are promised otherwise asks here whether there is one,
and makes and deletes topics for them. A deleted topic is as if it had never been, but for two things: its
sequences are not given again, and what the log has of it stays there, for readers with a cursor. Whoever uses
it again makes it again, and its last messages are those since.
"""

from collections.abc import Callable, Sequence

from penstock.core.audience import Group
from penstock.core.identity import Identity
from penstock.core.node import Node
from penstock.core.ports import Settled
from penstock.core.publishing import Publishing
from penstock.core.records import DECLARED, DeclaredRecord
from penstock.core.registry import Gone, Topic
from penstock.core.sessions import Session
from penstock.core.subscribing import Subscribing
from penstock.core.topics import check_topic, is_reserved
from penstock.errors import InvalidTopic, NotAuthorized, ShuttingDown, StorageUnavailable
from penstock.model import Door

MOST_GONE = 100_000
"""How many deleted topics are remembered one by one. When an older one comes back, it begins above every
sequence that was forgotten, and it is there again if the log has something of it."""

OnDeleted = Callable[[str, Sequence[Session]], None]
"""Gets a topic that was deleted, and the sessions of the web door that had subscribed to just it."""


class Declared:
    """Makes topics, deletes them, and knows which there are."""

    def __init__(self, node: Node, publishing: Publishing, subscribing: Subscribing) -> None:
        self._node = node
        self._publishing = publishing
        self._subscribing = subscribing
        self._topics = node.topics
        self.on_deleted: list[OnDeleted] = []

    def has(self, name: str) -> bool:
        """Whether there is a topic: somebody made it, or used it, and nobody has deleted it since."""
        return name in self._topics or (name not in self._topics.gone and self._is_logged(name))

    def _is_logged(self, name: str) -> bool:
        """Whether it was used before the server started, or so long ago that it is forgotten here."""
        try:
            check_topic(name, self._node.settings.topic)
        except InvalidTopic:
            return False
        return self._node.log.last_sequence(name) > 0

    def declare(self, name: str, *, by: Identity | None = None) -> bool:
        """Make a topic that stays until it is deleted; answer whether nobody had made it before.

        Args:
            by: who wants that; None for the server itself.

        Raises:
            PenstockError: the name is none, forbidden or one too many, or nothing can be stored now.
        """
        self._check(name, by)
        self._topics.make(name)
        is_new = name not in self._topics.declared
        if is_new:
            self._topics.declared.add(name)
            self._save(name, DeclaredRecord(floor=self._topics.floors.get(name, 0)))
        return is_new

    def delete(self, name: str, *, by: Identity | None = None) -> bool:
        """Take a topic away, with its last messages and its retained value; False if there is none.

        What was published before is delivered first, to those who keep up. Web clients that have subscribed
        to just this topic are unsubscribed, and told by whoever listens to `on_deleted`; all others go on and
        hear of it again when somebody uses it again.

        Raises:
            PenstockError: it is forbidden, or nothing can be stored now.
        """
        self._check(name, by)
        if not self.has(name):
            return False
        self._node.tick.settle()
        gone = self._forget(self._topics.get(name) or self._topics.restore(name))
        subscribers = self._web_subscribers(name)
        for session in subscribers:
            self._subscribing.unsubscribe(session, name)
            self._subscribing.forget_waiting(session, name)
        self._topics.declared.discard(name)
        self._save(name, DeclaredRecord(gone.sequence, self._topics.floors[name]))
        self._forget_oldest()
        for tell in self.on_deleted:
            tell(name, subscribers)
        return True

    def when_stored(self, callback: Settled) -> None:
        """Call back when what was made or deleted in this turn outlives the server, if anything does."""
        if self._node.recording.is_on:
            self._node.recording.when_stored(callback)
        else:
            callback(None)

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
            self._node.recording.forget_record(DECLARED, name)
            return
        if record.deleted_at is not None or record.floor:
            topics.floors[name] = record.floor

    def _check(self, name: str, by: Identity | None) -> None:
        """Refuse whom publishing to a topic is refused."""
        check_topic(name, self._node.settings.topic)
        if self._publishing.is_stopping:
            raise ShuttingDown("the server is about to stop")
        if is_reserved(name):
            raise NotAuthorized("topics that begin with $ are the server's own")
        if by is not None and not self._node.access.may_publish(by, name):
            raise NotAuthorized(f"not allowed to make or delete {name}")
        if self._node.recording.is_on and self._node.log.failure is not None:
            raise StorageUnavailable(str(self._node.log.failure))

    def _forget(self, topic: Topic) -> Gone:
        """Let go of everything that a topic has."""
        node = self._node
        node.replaced.note(topic, 0)  # whatever becomes of the commit under way, its value does not come back
        gone = self._topics.delete(topic, node.history.head)
        if topic.retained is not None:
            node.retained.delete(topic)
            node.recording.forget_value(topic.name)
        return gone

    def _web_subscribers(self, name: str) -> list[Session]:
        """Web clients that listen to just this topic, or will when they have got its past."""
        group = self._node.router.find_group(name)
        classes = group.classes.values() if isinstance(group, Group) else ()
        listening = [session for members in classes for session in members]
        joining = [session for session in self._node.joining if name in (session.joins or ())]
        return [session for session in (*listening, *joining) if session.door is Door.WEB]

    def _save(self, name: str, record: DeclaredRecord) -> None:
        if self._node.recording.is_on:
            self._node.state.put(DECLARED, name, record)
            self._node.recording.hurry()

    def _forget_oldest(self) -> None:
        while len(self._topics.floors) > MOST_GONE:
            name = self._topics.forget_gone()
            if self._node.recording.is_on and name not in self._topics.declared:
                self._node.recording.forget_record(DECLARED, name)
