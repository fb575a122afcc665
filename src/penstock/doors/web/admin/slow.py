"""GET /api/v1/slow: slow consumers, present and recent."""

from fastapi import APIRouter, Response
from msgspec import Struct

from penstock.core.diagnostics.slow_consumers import SlowClient
from penstock.doors.web.context import Web
from penstock.doors.web.support.paging import make_rows
from penstock.doors.web.support.requests import admin_of, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import Time, time_text
from penstock.errors import NotAuthorized
from penstock.model import Door, Policy


class SlowShape(Struct, kw_only=True):
    """A slow consumer, present or recent."""

    client_id: str
    door: Door
    is_slow: bool
    """It is slow now."""
    connected: bool
    recovered: bool
    """It has caught up; one that has disconnected has not."""
    waiting_messages: int
    waiting_bytes: int
    oldest_age_s: float
    """Age of its oldest queued message."""
    dropped: int
    """Messages it lost since then because it was slow."""
    policy: Policy
    """Policy for its full outbox."""
    since: Time
    """When it first became slow."""
    last_slow_at: Time


class SlowList(Struct):
    """Slow consumers, present and recent, the latest last."""

    slow: list[SlowShape]
    count: int
    """Number of slow consumers now."""
    total: int
    """Times that a client became slow since the server started."""
    left_out: int
    """Times that a client became slow and no record was kept, for lack of space."""


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("clients", "/api/v1", admin_of(web))
    known = web.broker.slow_consumers

    @router.get(
        "/slow",
        summary="Subscribers that cannot keep up, or could not until a while ago",
        responses=describe(SlowList, NotAuthorized),
    )
    async def slow() -> Response:
        rows = await make_rows(known.clients(), _row)
        return json_response(SlowList(rows, known.count, known.total, known.left_out))

    return router


def _row(client: SlowClient) -> SlowShape:
    return SlowShape(
        client_id=client.client_id,
        door=client.door,
        is_slow=client.is_slow,
        connected=client.is_connected,
        recovered=client.recovered,
        waiting_messages=client.waiting_messages,
        waiting_bytes=client.waiting_bytes,
        oldest_age_s=round(client.oldest_age_s, 3),
        dropped=client.dropped,
        policy=client.policy,
        since=time_text(client.first_slow_at),
        last_slow_at=time_text(client.last_slow_at),
    )
