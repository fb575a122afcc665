"""Publishes that want an answer: taken in at QoS 1 and 2, handed to core, acknowledged when they are safe."""

import sys
from typing import TYPE_CHECKING

from penstock.core.audience import NOBODY
from penstock.core.ports import Ticket
from penstock.core.sessions import Session
from penstock.doors.mqtt.answers import ends_connection, in_words, reason_of
from penstock.doors.mqtt.gate import Why
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


class Intake:
    """What one connection has sent at QoS 1 and 2 and has no answer to yet. Made when it is first needed."""

    __slots__ = ("_acks", "_connection", "_session", "_unanswered", "_window")

    def __init__(self, connection: "Connection", session: Session) -> None:
        self._connection = connection
        self._session = session
        self._acks: list[bytes] = []
        self._unanswered = 0  # of `_acks`, those that end their exchange
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
            self._acknowledge([PUBREC + packet_id.to_bytes(2, "big")], None)  # MQTT-4.3.3-10
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
        if received is None:
            received = session.received = set()
        received.add(packet_id)
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
        """Answer when what was published may be relied on."""
        if self._connection.is_closing:
            return
        if not self._acks:
            self._connection.door.broker.when_settled(ticket, self.settle)
        self._acks += acks
        if self._connection.is_held and len(self._acks) >= self._window:
            self._connection.gate.shut(Why.HELD)  # 3.1.1 has no window of its own

    def settle(self, failure: BaseException | None = None) -> None:
        """Send the answers, unless the client is held back by having none."""
        connection = self._connection
        if failure is not None:  # what could not be stored is not acknowledged
            connection.end(ReasonCode.QUOTA_EXCEEDED, str(failure))
        if self._acks and not connection.is_held and not connection.is_closing:
            acks, self._acks = self._acks, []
            self._unanswered = 0
            connection.control(b"".join(acks), len(acks))
