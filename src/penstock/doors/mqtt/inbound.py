"""The way in of publishes at QoS 1 and 2: rate limit, deduplication, acknowledgements after the commit."""

import sys
from collections.abc import Collection
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.core.broker import ChunkReceipt
from penstock.core.ports.log import Ticket
from penstock.core.sessions.session import Session
from penstock.doors.mqtt.reason_codes import ends_connection, in_words, reason_of
from penstock.errors import InvalidPayload, PenstockError, QuotaExceeded
from penstock.net.acks_after_commit import OrderedAcks
from penstock.net.read_pause import BACKPRESSURE
from penstock.runs import Run
from penstock.wire.mqtt.packets import PubAck, PubRec, Version
from penstock.wire.mqtt.reasons import ReasonCode

if TYPE_CHECKING:
    from penstock.doors.mqtt.connection import Connection

PUBACK = b"\x40\x02"
PUBACK_UNHEARD = b"\x40\x03"
PUBREC = b"\x50\x02"
UNHEARD = bytes((ReasonCode.NO_MATCHING_SUBSCRIBERS,))
_packet_id_of = attrgetter("packet_id")


class Acks:
    """Acknowledgements of one chunk of publishes: encoded, with the values that a rollback needs."""

    __slots__ = ("data", "ends", "kind", "packet_ids", "refused")

    def __init__(
        self,
        kind: type[PubAck] | type[PubRec],
        packet_ids: list[int],
        data: list[bytes],
        ends: int,
        refused: Collection[int] = (),
    ) -> None:
        self.kind = kind
        self.packet_ids = packet_ids
        self.data = data
        self.ends = ends
        """Acknowledgements that end their exchange: all but a successful PUBREC."""
        self.refused = refused
        """Positions of publishes that were refused before."""


