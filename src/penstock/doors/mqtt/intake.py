"""Publishes that want an answer: taken in at QoS 1 and 2, handed to core, acknowledged when they are safe."""

import sys
from collections import deque
from typing import TYPE_CHECKING

from penstock.core.audience import NOBODY
from penstock.core.ports import Ticket
from penstock.core.sessions import Session
from penstock.doors.gate import Why
from penstock.doors.mqtt.answers import ends_connection, in_words, reason_of
from penstock.errors import InvalidPayload, PenstockError, QuotaExceeded
from penstock.model import Run
from penstock.wire.mqtt.packets import PubAck, PubRec, Version
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from penstock.doors.mqtt.connection import Connection

PUBACK = b"\x40\x02"
PUBACK_UNHEARD = b"\x40\x03"
PUBREC = b"\x50\x02"
UNHEARD = bytes((ReasonCode.NO_MATCHING_SUBSCRIBERS,))
NOT_STORED = bytes((ReasonCode.QUOTA_EXCEEDED,))
SHORT_ACK = 4
"""Bytes of an acknowledgement that says nothing but yes."""
SETTLED: Ticket = 0
"""Stands for what waits for no commit."""


class Intake:
    """What one connection has sent at QoS 1 and 2 and has no answer to yet. Made when it is first needed."""

    __slots__ = ("_acks", "_connection", "_ready", "_session", "_unanswered", "_window")

    def __init__(self, connection: "Connection", session: Session) -> None:
        self._connection = connection
        self._session = session
        self._acks: deque[tuple[Ticket, list[bytes]]] = deque()  # each waits for its commit
        self._ready: list[bytes] = []  # may leave, unless the client is held back
        self._unanswered = 0  # of both, those that end their exchange
        # What the client has not released yet was sent on an earlier connection and is no part of its quota.
        self._window = connection.door.settings.receive_maximum + len(session.received or ())

    def take_level_one(self, runs: list[Run]) -> None:
        """Publish messages at QoS 1; each gets a PUBACK."""
        connection = self._connection
        allowed = self._room()
        taken = runs[:allowed]
        refused: dict[int, PenstockError] = {}
        for run in taken:
            if (connection.bucket or run.properties) and (error := self._objection(run)) is not None:
                refused[id(run)] = error
        admitted = [run for run in taken if id(run) not in refused] if refused else taken
        ticket = connection.door.broker.publish_all(
            admitted, self._session, lambda run, error: refused.update({id(run): error})
        )
        acks = self._pubacks(taken)
        for position, run in enumerate(taken) if refused else ():
            if id(run) in refused:
                acks[position] = self._refuse(run, PubAck, refused[id(run)])
        self._unanswered += len(acks)
        self._acknowledge(acks, ticket)
        if len(runs) > allowed:
            connection.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)

    def _pubacks(self, runs: list[Run]) -> list[bytes]:
        if self._connection.version is Version.V311:
            return [PUBACK + run.packet_id.to_bytes(2, "big") for run in runs]
        find_topic = self._session.topics.get
        return [
            PUBACK_UNHEARD + run.packet_id.to_bytes(2, "big") + UNHEARD
            if (topic := find_topic(run.topic)) is not None and topic.audience is NOBODY
            else PUBACK + run.packet_id.to_bytes(2, "big")
            for run in runs
        ]

    def take_level_two(self, run: Run) -> None:
        """Publish a message at QoS 2, once however often it comes; each time it gets a PUBREC."""
        connection, session = self._connection, self._session
        packet_id, received = run.packet_id, session.received
        if received is not None and packet_id in received:
            self._acknowledge([PUBREC + packet_id.to_bytes(2, "big")], received[packet_id])  # MQTT-4.3.3-10
            return
        if not self._room():
            connection.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
            return
        try:
            if (connection.bucket or run.properties) and (error := self._objection(run)) is not None:
                raise error
            receipt = connection.door.broker.publish(run, session)
        except PenstockError as error:
            self._unanswered += 1
            self._acknowledge([self._refuse(run, PubRec, error)], None)
            return
        connection.door.broker.take_in(session, packet_id, receipt.ticket)
        self._acknowledge([PUBREC + packet_id.to_bytes(2, "big")], receipt.ticket)

    def _room(self) -> int:
        """How many more publishes at QoS 1 and 2 the client may send before it has our answers."""
        if self._connection.version is not Version.V5:
            return sys.maxsize
        return max(self._window - self._unanswered - len(self._session.received or ()), 0)

    def _objection(self, run: Run) -> PenstockError | None:
        """Why a message is refused before core sees it."""
        connection = self._connection
        if connection.door.abilities.misses_format(run.properties, run.payload(0)):
            return InvalidPayload("the payload is not UTF-8")
        if connection.bucket is None:
            return None
        now = connection.door.clock.monotonic()
        if connection.version is Version.V311:  # it has no word for this, so it waits instead
            connection.charge(1)
        elif not connection.bucket.take(1, now):
            wait_s = connection.bucket.wait_s(now)
            return QuotaExceeded(f"publish rate exceeded, try again in {wait_s:.1f} s")
        return None

    def _refuse(self, run: Run, kind: type[PubAck] | type[PubRec], error: PenstockError) -> bytes:
        """The answer to a publish that was not accepted; some errors end the connection instead."""
        connection = self._connection
        connection.on_refused(run, error)
        if ends_connection(error, connection.version):
            connection.end(reason_of(error), str(error))
        # MQTT 3.1.1 has no word for a refusal: the message is acknowledged and not published.
        answer = kind(run.packet_id, reason_of(error))
        return connection.encode(in_words(answer, str(error)) if connection.explains else answer)

    def _acknowledge(self, acks: list[bytes], ticket: Ticket | None) -> None:
        """Answer when what was published may be relied on; answers keep the order of the publishes."""
        if self._connection.is_closing:
            return
        last = self._acks[-1][0] if self._acks else SETTLED
        ticket = max(ticket or SETTLED, last)
        if self._acks and ticket == last:
            self._acks[-1][1].extend(acks)
        else:
            self._acks.append((ticket, acks))
            self._connection.door.broker.when_settled(ticket or None, self._on_settled)
        if self._connection.is_held and self._waiting >= self._window:
            self._connection.gate.shut(Why.HELD)  # 3.1.1 has no window of its own

    @property
    def _waiting(self) -> int:
        return len(self._ready) + sum(len(acks) for _, acks in self._acks)

    def _on_settled(self, failure: Exception | None) -> None:
        """The oldest answers may leave, or have to be taken back."""
        _, acks = self._acks.popleft()
        if failure is not None:
            kept, acks = acks, [self._take_back(ack) for ack in acks]
            if acks != kept and self._connection.version is Version.V311:  # it has no word for this
                self._connection.end(ReasonCode.QUOTA_EXCEEDED, str(failure))
        self._ready += acks
        self.settle()

    def _take_back(self, ack: bytes) -> bytes:
        """What could not be stored was not accepted: the answer says so, and its number is free."""
        if len(ack) > SHORT_ACK and ack[SHORT_ACK:] != UNHEARD:
            return ack  # it was refused before
        if ack[0] == PUBREC[0]:
            if int.from_bytes(ack[2:4], "big") in (self._session.received or ()):
                return ack  # it came again, and was stored before: core forgets the numbers of what was not
            self._unanswered += 1
        return bytes((ack[0], 3)) + ack[2:4] + NOT_STORED

    def settle(self) -> None:
        """Send the answers that may leave, unless the client is held back by having none."""
        connection = self._connection
        if self._ready and not connection.is_held and not connection.is_closing:
            acks, self._ready = self._ready, []
            self._unanswered = sum(_ends(ack) for _, waiting in self._acks for ack in waiting)
            connection.control(b"".join(acks), len(acks))


def _ends(ack: bytes) -> bool:
    """After this answer the exchange is over; only a PUBREC that says yes has more to come."""
    return ack[0] != PUBREC[0] or len(ack) > SHORT_ACK
