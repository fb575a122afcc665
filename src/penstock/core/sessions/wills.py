"""Publishing of due wills, with retries.

A will was accepted long before, so no client repeats it if it cannot be stored. It is kept here and in the
state store until the log accepts it.
"""

from functools import partial
from itertools import islice

from penstock.core.access.identity import Identity
from penstock.core.durability.records import WillRecord
from penstock.core.node import Node
from penstock.core.publishing.publish import Publisher
from penstock.core.sessions.session import Session
from penstock.errors import NotAuthorized, PenstockError, StorageUnavailable
from penstock.model import Reason, Will
from penstock.runs import Run, bare_shape

WILLS_A_STEP = 50
"""Wills that are published in one step."""


class Wills:
    """Publishes wills, and remembers those that could not be stored."""

    def __init__(self, node: Node, publishing: Publisher) -> None:
        self._node = node
        self._publishing = publishing
        self._waiting: dict[int, tuple[Session, Will]] = {}  # by the number of their records
        self._last_number = 0

    def publish(self, session: Session, will: Will) -> None:
        """Publish the will of a session, which may be over."""
        if not self._publish(session, will):
            self._keep(session, will)

    def publish_kept(self) -> bool:
        """Publish some wills that could not be stored before, if they can be now. True if there are more."""
        if self._node.log.failure is not None or self._publishing.is_stopping:
            return False
        for number, (session, will) in list(islice(self._waiting.items(), WILLS_A_STEP)):
            session.topics.clear()  # whether it may is decided anew
            if not self._publish(session, will):
                return False
            del self._waiting[number]
            self._node.recorder.forget_will(number)  # in the commit that takes the message
        return bool(self._waiting)

    def restore(self, number: int, record: WillRecord) -> None:
        """At start: a will that the last server could not store."""
        identity = Identity(record.user, record.client_id, record.is_certified)
        self._waiting[number] = Session(identity, record.door), record.will
        self._last_number = max(self._last_number, number)

    def _publish(self, session: Session, will: Will) -> bool:
        """Publish a will, or record why not; False if it cannot be stored now."""
        shape = bare_shape(session.door, will.qos, will.retain)
        run = Run(will.topic, will.payload, 0, len(will.payload), 1, shape, will.properties, will.ttl)
        try:
            receipt = self._publishing.publish(run, session)
        except StorageUnavailable:
            return False
        except PenstockError as error:  # rights or room may have gone since the will was accepted
            is_forbidden = isinstance(error, NotAuthorized)
            reason = Reason.NOT_AUTHORIZED if is_forbidden else Reason.NEVER_STORED
            self._node.ledger.add(run, session.client_id, reason)
            return True
        if will.qos:
            self._publishing.when_committed(receipt.ticket, partial(self._settle, session, will))
        return True

    def _settle(self, session: Session, will: Will, failure: Exception | None) -> None:
        if failure is not None:
            self._keep(session, will)

    def _keep(self, session: Session, will: Will) -> None:
        self._last_number += 1
        self._waiting[self._last_number] = session, will
        identity = session.identity
        record = WillRecord(session.client_id, identity.user, identity.is_certified, session.door, will)
        self._node.recorder.save_will(self._last_number, record)
