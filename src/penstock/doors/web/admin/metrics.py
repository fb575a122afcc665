"""GET /metrics and /metrics/prometheus: the server's figures, in the form that the caller wants."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field

from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import Unset, admin_of, router_of
from penstock.doors.web.support.responses import describe
from penstock.errors import InvalidRequest, NotAcceptable, NotAuthorized
from penstock.net.http.response import preferred
from penstock.telemetry.json_format import Metrics, render
from penstock.telemetry.prometheus import OPENMETRICS_TYPE, TEXT_TYPE, render_openmetrics, render_text

JSON = "application/json"
TEXT = "text/plain"
OPENMETRICS = "application/openmetrics-text"

MOST_TOPICS = 100
MOST_LISTED = 100_000

Accept = Annotated[str | None, Header(include_in_schema=False)]
Topics = Annotated[
    Sequence[Annotated[str, Field(json_schema_extra={"format": "topic", "minLength": 1})]],
    Query(
        json_schema_extra={"maxItems": MOST_TOPICS},
        examples=[["garden/pond"]],
        description="Topics to report in JSON, in place of those with most messages; what is not known is "
        "left out.",
    ),
]
Limit = Annotated[
    int | Unset,
    Query(
        ge=0,
        le=MOST_LISTED,
        description="Number of topics with most messages to report in JSON, up to `metrics.json_topics`; "
        "the rest of the response stays.",
    ),
]


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("health", "", admin_of(web))
    responses = describe(Metrics, NotAuthorized, NotAcceptable)
    responses[200]["content"] |= {
        TEXT: {"schema": {"type": "string"}},
        OPENMETRICS: {"schema": {"type": "string"}},
    }

    @router.get("/metrics", summary="The server's figures", responses=responses)
    async def metrics(accept: Accept = None, topic: Topics = (), limit: Limit = None) -> Response:
        """JSON, unless `Accept` prefers Prometheus' text format or OpenMetrics."""
        kind = preferred(accept, (JSON, TEXT, OPENMETRICS))
        _check(topic, limit, kind)
        return await _respond(web, kind, topic, limit)

    @router.get(
        "/metrics/prometheus",
        summary="The server's figures, for Prometheus",
        responses=describe(str, NotAuthorized, media=TEXT),
    )
    async def prometheus(accept: Accept = None) -> Response:
        """Prometheus' text format, or OpenMetrics if `Accept` prefers it."""
        return await _respond(web, preferred(accept, (TEXT, OPENMETRICS)) or TEXT)

    return router


def _check(topics: Sequence[str], limit: int | None, kind: str | None) -> None:
    """Check topics here and not by FastAPI, whose status is another one.

    Raises:
        InvalidRequest: with the reason.
    """
    if (topics or limit is not None) and kind in (TEXT, OPENMETRICS):
        raise InvalidRequest(f"topics can be asked for as {JSON} only")
    if topics and limit is not None:
        raise InvalidRequest("topics are asked for by name or by a limit, not both")
    if len(topics) > MOST_TOPICS:
        raise InvalidRequest(f"at most {MOST_TOPICS} topics can be asked for, not {len(topics)}")
    if "" in topics:
        raise InvalidRequest("a topic has a name")


async def _respond(
    web: Web, kind: str | None, topics: Sequence[str] = (), limit: int | None = None
) -> Response:
    if kind == JSON:
        return Response(await render(web.figures, topics, limit), media_type=JSON)
    if kind == OPENMETRICS:
        return Response(await render_openmetrics(web.figures), headers={"Content-Type": OPENMETRICS_TYPE})
    if kind == TEXT:
        return Response(await render_text(web.figures), headers={"Content-Type": TEXT_TYPE})
    raise NotAcceptable(f"figures are {JSON}, {TEXT} or {OPENMETRICS}")
