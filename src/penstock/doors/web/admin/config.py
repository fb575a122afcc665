"""GET /api/v1/config: the settings in effect."""

from typing import Any

from fastapi import APIRouter, Response
from msgspec import Struct, convert

from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import admin_of, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.errors import NotAuthorized


class Configuration(Struct):
    """Settings by section, as a file has them, and where each of them is from."""

    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    """By dotted key."""
    needs_restart: list[str] = []
    """Those that were changed and take effect at the next start."""


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("about", "/api/v1", admin_of(web))

    @router.get(
        "/config",
        summary="The settings in effect",
        responses=describe(Configuration, NotAuthorized),
    )
    async def config() -> Response:
        return json_response(convert(web.config(), Configuration))

    return router
