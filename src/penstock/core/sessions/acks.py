"""Acknowledgements of both directions: deliveries to a session, and its own publishes at QoS 2."""

from collections.abc import Iterable, Sequence

from penstock.core.delivery.inflight import AWAITS_ACK, FORGOTTEN, RECEIVED, step
from penstock.core.node import Node
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.core.subscriptions.shared import SharedGroup
from penstock.model import Reason
from penstock.runs import Run


class Acks:
    """Acknowledgement service of all sessions."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def awaited_step(self, session: Session, number: int) -> int | None:
        """Return the step that a delivery waits for, one of `AWAITS_*`; None for an unknown number."""
        return None if session.inflight is None else session.inflight.awaited_step(number)

    def acknowledge(self, session: Session, numbers: Sequence[int], awaited: int) -> int:
        """Complete deliveries that wait for this step, in order, up to one that waits for another.

        Unknown numbers are passed over. Returns how many numbers were taken.
        """
        inflight = session.inflight
        if inflight is None:
            return len(numbers)
        if session.groups and len(numbers) > 1 and session.is_flowing and _has_queued(session.groups):
            # Each acknowledgement makes room for a message of a group, and may free the number that it gets.
            taken = 0
            while taken < len(numbers) and self.acknowledge(session, (numbers[taken],), awaited):
                taken += 1
            return taken
        before = len(inflight.entries)
        taken = inflight.complete_all(numbers, awaited)
        if len(inflight.entries) < before:
            node = self._node
            node.recorder.touch(session)
            if not session.is_flowing:
                node.drainer.wake(session)
            elif session.groups:
                node.drainer.serve_groups(session)
        return taken

    def confirm_receipts(self, session: Session, numbers: Sequence[int]) -> list[bool]:
        """Release the messages of QoS 2 deliveries, in order, and keep their numbers.

        Returns whether each number is known, up to one whose delivery is not at QoS 2. A receipt may be
        confirmed again.
        """
        inflight = session.inflight
        if inflight is None:
            return [False] * len(numbers)
        known: list[bool] = []
        for number in numbers:
            if inflight.awaited_step(number) == AWAITS_ACK:
                break
            known.append(inflight.confirm(number))
        if True in known:
            self._node.recorder.touch(session, is_urgent=True)
        return known

    def refuse(self, session: Session, number: int) -> bool:
        """Complete a delivery that the subscriber refused, and record the loss. False if it is unknown."""
        awaited = self.awaited_step(session, number)
        if awaited is None or session.inflight is None:
            return False
        pending = session.inflight.entries[number]
        if pending is not None:
            self._node.ledger.add(pending.run, session.client_id, Reason.REFUSED)
        return bool(self.acknowledge(session, (number,), awaited))

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

    def end_qos2(self, session: Session, numbers: Sequence[int]) -> list[bool]:
        """Release QoS 2 numbers, in order: they are not repeated. Returns whether each is known."""
        received = session.received
        if received is None:
            return [False] * len(numbers)
        known: list[bool] = []
        for number in numbers:
            is_known = number in received
            known.append(is_known)
            if is_known:
                del received[number]
                self._node.recorder.note_step(session, step(number, FORGOTTEN))
        return known


def _has_queued(groups: Iterable[SharedGroup[Session]]) -> bool:
    """Messages of one of these groups wait for a member with room."""
    return any(group.offline_queue for group in groups)
