"""The web door: hot routes, and the FastAPI application for everything else.

The application is loaded only after the ports listen, because FastAPI takes longer to import than
everything else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.doors.web import sse
from penstock.doors.web.admin import health
from penstock.doors.web.api import bridge, login, publish
from penstock.doors.web.context import Web
from penstock.doors.web.site import console, script
from penstock.net.http.routes import Routes

if TYPE_CHECKING:
    from fastapi import FastAPI

STAGE_PATH = "/api/v1/stage"
ADMIN_PATHS = (
    "/metrics",
    "/cluster/status",
    "/api/v1/log",
    "/api/v1/client",
    "/api/v1/clients",
    "/api/v1/slow",
    "/api/v1/drops",
    "/api/v1/config",
    "/api/v1/history",
    "/api/v1/reload",
    "/api/v1/why",
    "/docs",
    "/redoc",
    "/openapi.json",
)
"""Paths of the admin port, if there is one."""
MODULES = (
    "site.index",
    "api.login",
    "api.publish",
    "api.bridge",
    "api.stage",
    "api.topic_tree",
    "api.topics",
    "api.legacy_topics",
    "api.messages",
    "api.retained",
    "api.log",
    "api.holds",
    "admin.clients",
    "admin.slow",
    "admin.why",
    "admin.drops",
    "admin.config",
    "admin.metrics",
    "admin.history",
    "admin.health",
    "site.script",
    "site.console",
)
"""Modules of this package, each with `routes(web) -> APIRouter`, in the order in which paths are tried."""


def add_routes(table: Routes, web: Web, *, part_bytes: int) -> None:
    """Fill the listener's table; `part_bytes` is the largest part of a stage."""
    for module in (health, login, publish, bridge, sse, script, console):
        module.add_hot_routes(table, web)
    table.admin(*ADMIN_PATHS)
    table.bodies(STAGE_PATH, part_bytes)


def load_app(web: Web) -> "FastAPI":
    """Load and build the application: everything except hot routes. Slow, so it is called in a thread."""
    # Loading FastAPI is what takes so long.
    from fastapi import FastAPI  # noqa: PLC0415

    import penstock.net.websocket.entrance  # noqa: PLC0415, F401 - the next upgrade need not wait for it
    from penstock.doors.web.site.openapi import describe_app, pages  # noqa: PLC0415
    from penstock.doors.web.support.error_handlers import handle_failures  # noqa: PLC0415

    app = FastAPI(
        title="Penstock",
        version=web.version,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # a slash more is another topic
    )
    routers = [import_module(f"penstock.doors.web.{name}").routes(web) for name in MODULES]
    for router in (*routers, pages(app)):
        # Not by `include_router`, which copies every route at its first request.
        app.router.routes += router.routes
    describe_app(app)
    handle_failures(app)
    return app
