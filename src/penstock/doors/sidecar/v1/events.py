"""Events of a stream, encoded: messages, many in one event, and everything else.

Messages have the same bytes for all subscribers. A server has three encodings of them, for live messages,
replayed messages and retained values, each one object: core compares them by identity and encodes messages
once for all subscribers of the same.
"""

from collections.abc import Sequence

from penstock.common.statement import Statement
from penstock.core.diagnostics.slow_consumers import LossReport
from penstock.core.replay.message_ids import MessageIds
from penstock.doors.sidecar.nexusd.events import UnnumberedEncoding
from penstock.errors import PenstockError
from penstock.runs import Run
from penstock.wire.grpc import encode_message
from penstock.wire.sidecar.deliveries import encode_deliveries
from penstock.wire.sidecar.messages import penstock as wire


class DeliveryEncoding(UnnumberedEncoding):
    """Deliveries, one after another."""

    __slots__ = ("_is_replay", "_marks")

    def __init__(
        self, marks: MessageIds, retained: "DeliveryEncoding | None" = None, *, is_replay: bool = False
    ) -> None:
        super().__init__(retained)
        self._marks = marks
        self._is_replay = is_replay

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """All messages, in as few deliveries as clients take."""
        marks = self._marks
        return encode_deliveries(
            runs, marks.cursor, marks.epoch_of, is_replay=self._is_replay, is_retained=self.is_retained
        )


class DeliveryEncodings:
    """The forms of one server."""

    def __init__(self, marks: MessageIds) -> None:
        retained = DeliveryEncoding(marks)
        self.live = DeliveryEncoding(marks, retained)
        self.past = DeliveryEncoding(marks, retained, is_replay=True)


def frame_of(event: wire.SubscribeEvent) -> bytes:
    """An event as it is sent."""
    return encode_message(event.SerializeToString())


def opened(session_id: str, node_id: str, cursor: str) -> bytes:
    """The stream has begun."""
    said = wire.Opened(session_id=session_id, node_id=node_id, cursor=cursor)
    return frame_of(wire.SubscribeEvent(opened=said))


def refused(request_id: int, error: PenstockError) -> bytes:
    """Refusal of a request."""
    said = wire.Refused(request_id=request_id, code=error.code, text=str(error))
    return frame_of(wire.SubscribeEvent(refused=said))


def statement(request_id: int, complete: Statement) -> bytes:
    """All of the past has been sent."""
    said = wire.Statement(
        request_id=request_id,
        after="" if complete.after is None else complete.after.encode(),
        next=complete.next.encode(),
        served=complete.served,
        missing=[
            wire.Missing(topic=each.topic, first=each.first, last=each.last, reason=each.reason)
            for each in complete.missing
        ],
        gaps=[wire.Gap(first=each.first, last=each.last, reason=each.reason) for each in complete.gaps],
    )
    return frame_of(wire.SubscribeEvent(statement=said))


def heartbeat(wall_us: int, cursor: str) -> bytes:
    """All is well."""
    said = wire.Heartbeat(timestamp_ms=wall_us // 1000, cursor=cursor)
    return frame_of(wire.SubscribeEvent(heartbeat=said))


def warning(report: LossReport, reason: str) -> bytes:
    """Something was not sent."""
    said = wire.Warning(
        messages_dropped=report.dropped,
        messages_expired=report.expired,
        queue_depth=report.waiting,
        queue_limit=report.limit,
        reason=reason,
        oldest_message_age_ms=round(report.oldest_age_s * 1000),
    )
    return frame_of(wire.SubscribeEvent(warning=said))
