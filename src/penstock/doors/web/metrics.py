"""GET /metrics and /metrics/prometheus: the server's figures, in the form that the caller wants."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from penstock.doors.web.answers import describe
from penstock.doors.web.context import Web
from penstock.doors.web.media import preferred
from penstock.doors.web.parameters import admin_of, router_of
from penstock.errors import NotAcceptable, NotAuthorized
from penstock.telemetry.memory_form import Metrics, render
from penstock.telemetry.prometheus import OPENMETRICS_TYPE, TEXT_TYPE, render_openmetrics, render_text

JSON = "application/json"
TEXT = "text/plain"
OPENMETRICS = "application/openmetrics-text"

Accept = Annotated[str | None, Header(include_in_schema=False)]


def routes(web: Web) -> APIRouter:
    """What this module answers."""
    router = router_of("health", "", admin_of(web))
    answered = describe(Metrics, NotAuthorized, NotAcceptable)
    answered[200]["content"] |= {
        TEXT: {"schema": {"type": "string"}},
        OPENMETRICS: {"schema": {"type": "string"}},
    }

    @router.get("/metrics", summary="The server's figures", responses=answered)
    async def metrics(accept: Accept = None) -> Response:
        """JSON, unless `Accept` asks for Prometheus' text format or for OpenMetrics."""
        return await _answer(web, preferred(accept, (JSON, TEXT, OPENMETRICS)))

    @router.get(
        "/metrics/prometheus",
        summary="The server's figures, for Prometheus",
        responses=describe(str, NotAuthorized, media=TEXT),
    )
    async def prometheus(accept: Accept = None) -> Response:
        """Prometheus' text format, or OpenMetrics if `Accept` asks for it."""
        return await _answer(web, preferred(accept, (TEXT, OPENMETRICS)) or TEXT)

    return router


async def _answer(web: Web, kind: str | None) -> Response:
    if kind == JSON:
        return Response(await render(web.figures), media_type=JSON)
    if kind == OPENMETRICS:
        return Response(await render_openmetrics(web.figures), headers={"Content-Type": OPENMETRICS_TYPE})
    if kind == TEXT:
        return Response(await render_text(web.figures), headers={"Content-Type": TEXT_TYPE})
    raise NotAcceptable(f"figures are {JSON}, {TEXT} or {OPENMETRICS}")
