"""Messages that are answered with a receipt, and published once however often they are sent.

This is the path of requests: a message is refused before anything of it, or of the list it is in, is
published. Connections that publish in a stream take `publishing.py` itself.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.audience import NOBODY
from penstock.core.node import Node
from penstock.core.ports import Ticket
from penstock.core.publishing import Publishing, raise_it
from penstock.core.receipts import Key, Receipt
from penstock.core.registry import Topic
from penstock.core.sessions import Session
from penstock.errors import PenstockError, StorageUnavailable, TooLarge
from penstock.model import Run


class Refused(Exception):
    """Messages of a list that were not taken, by their index; so none was."""

    def __init__(self, errors: Mapping[int, PenstockError]) -> None:
        super().__init__(f"{len(errors)} messages were refused")
        self.errors = errors


class Accepting:
    """Publishes what requests bring, each run one message."""

    def __init__(self, node: Node, publishing: Publishing) -> None:
        self._publishing = publishing
        self._log = node.log
        self._receipts = node.receipts
        self._node = node

    def publish_once(
        self, run: Run, sender: Session, *, is_forced: bool = False, known_as: str | None = None
    ) -> Receipt:
        """Publish a message, unless its sender's user published one with its id to its topic lately.

        Then its receipt is that of the first, whose commit may be under way. What is forced goes into a
        durable log whether the settings name its topic or not.

        Args:
            known_as: its id in the one spelling that counts, if it may be written in others.

        Raises:
            PenstockError: it may not be published, is too large, or cannot be stored now.
        """
        topic = self.check(run, sender)
        key = self._receipts.key_of(run, sender.identity.user, known_as)
        if key is not None:
            earlier = self._receipts.find(key)
            if earlier is not None:
                return earlier
        ticket = self._publishing.publish_all((run,), sender, raise_it, is_forced=is_forced)
        receipt = self.receipt_of(run, topic, ticket, is_forced=is_forced)
        if key is not None:
            self._receipts.add(key, receipt)
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
                known[key] = self._receipts.find(key)
            elif key is not None:
                continue  # the same message is here twice
            if key is None or known[key] is None:
                fresh.append(run)
        ticket = self._publishing.publish_all(fresh, sender, raise_it)
        receipts: list[Receipt] = []
        for run, topic, key in zip(runs, topics, keys, strict=True):
            earlier = None if key is None else known[key]
            if earlier is None:
                receipt = self.receipt_of(run, topic, ticket)
                if key is not None:
                    known[key] = replace(receipt, is_duplicate=True)
                    self._receipts.add(key, receipt)
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
                keys.append(self._receipts.key_of(run, sender.identity.user))
            except PenstockError as error:
                errors[index] = error
        if errors:
            raise Refused(errors)
        return topics, keys

    def check(self, run: Run, sender: Session) -> Topic:
        """Refuse a message that `publish_all` would not take, or should not; answer its topic."""
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
        """Where a message stands that has just been published."""
        log, audience = self._log, topic.audience
        is_wanted = is_forced or _is_to_be_stored(run, topic)
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


def _is_to_be_stored(run: Run, topic: Topic) -> bool:
    """Something of a message that was published to a topic goes into the log, or among the values."""
    if topic.traits.is_kept or (run.shape.qos and topic.audience.wants_storing):
        return True
    value = topic.retained  # there may have been no room for it
    return run.shape.retain and (run.stride == run.head or (value is not None and value.offset >= run.offset))
