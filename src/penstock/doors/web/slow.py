"""GET /api/v1/slow: who cannot keep up, and who could not until a while ago."""

from fastapi import APIRouter, Response
from msgspec import Struct

from penstock.core.slow import SlowClient
from penstock.doors.web.answers import describe, json_answer
from penstock.doors.web.context import Web
from penstock.doors.web.paging import make_rows
from penstock.doors.web.parameters import admin_of, router_of
from penstock.doors.web.shapes import Time
from penstock.doors.web.times import time_text
from penstock.errors import NotAuthorized
from penstock.model import Door, Policy


class SlowShape(Struct, kw_only=True):
    """One who is slow, or was."""

    client_id: str
    door: Door
    is_slow: bool
    """It is slow now."""
    connected: bool
    recovered: bool
    """It has caught up; one that has gone meanwhile has not."""
    waiting_messages: int
    waiting_bytes: int
    oldest_age_s: float
    """How long the oldest message waits for it."""
    dropped: int
    """Messages it lost since then because it was slow."""
    policy: Policy
    """What happens when its outbox is full."""
    since: Time
    """When it first was slow."""
    last_slow_at: Time


class SlowList(Struct):
    """Everyone who is slow or was of late, the latest last."""

    slow: list[SlowShape]
    count: int
    """How many are slow now."""
    total: int
    """How often somebody became slow since the server started."""
    left_out: int
    """How often somebody became slow whom there was no room to remember."""


def routes(web: Web) -> APIRouter:
    """What this module answers."""
    router = router_of("clients", "/api/v1", admin_of(web))
    known = web.broker.slow

    @router.get(
        "/slow",
        summary="Subscribers that cannot keep up, or could not until a while ago",
        responses=describe(SlowList, NotAuthorized),
    )
    async def slow() -> Response:
        rows = await make_rows(known.clients(), _row)
        return json_answer(SlowList(rows, known.count, known.total, known.left_out))

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
