"""GET /api/v1/history: rates of the last hour."""

from fastapi import APIRouter, Response
from msgspec import Struct

from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import admin_of, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import Time, time_text
from penstock.errors import NotAuthorized
from penstock.telemetry.history import DOORS, INTERVAL_S, POINTS

Points = list[float | None]


class SeriesShape(Struct):
    """Points of each series, the oldest first; null where the server was not running."""

    published: dict[str, Points]
    """Messages a second, by door."""
    delivered: dict[str, Points]
    """Messages a second, once per subscriber, by door."""
    dropped: Points
    """Messages a second that subscribers lost involuntarily."""
    connections: Points
    bytes_received: Points
    """A second, from clients."""
    bytes_sent: Points
    """A second, to clients."""
    loop_lag_ms: Points
    """Lag of the event loop, 99th percentile."""
    log_bytes: Points
    """Size of the log on disk; null without a data directory."""


class HistoryShape(Struct):
    """Rates of the last hour."""

    interval_s: float
    """Time between two points."""
    now: Time
    """Time of the last point."""
    points: int
    """Length of each series."""
    series: SeriesShape


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("health", "/api/v1", admin_of(web))

    @router.get(
        "/history",
        summary="Rates of the last hour, a point every ten seconds",
        description="Kept in memory since the server started. A point is the mean rate since the last one; "
        "connections, lag and the size of the log are as they were at that moment.",
        responses=describe(HistoryShape, NotAuthorized),
    )
    async def history() -> Response:
        known = web.figures.history

        def by_door(name: str) -> dict[str, Points]:
            return {str(door): known.series(name, door) for door in DOORS}

        series = SeriesShape(
            published=by_door("published"),
            delivered=by_door("delivered"),
            dropped=known.series("dropped"),
            connections=known.series("connections"),
            bytes_received=known.series("bytes_received"),
            bytes_sent=known.series("bytes_sent"),
            loop_lag_ms=known.series("loop_lag_ms"),
            log_bytes=known.series("log_bytes"),
        )
        return json_response(HistoryShape(INTERVAL_S, time_text(known.at_us), POINTS, series))

    return router
