"""GET /health, /ready, /livez: health of the server; /cluster/status: the cluster.

The first three need no credentials and are hot routes, so they load nothing slow. They reveal nothing that an
anonymous client should not know: why the log fails is for authorized clients.
"""

from typing import TYPE_CHECKING

from msgspec import Struct, json

from penstock.core.access.access import ADMIN_FILTER
from penstock.core.access.identity import Identity
from penstock.core.broker import DROPS_TOPIC
from penstock.doors.web.context import Web

if TYPE_CHECKING:
    from fastapi import APIRouter

    from penstock.core.ports.log import Log
    from penstock.net.http.request import Request
    from penstock.net.http.routes import Routes

UNAVAILABLE = 503
UNHEALTHY = "unhealthy"
ENDED = "nothing can be stored until a restart"
FAILING = "nothing can be stored at present"
BEHIND = "the disk does not keep up, publishers wait"
STRANGER = Identity(None, "")


class LogHealth(Struct, omit_defaults=True):
    """State of the log. In memory it cannot fail, and reports no rows."""

    status: str
    durable: bool
    epoch: int
    first_offset: int | None = None
    last_offset: int | None = None
    details: str = ""
    """Why it is not ok."""


class Health(Struct, omit_defaults=True):
    """Health of the server: `healthy`, `degraded` or `unhealthy`.

    `degraded` means that nothing can be stored at present, or only slowly; it may end by itself. `unhealthy`
    lasts until a restart: files of the log were deleted.

    Where anonymous clients may not inspect the server, the last four fields are left out; where they may
    not even connect, the counts are as well.
    """

    status: str
    uptime_seconds: float
    topic_count: int | None = None
    active_subscriber_count: int | None = None
    version: str = ""
    build: str = ""
    """`compiled` or `pure`."""
    node_id: str = ""
    log: LogHealth | None = None


class Readiness(Struct, omit_defaults=True):
    """Readiness: `ready`, or `not_ready` with the reason."""

    status: str
    details: str = ""


class Liveness(Struct):
    """That there is a response at all, and how each part is."""

    status: str
    components: dict[str, str]


class ClusterPart(Struct):
    """The cluster as this node sees it."""

    node_id: str
    leader: str
    nodes: int


class ClusterStatus(Struct, kw_only=True):
    """This node and its cluster: one node, until there are more."""

    status: str
    node_id: str
    is_leader: bool
    cluster_mode: bool
    node_count: int
    sessions: int
    connections: int
    subscriptions: int
    retained_messages: int
    topics: int
    details: str
    cluster: ClusterPart


def health_of(web: Web) -> Health:
    """The server in a few figures."""
    log = web.broker.log
    status, details = _state_of(log)
    health = Health(
        status=_level_of(log),
        uptime_seconds=round(web.clock.monotonic() - web.started_at, 3),
    )
    if _is_open(web):
        health.topic_count, health.active_subscriber_count = topics_of_clients(web), _subscriptions(web)
    if _is_transparent(web):
        health.version, health.build, health.node_id = web.version, web.build, web.node_id
        health.log = LogHealth(
            status,
            log.is_durable,
            log.epoch,
            log.first_offset if log.is_durable else None,
            log.last_offset if log.is_durable else None,
            details,
        )
    return health


def _state_of(log: "Log") -> tuple[str, str]:
    """Return the state of the log in a word, and in a sentence for anybody."""
    if log.has_ended:
        return "ended", ENDED
    if log.failure is not None:
        return "failing", FAILING
    return ("behind", BEHIND) if log.is_behind else ("ok", "")


def _level_of(log: "Log") -> str:
    """Return the health of the whole server."""
    if log.has_ended:
        return UNHEALTHY
    return "degraded" if log.failure is not None or log.is_behind else "healthy"


def _status_code(health: Health) -> int:
    return UNAVAILABLE if health.status == UNHEALTHY else 200


def _is_open(web: Web) -> bool:
    """True if anonymous clients may connect."""
    return bool(web.broker.access.verify_now(None, None))