class Inbound:
    """Publishes of one connection without an acknowledgement. Made when first needed."""

    __slots__ = ("_connection", "_session", "_unacknowledged", "_unended", "_window", "acks")

    def __init__(self, connection: "Connection", session: Session) -> None:
        self._connection = connection
        self._session = session
        self.acks = OrderedAcks(connection.door.broker.when_committed, self._write, self._roll_back)
        if connection.is_blocked:
            self.acks.block()
        self._unacknowledged = 0
        self._unended = 0  # of these, publishes whose acknowledgement ends the exchange
        # Unreleased publishes of an earlier connection do not count in its quota.
        self._window = connection.door.settings.receive_maximum + len(session.received or ())

    def take_level_one(self, runs: list[Run]) -> None:
        """Publish messages at QoS 1; each gets a PUBACK."""
        connection = self._connection
        allowed = self._room()
        taken = runs[:allowed]
        refused: dict[int, PenstockError] = {}
        is_limited = connection.bucket is not None
        for run in taken:
            if (is_limited or run.properties) and (error := self._objection(run)) is not None:
                refused[id(run)] = error
        admitted = [run for run in taken if id(run) not in refused] if refused else taken
        receipt = connection.door.broker.publish_all(
            admitted, self._session, lambda run, error: refused.update({id(run): error})
        )
        data = self._pubacks(taken, receipt)
        acks = Acks(PubAck, list(map(_packet_id_of, taken)), data, len(taken))
        if refused:
            acks.refused = [position for position, run in enumerate(taken) if id(run) in refused]
            for position in acks.refused:
                run = taken[position]
                acks.data[position] = self._refuse(run, PubAck, refused[id(run)])
        self._acknowledge(acks, receipt.ticket)
        if len(runs) > allowed:
            connection.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)

    def _pubacks(self, runs: list[Run], receipt: ChunkReceipt) -> list[bytes]:
        if not receipt.unmatched or self._connection.version is Version.V311:
            return [PUBACK + run.packet_id.to_bytes(2, "big") for run in runs]
        if receipt.unmatched == len(runs):
            return [PUBACK_UNHEARD + run.packet_id.to_bytes(2, "big") + UNHEARD for run in runs]
        return [
            PUBACK + run.packet_id.to_bytes(2, "big")
            if receipt.is_matched(run)
            else PUBACK_UNHEARD + run.packet_id.to_bytes(2, "big") + UNHEARD
            for run in runs
        ]

    def take_level_two(self, run: Run) -> None:
        """Publish a message at QoS 2, once however often it is sent; each time it gets a PUBREC."""
        connection, session = self._connection, self._session
        packet_id, received = run.packet_id, session.received
        if received is not None and packet_id in received:
            self._acknowledge(_pubrec(packet_id), received[packet_id])  # MQTT-4.3.3-10
            return
        if not self._room():
            connection.end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
            return
        try:
            if (connection.bucket or run.properties) and (error := self._objection(run)) is not None:
                raise error
            receipt = connection.door.broker.publish(run, session)
        except PenstockError as error:
            refusal = self._refuse(run, PubRec, error)
            self._acknowledge(Acks(PubRec, [packet_id], [refusal], ends=1, refused=(0,)), None)
            return
        connection.door.broker.begin_qos2(session, packet_id, receipt.ticket)
        self._acknowledge(_pubrec(packet_id), receipt.ticket)

    def _room(self) -> int:
        """Remaining quota of publishes at QoS 1 and 2 without acknowledgement."""
        if self._connection.version is not Version.V5:
            return sys.maxsize
        return max(self._window - self._unended - len(self._session.received or ()), 0)

    def _objection(self, run: Run) -> PenstockError | None:
        """Why a message is refused before core sees it."""
        connection = self._connection
        if connection.door.abilities.misses_format(run.properties, run.payload(0)):
            return InvalidPayload("the payload is not UTF-8")
        if connection.bucket is None:
            return None
        now = connection.door.clock.monotonic()
        if connection.version is Version.V311:  # it has no reason code for this: the client waits instead
            connection.charge(1)
        elif not connection.bucket.take(1, now):
            wait_s = connection.bucket.wait_s(now)
            return QuotaExceeded(f"publish rate exceeded, try again in {wait_s:.1f} s")
        return None

    def _refuse(self, run: Run, kind: type[PubAck] | type[PubRec], error: PenstockError) -> bytes:
        """The response to a publish that was not accepted; some errors end the connection instead."""
        connection = self._connection
        connection.on_refused(run, error)
        if ends_connection(error, connection.version):
            connection.end(reason_of(error), str(error))
        # MQTT 3.1.1 cannot refuse: the message is acknowledged, but not published.
        response = kind(run.packet_id, reason_of(error))
        return connection.encode(in_words(response, str(error)) if connection.explains else response)

    def _acknowledge(self, acks: Acks, ticket: Ticket | None) -> None:
        """Acknowledge after the commit, in the order of the publishes."""
        self._unacknowledged += len(acks.data)
        self._unended += acks.ends
        self.acks.add(ticket, acks)
        if self._session.subscriptions:  # it may get what it publishes
            self._connection.outbound.acknowledge_first()
        if self._connection.is_blocked and self._unacknowledged >= self._window:
            self._connection.read_pause.pause(BACKPRESSURE)  # 3.1.1 has no window of its own

    def _roll_back(self, acks: Acks, failure: Exception) -> Acks:
        """Refuse publishes after a failed commit; their packet identifiers are free again."""
        connection, refused = self._connection, set(acks.refused)
        if acks.kind is PubRec and acks.packet_ids[0] in (self._session.received or ()):
            return acks  # a repetition of a stored message: core forgets the identifiers of failed ones
        self._unended += len(acks.data) - acks.ends
        acks.ends = len(acks.data)
        for position, packet_id in enumerate(acks.packet_ids):
            if position not in refused:
                acks.data[position] = connection.encode(acks.kind(packet_id, ReasonCode.QUOTA_EXCEEDED))
        if len(refused) < len(acks.data) and connection.version is Version.V311:
            connection.end(ReasonCode.QUOTA_EXCEEDED, str(failure))  # it has no reason code for this
        return acks

    def _write(self, chunks: list[Acks]) -> None:
        data = chunks[0].data if len(chunks) == 1 else [ack for acks in chunks for ack in acks.data]
        self._unacknowledged -= len(data)
        for acks in chunks:
            self._unended -= acks.ends
        self._connection.outbound.control(b"".join(data), len(data))


def _pubrec(packet_id: int) -> Acks:
    """Acknowledge a publish at QoS 2; PUBREL and PUBCOMP follow."""
    return Acks(PubRec, [packet_id], [PUBREC + packet_id.to_bytes(2, "big")], ends=0)
