"""Idempotent publish for requests: a receipt per message, duplicates by message id published once.

A list is checked as a whole before its first message is published, and both are done in steps. Connections
that stream publishes use `publish.py` directly.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.node import Node
from penstock.core.ports.log import Ticket
from penstock.core.publishing.deduplication import Key
from penstock.core.publishing.outcome import ListReceipt, Receipt
from penstock.core.publishing.publish import Publisher, is_to_be_stored, raise_it
from penstock.core.runtime.background import Steps
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import NOBODY
from penstock.core.topics.topic import Topic
from penstock.errors import PenstockError, StorageUnavailable, TooLarge
from penstock.runs import Run

PART_MESSAGES = 100
"""Messages of a list that are checked, or published, in one step."""
_NEW = Receipt("", 0, 0, 0, 0, 0, is_stored=False)
"""Stands for the receipt of a message that is about to be published."""


def ignore_part(runs: Sequence[Run]) -> None:
    """Do nothing about a part of a list."""


class Refused(Exception):
    """Messages of a list that were not taken, by their index; so none was."""

    def __init__(self, errors: Mapping[int, PenstockError]) -> None:
        super().__init__(f"{len(errors)} messages were refused")
        self.errors = errors


class IdempotentPublisher:
    """Publishes what requests bring, each run one message."""

    def __init__(self, node: Node, publishing: Publisher) -> None:
        self._publishing = publishing
        self._log = node.log
        self._dedup = node.dedup
        self._node = node

    def publish_once(
        self, run: Run, sender: Session, *, is_forced: bool = False, known_as: str | None = None
    ) -> Receipt:
        """Publish a message, unless the same user recently published one with its message id. Idempotent.

        A duplicate returns the receipt of the first publish, whose commit may be in progress.

        Args:
            is_forced: store it in a durable log even if no setting captures its topic.
            known_as: the canonical form of its id, if it can be spelled in several ways.

        Raises:
            PenstockError: it is not allowed, too large, or cannot be stored now.
        """
        topic = self.check(run, sender)
        key = self._dedup.key_of(run, sender.identity.user, known_as) if run.properties is not None else None
        if key is not None:
            earlier = self._dedup.find(key)
            if earlier is not None:
                return earlier
        published = self._publishing.publish_all((run,), sender, raise_it, is_forced=is_forced)
        receipt = self.receipt_of(run, topic, published.ticket, is_forced=is_forced)
        if key is not None:
            self._dedup.add(key, receipt)
        return receipt

    def publish_each(
        self, runs: Sequence[Run], sender: Session, on_part: Callable[[Sequence[Run]], None] = ignore_part
    ) -> Steps[ListReceipt]:
        """The same for messages in order, in steps: all of them or, if one may not be published, none.

        All of them are checked before the first is published. A long list is then published in parts, each
        in one commit; a change of rights does not leave it half done.

        Args:
            on_part: gets the runs of each part that were published, before they are flushed.

        Raises:
            Refused: why each that may not be published may not.
            StorageUnavailable: the log failed while parts of the list were published.
        """
        topics, keys = yield from self._check_all(runs, sender)
        published = ListReceipt()
        known: dict[Key, Receipt] = {}
        for start in range(0, len(runs), PART_MESSAGES):
            if start:
                yield
            end = start + PART_MESSAGES
            part = runs[start:end], topics[start:end], keys[start:end]
            on_part(self._publish_part(*part, sender, known, published))
            self._node.tick.flush_part(PART_MESSAGES)
        return published

    def _publish_part(
        self,
        runs: Sequence[Run],
        topics: list[Topic],
        keys: list[Key | None],
        sender: Session,
        known: dict[Key, Receipt],
        published: ListReceipt,
    ) -> list[Run]:
        """Publish some messages of a list; return those that were not published before.

        Args:
            known: receipts of the messages with an id that the list had before these.
        """
        failure = published.failure or self._log.failure
        if failure is not None and any(run.shape.qos for run in runs):
            what = "the rest of the list" if published.receipts else "the list"
            raise StorageUnavailable(f"{what} was not published: {failure}")
        fresh: list[Run] = []
        for run, key in zip(runs, keys, strict=True):
            if key is None:
                fresh.append(run)
            elif key not in known:
                earlier = self._dedup.find(key)
                known[key] = _NEW if earlier is None else earlier
                if earlier is None:
                    fresh.append(run)
        ticket = self._publish_admitted(fresh, topics, sender)
        for run, topic, key in zip(runs, topics, keys, strict=True):
            receipt = _NEW if key is None else known[key]
            if receipt is _NEW:
                receipt = self.receipt_of(run, topic, ticket)
                if key is not None:
                    known[key] = replace(receipt, is_duplicate=True)
                    self._dedup.add(key, receipt)
            published.add(receipt)
        if published.ticket is not None and published.ticket == ticket:
            self._publishing.when_committed(ticket, published.note_commit)
        return fresh

    def _publish_admitted(self, runs: Sequence[Run], topics: list[Topic], sender: Session) -> Ticket | None:
        """Publish to topics whose use was decided with the whole list; return the commit to wait for."""
        registry, remembered = self._node.topics, sender.topics
        for place, topic in enumerate(topics):
            if topic.is_deleted:  # after the list was checked
                topics[place] = registry.get(topic.name) or registry.restore(topic.name)
        sender.topics = {topic.name: topic for topic in topics}
        try:
            return self._publishing.publish_all(runs, sender, raise_it).ticket
        finally:
            sender.topics = remembered

    def _check_all(self, runs: Sequence[Run], sender: Session) -> Steps[tuple[list[Topic], list[Key | None]]]:
        """The topic of each, and the key under which it is remembered."""
        topics: list[Topic] = []
        keys: list[Key | None] = []
        errors: dict[int, PenstockError] = {}
        for index, run in enumerate(runs):
            if index and index % PART_MESSAGES == 0:
                yield
            try:
                topics.append(self.check(run, sender))
                keys.append(self._dedup.key_of(run, sender.identity.user))
            except PenstockError as error:
                errors[index] = error
        if errors:
            raise Refused(errors)
        return topics, keys

    def check(self, run: Run, sender: Session) -> Topic:
        """Check what `publish_all` would refuse; return the topic."""
        topic = sender.topics.get(run.topic)
        if topic is None or topic.is_deleted:
            topic = self._publishing.admit(run.topic, sender)
        size, limit_bytes = run.stride - run.head, self._node.settings.max_payload_bytes
        if size > limit_bytes:
            raise TooLarge(f"the payload has {size} bytes and {limit_bytes} are allowed")
        if self._log.failure is not None and run.shape.qos:
            raise StorageUnavailable(str(self._log.failure))
        return topic

    def receipt_of(
        self, run: Run, topic: Topic, ticket: Ticket | None, *, is_forced: bool = False
    ) -> Receipt:
        """Return the receipt of a message that was just published."""
        log, audience = self._log, topic.audience
        is_stored = log.is_durable and log.failure is None and (is_forced or is_to_be_stored(run, topic))
        return Receipt(
            run.topic,
            run.sequence,
            run.offset,
            log.epoch,
            run.published_at,
            0 if audience is NOBODY else len(audience),
            is_stored,
            None if run.properties is None else run.properties.message_id,
            ticket if is_stored else None,
        )
