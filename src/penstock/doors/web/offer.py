"""What the web door gives the HTTP listener: routes that it answers at once, and the application."""

from typing import TYPE_CHECKING

from penstock.doors.http.routes import Routes
from penstock.doors.web import bridge, events, health, publish, script
from penstock.doors.web.context import Web

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
"""What belongs on the admin port, if there is one."""


def offer(table: Routes, web: Web, *, part_bytes: int) -> None:
    """Fill the listener's table; `part_bytes` is the largest part of a stage."""
    for module in (health, publish, bridge, events, script):
        module.add_hot_routes(table, web)
    table.admin(*ADMIN_PATHS)
    table.bodies(STAGE_PATH, part_bytes)


def load(web: Web) -> "FastAPI":
    """The application for everything else; it takes a while, so it is called in a thread."""
    import penstock.doors.websocket.entrance  # noqa: PLC0415, F401 - the next upgrade need not wait for it
    from penstock.doors.web.app import build_app  # noqa: PLC0415 - that is what takes so long

    return build_app(web)
