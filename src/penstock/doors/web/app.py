"""The FastAPI application of the web door: every module's routes, one form for errors, and a description.

It is imported only after the ports listen, because FastAPI takes longer to load than everything else.
"""

from importlib import import_module

from fastapi import FastAPI

from penstock.doors.web.context import Web
from penstock.doors.web.description import describe_app, pages
from penstock.doors.web.failures import handle_failures

MODULES = (
    "index",
    "publish",
    "bridge",
    "stage",
    "topics",
    "declared",
    "stats",
    "messages",
    "retained",
    "log",
    "holds",
    "clients",
    "slow",
    "why",
    "drops",
    "configuration",
    "metrics",
    "health",
    "script",
)
"""Modules beside this one, each with `routes(web) -> APIRouter`, in the order in which paths are tried."""


def build_app(web: Web) -> FastAPI:
    """Everything the web door answers, apart from the routes that the listener answers itself."""
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
        # As they are: routes that are included are made anew, and by whoever asks first.
        app.router.routes += router.routes
    describe_app(app)
    handle_failures(app)
    return app