def _is_transparent(web: Web) -> bool:
    """True if anonymous clients may inspect everything."""
    return _is_open(web) and web.broker.access.may_subscribe(STRANGER, ADMIN_FILTER)


def readiness_of(web: Web) -> Readiness:
    """Return the readiness of the server."""
    if web.is_draining():
        return Readiness("not_ready", "the server is about to stop")
    log = web.broker.log
    if log.has_ended or log.failure is not None:
        return Readiness("not_ready", _state_of(log)[1])
    return Readiness("ready")


def liveness_of(web: Web) -> Liveness:
    """Return the state of each part."""
    parts = {
        "broker": "draining" if web.is_draining() else "ok",
        "log": _state_of(web.broker.log)[0],
    }
    return Liveness("alive", parts)


def cluster_status_of(web: Web) -> ClusterStatus:
    """Return the state of the cluster, and why something fails."""
    broker, counters = web.broker, web.broker.counters
    _, details = _state_of(broker.log)
    return ClusterStatus(
        status=_level_of(broker.log),
        node_id=web.node_id,
        is_leader=True,
        cluster_mode=False,
        node_count=1,
        sessions=len(broker.sessions),
        connections=counters.connections - counters.disconnections,
        subscriptions=_subscriptions(web),
        retained_messages=broker.retained.of_clients,
        topics=topics_of_clients(web),
        details=details if broker.log.failure is None else str(broker.log.failure),
        cluster=ClusterPart(web.node_id, web.node_id, 1),
    )


def topics_of_clients(web: Web) -> int:
    """Number of topics without the server's own."""
    retained, topics = web.broker.retained, web.broker.topics
    return len(topics) - (len(retained) - retained.of_clients) - (DROPS_TOPIC in topics)


def _subscriptions(web: Web) -> int:
    counters = web.broker.counters
    return counters.subscriptions_added - counters.subscriptions_removed


def add_hot_routes(table: "Routes", web: Web) -> None:
    """Add the hot routes."""

    def health(request: "Request") -> None:
        found = health_of(web)
        request.respond(_status_code(found), json.encode(found))

    def ready(request: "Request") -> None:
        readiness = readiness_of(web)
        request.respond(UNAVAILABLE if readiness.details else 200, json.encode(readiness))

    def livez(request: "Request") -> None:
        request.respond(200, json.encode(liveness_of(web)))

    for path, handler in (("/health", health), ("/ready", ready), ("/livez", livez)):
        table.add("GET", path, handler, is_open=True, max_body_bytes=0)


def routes(web: Web) -> "APIRouter":
    """The same for the application, which describes them."""
    from fastapi import Depends, Response  # noqa: PLC0415 - slow to load, and not needed by the rest

    from penstock.doors.web.support.requests import admin_of, router_of  # noqa: PLC0415
    from penstock.doors.web.support.responses import describe, json_response  # noqa: PLC0415

    router = router_of("health")

    usable = describe(Health, text="It works, perhaps degraded.")
    usable[UNAVAILABLE] = describe(Health, status=UNAVAILABLE, text="Unhealthy until a restart.")[UNAVAILABLE]

    @router.get("/health", summary="Health of the server, and figures", responses=usable)
    async def health() -> Response:
        found = health_of(web)
        return json_response(found, _status_code(found))

    unready = describe(Readiness, text="Send clients here.")
    unready[UNAVAILABLE] = describe(Readiness, status=UNAVAILABLE, text="Not now.")[UNAVAILABLE]

    @router.get("/ready", summary="Whether to send clients here", responses=unready)
    async def ready() -> Response:
        readiness = readiness_of(web)
        return json_response(readiness, UNAVAILABLE if readiness.details else 200)

    @router.get(
        "/livez", summary="That the server responds, and how its parts are", responses=describe(Liveness)
    )
    async def livez() -> Response:
        return json_response(liveness_of(web))

    @router.get(
        "/cluster/status",
        summary="This node and its cluster",
        responses=describe(ClusterStatus),
        dependencies=[Depends(admin_of(web))],
    )
    async def cluster_status() -> Response:
        return json_response(cluster_status_of(web))

    return router
