"""Idempotent publish for requests: a receipt per message, duplicates by message id published once.

A list is checked as a whole before its first message is published. Connections that stream publishes use
`publish.py` directly.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.node import Node
from penstock.core.ports.log import Ticket
from penstock.core.publishing.deduplication import Key
from penstock.core.publishing.outcome import Receipt
from penstock.core.publishing.publish import Publisher, is_to_be_stored, raise_it
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.audience import NOBODY
from penstock.core.topics.topic import Topic
from penstock.errors import PenstockError, StorageUnavailable, TooLarge
from penstock.model import Run


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

    def publish_each(self, runs: Sequence[Run], sender: Session) -> list[Receipt]:
        """The same for messages in order: all of them or, if one may not be published, none.

        Raises:
            Refused: why each that may not be published may not.
        """
        topics, keys = self._check_all(runs, sender)
        known: dict[Key, Receipt | None] = {}
        fresh: list[Run] = []
        for run, key in zip(runs, keys, strict=True):
            if key is not None and key not in known:
                known[key] = self._dedup.find(key)
            elif key is not None:
                continue  # the same message is here twice
            if key is None or known[key] is None:
                fresh.append(run)
        ticket = self._publishing.publish_all(fresh, sender, raise_it).ticket
        receipts: list[Receipt] = []
        for run, topic, key in zip(runs, topics, keys, strict=True):
            earlier = None if key is None else known[key]
            if earlier is None:
                receipt = self.receipt_of(run, topic, ticket)
                if key is not None:
                    known[key] = replace(receipt, is_duplicate=True)
                    self._dedup.add(key, receipt)
                receipts.append(receipt)
            else:
                receipts.append(earlier)
        return receipts

    def _check_all(self, runs: Sequence[Run], sender: Session) -> tuple[list[Topic], list[Key | None]]:
        """The topic of each, and the key under which it is remembered."""
        topics: list[Topic] = []
        keys: list[Key | None] = []
        errors: dict[int, PenstockError] = {}
        for index, run in enumerate(runs):
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
        is_wanted = is_forced or is_to_be_stored(run, topic)
        is_stored = log.is_durable and log.failure is None and is_wanted
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
