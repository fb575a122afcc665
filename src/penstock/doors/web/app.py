"""The FastAPI application of the web door: every module's routes, one form for errors, and a description.

It is imported only after the ports listen, because FastAPI takes longer to load than everything else.
"""

from importlib import import_module

from fastapi import Depends, FastAPI

from penstock.doors.web.context import Web
from penstock.doors.web.description import describe_app, pages
from penstock.doors.web.failures import handle_failures
from penstock.doors.web.parameters import refuse_unknown_parameters

MODULES = (
    "index",
    "publish",
    "bridge",
    "stage",
    "topics",
    "messages",
    "retained",
    "log",
    "holds",
    "clients",
    "slow",
    "why",
    "metrics",
    "health",
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
        dependencies=[Depends(refuse_unknown_parameters)],
    )
    for name in MODULES:
        app.include_router(import_module(f"penstock.doors.web.{name}").routes(web))
    app.include_router(pages(app))
    describe_app(app)
    handle_failures(app)
    return app
