"""FastAPI application of the web door: the routes of every module, error handlers, and OpenAPI.

It is imported only after the ports listen, because FastAPI takes longer to load than everything else.
"""

from importlib import import_module

from fastapi import FastAPI

from penstock.doors.web.context import Web
from penstock.doors.web.site.openapi import describe_app, pages
from penstock.doors.web.support.failures import handle_failures

MODULES = (
    "site.index",
    "api.publish",
    "api.bridge",
    "api.stage",
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
    "admin.health",
    "site.script",
)
"""Modules of this package, each with `routes(web) -> APIRouter`, in the order in which paths are tried."""


def build_app(web: Web) -> FastAPI:
    """Build the application: everything except hot routes."""
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
