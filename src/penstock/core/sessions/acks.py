"""Acknowledgements of both directions: deliveries to a session, and its own publishes at QoS 2."""

from penstock.core.delivery.inflight import FORGOTTEN, RECEIVED, step
from penstock.core.node import Node
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.model import Reason, Run

AWAITS_ACK = 1
"""A delivery at QoS 1, or 2 before its receipt, is named by its level."""
AWAITS_RECEIPT = 2
AWAITS_COMPLETION = 3


class Acks:
    """Acknowledgement service of all sessions."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def awaited_step(self, session: Session, number: int) -> int | None:
        """Return the step that a delivery waits for, one of `AWAITS_*`; None for an unknown number."""
        inflight = session.inflight
        if inflight is None or number not in inflight.entries:
            return None
        pending = inflight.entries[number]
        return AWAITS_COMPLETION if pending is None else pending.level

    def acknowledge(self, session: Session, number: int) -> bool:
        """Complete a delivery. Returns False if its number is unknown."""
        inflight = session.inflight
        if inflight is None or not inflight.complete(number):
            return False
        self._node.recorder.touch(session)
        if not session.is_flowing:
            self._node.drainer.wake(session)
        elif session.groups:
            self._node.drainer.serve_groups(session)
        return True

    def confirm_receipt(self, session: Session, number: int) -> bool:
        """Release the message of a QoS 2 delivery and keep its number. Returns False if it is unknown."""
        is_known = session.inflight is not None and session.inflight.confirm(number)
        if is_known:
            self._node.recorder.touch(session, is_urgent=True)
        return is_known

    def refuse(self, session: Session, number: int) -> bool:
        """Complete a delivery that the subscriber refused, and record the loss. False if it is unknown."""
        pending = session.inflight.entries.get(number) if session.inflight else None
        if pending is not None:
            self._node.ledger.add(pending.run, session.client_id, Reason.REFUSED)
        return self.acknowledge(session, number)

    def give_up(self, session: Session, run: Run, reason: Reason) -> None:
        """Record a delivery that is not sent again."""
        self._node.ledger.add(run, session.client_id, reason)
        self._node.recorder.touch(session)

    def begin_qos2(self, session: Session, number: int, ticket: Ticket | None) -> None:
        """Remember the number of a published QoS 2 message until its sender releases it."""
        if session.received is None:
            session.received = {}
        session.received[number] = ticket
        self._node.recorder.note_step(session, step(number, RECEIVED))

    def end_qos2(self, session: Session, number: int) -> bool:
        """Release a QoS 2 number: its sender does not repeat it. Returns False if it is unknown."""
        if session.received is None or number not in session.received:
            return False
        del session.received[number]
        self._node.recorder.note_step(session, step(number, FORGOTTEN))
        return True
