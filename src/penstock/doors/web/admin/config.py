"""GET /api/v1/config: the settings in effect; POST /api/v1/reload: read them again."""

from typing import Any

import structlog
from fastapi import APIRouter, Response
from msgspec import Struct, convert

from penstock.core.access.access import ADMIN_FILTER
from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import Who, admin_of, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.errors import Conflict, InvalidConfig, NotAuthorized

log = structlog.get_logger("penstock.web")


class Configuration(Struct):
    """Settings by section, as a file has them, and where each of them is from."""

    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    """By dotted key."""
    needs_restart: list[str] = []
    """Those that were changed and take effect at the next start."""


class Reload(Struct):
    """Result of a reload."""

    applied: list[str] = []
    """Changed settings, as `key: before -> after`."""
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

    @router.post(
        "/reload",
        summary="Read settings, users, rights and certificates again",
        description="As SIGHUP does: all of it is applied, or after a mistake nothing. For those who may "
        f"publish to `{ADMIN_FILTER}`.",
        responses=describe(Reload, NotAuthorized, Conflict),
    )
    async def reload(who: Who) -> Response:
        if not web.broker.access.may_publish(who, ADMIN_FILTER):
            raise NotAuthorized(f"this needs the right to publish to {ADMIN_FILTER}")
        log.info("reload requested", user=who.user)
        try:
            return json_response(convert(web.reload(), Reload))
        except InvalidConfig as error:
            raise Conflict(f"nothing was reloaded: {error}") from None

    return router
