"""Events of a stream other than messages, encoded."""

from penstock.common.statement import Statement
from penstock.core.diagnostics.slow_consumers import LossReport
from penstock.errors import PenstockError
from penstock.wire.grpc import encode_message
from penstock.wire.sidecar.messages import penstock as wire


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


def statement(request_id: int, told: Statement) -> bytes:
    """All of the past has been sent."""
    said = wire.Statement(
        request_id=request_id,
        after="" if told.after is None else told.after.encode(),
        next=told.next.encode(),
        served=told.served,
        missing=[
            wire.Missing(topic=each.topic, first=each.first, last=each.last, reason=each.reason)
            for each in told.missing
        ],
        gaps=[wire.Gap(first=each.first, last=each.last, reason=each.reason) for each in told.gaps],
    )
    return frame_of(wire.SubscribeEvent(statement=said))


def heartbeat(wall_us: int, cursor: str) -> bytes:
    """All is well."""
    said = wire.Heartbeat(timestamp_ms=wall_us // 1000, cursor=cursor)
    return frame_of(wire.SubscribeEvent(heartbeat=said))


def warning(strain: LossReport, reason: str) -> bytes:
    """Something was not sent."""
    said = wire.Warning(
        messages_dropped=strain.dropped,
        messages_expired=strain.expired,
        queue_depth=strain.waiting,
        queue_limit=strain.limit,
        reason=reason,
        oldest_message_age_ms=round(strain.oldest_age_s * 1000),
    )
    return frame_of(wire.SubscribeEvent(warning=said))
