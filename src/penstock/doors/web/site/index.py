"""GET / and GET /api/v1: what is here."""

from fastapi import APIRouter, Response
from msgspec import Struct

from penstock.doors.web.app import ADMIN_PATHS
from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.net.http.routes import is_below


class Index(Struct):
    """The server, and where each of its interfaces is described or begins."""

    hello: str
    name: str
    version: str
    node_id: str
    interfaces: dict[str, str]


HELLO = "This is Penstock: one topic space, several front doors"
OLD_HELLO = "This is the iPubSub service"
"""Greeting that clients of iPubSub expect at the root."""
MQTT_PATH = "/mqtt"
INTERFACES = {
    "mqtt": MQTT_PATH,
    "websocket": "/ws",
    "streams": "/api/v1/streams",
    "api": "/api/v1",
    "events": "/api/v1/events",
    "topics": "/topics",
    "stats": "/stats",
    "console": "/ui/",
    "client": "/penstock.js",
    "description": "/openapi.json",
    "docs": "/docs",
    "health": "/health",
    "ready": "/ready",
    "live": "/livez",
    "metrics": "/metrics",
    "prometheus": "/metrics/prometheus",
    "cluster": "/cluster/status",
}
"""Four ways to publish and to listen, each for clients of its own, and what is around them."""
CALLS = {
    "publish": "/api/v1/publish",
    "stage": "/api/v1/stage/{id}",
    "topics": "/api/v1/topics",
    "tree": "/api/v1/topics/tree",
    "messages": "/api/v1/topics/{topic}/messages",
    "retained": "/api/v1/retained",
    "clients": "/api/v1/clients",
    "slow": "/api/v1/slow",
    "why": "/api/v1/why",
    "drops": "/api/v1/drops",
    "config": "/api/v1/config",
    "history": "/api/v1/history",
    "me": "/api/v1/me",
    "log": "/api/v1/log",
    "holds": "/api/v1/log/holds",
}


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("about")

    def is_here(path: str) -> bool:
        """True if a path is served at the port of this response, which is never the admin port."""
        is_elsewhere = web.settings.admin_port is not None and any(
            is_below(path, each) for each in ADMIN_PATHS
        )
        return not is_elsewhere and (web.has_mqtt or path != MQTT_PATH)

    def respond(hello: str, interfaces: dict[str, str], **headers: str) -> Response:
        here = {name: path for name, path in interfaces.items() if is_here(path)}
        return json_response(Index(hello, "penstock", web.version, web.node_id, here), headers=headers)

    @router.get("/", summary="What is here", responses=describe(Index))
    async def root() -> Response:
        return respond(OLD_HELLO, INTERFACES, vary="accept")  # browsers get the console

    @router.get("/api/v1/", include_in_schema=False)
    @router.get("/api/v1", summary="What this version of the API offers", responses=describe(Index))
    async def api() -> Response:
        return respond(HELLO, CALLS)

    return router
