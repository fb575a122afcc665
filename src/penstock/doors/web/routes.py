"""Hot routes of the web door, and the loader of its application."""

from typing import TYPE_CHECKING

from penstock.doors.web.admin import health
from penstock.doors.web.api import bridge, publish
from penstock.doors.web.context import Web
from penstock.doors.web.site import script
from penstock.doors.web.sse import endpoint
from penstock.net.http.routes import Routes

if TYPE_CHECKING:
    from fastapi import FastAPI

STAGE_PATH = "/api/v1/stage"
ADMIN_PATHS = (
    "/metrics",
    "/cluster/status",
    "/api/v1/log",
    "/api/v1/clients",
    "/api/v1/slow",
    "/api/v1/drops",
    "/api/v1/config",
    "/api/v1/why",
    "/docs",
    "/redoc",
    "/openapi.json",
)
"""Paths of the admin port, if there is one."""


def add_routes(table: Routes, web: Web, *, part_bytes: int) -> None:
    """Fill the listener's table; `part_bytes` is the largest part of a stage."""
    for module in (health, publish, bridge, endpoint, script):
        module.add_hot_routes(table, web)
    table.admin(*ADMIN_PATHS)
    table.bodies(STAGE_PATH, part_bytes)


def load_app(web: Web) -> "FastAPI":
    """Load and build the application for everything else; slow, so it is called in a thread."""
    import penstock.net.websocket.entrance  # noqa: PLC0415, F401 - the next upgrade need not wait for it
    from penstock.doors.web.app import build_app  # noqa: PLC0415 - that is what takes so long

    return build_app(web)
