"""/api/v1/log/holds: named positions by which readers keep what they have not read.

A response leaves when what it says is stored: a hold that was promised outlives the server.
"""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from msgspec import Meta, Struct

from penstock.core.access.identity import Identity
from penstock.core.ports.archive import Hold
from penstock.doors.web.api.log import MOST_FILTERS, opened, rights_of
from penstock.doors.web.context import Web, stored
from penstock.doors.web.support.requests import BODY_REFUSALS, Who, is_admin, read_json, router_of, takes_json
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import time_text
from penstock.errors import (
    InvalidCursor,
    InvalidFilter,
    InvalidHold,
    NoLog,
    QuotaExceeded,
    StorageUnavailable,
    UnknownHold,
)

CREATED = 201
NO_CONTENT = 204

Name = Annotated[str, Path(examples=["nightly"], description="The name of a hold.")]


class NewHold(Struct, forbid_unknown_fields=True):
    """A hold to be made, or to be put in another place."""

    name: Annotated[str, Meta(description="Up to 200 printable characters; no level of it is `.` or `..`.")]
    cursor: Annotated[str, Meta(description="Everything behind it is kept.")]
    lapse_s: Annotated[float, Meta(description="How long it lasts after each sign of life.")]
    filters: Annotated[
        list[str],
        Meta(
            max_length=MOST_FILTERS,
            description="What its owner wants to read, and may subscribe to; without any, everything.",
        ),
    ] = []


class Moved(Struct, forbid_unknown_fields=True):
    """Position of a new hold."""

    cursor: Annotated[str, Meta(description="Everything up to it was read, and may go.")]


class HoldShape(Struct):
    """A hold: everything after its cursor is retained until it lapses."""

    name: str
    owner: str
    cursor: str
    offset: int
    lapse_s: float
    lapses_at: str
    filters: list[str]


class HoldsShape(Struct):
    """Holds by name."""

    holds: list[HoldShape]


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("log", "/api/v1/log/holds")

    @router.get(
        "",
        summary="The caller's holds, by name; all holds for callers that may see everything",
        responses=describe(HoldsShape, NoLog),
    )
    async def holds(who: Who) -> Response:
        archive, _ = opened(web)
        is_all = is_admin(web, who)
        return json_response(
            HoldsShape(
                [_shape(web, hold) for hold in archive.holds.listing() if is_all or hold.owner == _owner(who)]
            )
        )

    @router.post(
        "",
        status_code=CREATED,
        summary="Keep everything behind a cursor",
        description="A hold of this name that the caller has already is moved there. It keeps all topics, "
        "so the caller needs the right to subscribe to `#`, or to the `filters` it gives. One owner may have "
        "`log.max_holds_per_owner` of them, and none lasts longer than `log.max_hold_lapse_s`.",
        openapi_extra=takes_json(NewHold, {"name": "nightly", "cursor": "AQ...", "lapse_s": 86_400}),
        responses=describe(
            HoldShape,
            InvalidHold,
            InvalidCursor,
            InvalidFilter,
            NoLog,
            *BODY_REFUSALS,
            QuotaExceeded,
            StorageUnavailable,
            status=CREATED,
        ),
    )
    async def create(request: Request, who: Who) -> Response:
        archive, places = opened(web)
        body = await read_json(request, NewHold)
        if {".", ".."} & {*body.name.split("/")}:
            raise InvalidHold("no path could name this hold: a level of it is `.` or `..`")
        rights_of(web, who, body.filters)
        offset = places.at_cursor(body.cursor).offset
        hold = archive.holds.create(body.name, _owner(who), offset, body.lapse_s, tuple(body.filters))
        await _stored(web)
        return json_response(_shape(web, hold), CREATED)

    @router.post(
        "/{name:path}/renew",
        summary="Give a sign of life",
        responses=describe(HoldShape, NoLog, StorageUnavailable, UnknownHold),
    )
    async def renew(who: Who, name: Name) -> Response:
        archive, _ = opened(web)
        rights_of(web, who, archive.holds.find(name, _owner(who)).filters)
        hold = archive.holds.renew(name, _owner(who))
        await _stored(web)
        return json_response(_shape(web, hold))

    @router.put(
        "/{name:path}",
        summary="Move a hold on to where its reader has got; that renews it too",
        openapi_extra=takes_json(Moved, {"cursor": "AQ..."}),
        responses=describe(HoldShape, InvalidCursor, NoLog, *BODY_REFUSALS, StorageUnavailable, UnknownHold),
    )
    async def move(request: Request, who: Who, name: Name) -> Response:
        archive, places = opened(web)
        body = await read_json(request, Moved)
        rights_of(web, who, archive.holds.find(name, _owner(who)).filters)
        hold = archive.holds.move(name, _owner(who), places.at_cursor(body.cursor).offset)
        await _stored(web)
        return json_response(_shape(web, hold))

    @router.delete(
        "/{name:path}",
        status_code=NO_CONTENT,
        summary="Keep nothing any more",
        description="Callers that may see everything may also release the holds of others.",
        responses=describe(None, NoLog, StorageUnavailable, UnknownHold, status=NO_CONTENT),
    )
    async def release(who: Who, name: Name) -> Response:
        archive, _ = opened(web)
        archive.holds.release(name, None if is_admin(web, who) else _owner(who))
        await _stored(web)
        return Response(status_code=NO_CONTENT)

    return router


def _owner(who: Identity) -> str:
    return who.user or ""


def _shape(web: Web, hold: Hold) -> HoldShape:
    cursor = web.broker.history.cursor(hold.offset).encode()
    return HoldShape(
        hold.name,
        hold.owner,
        cursor,
        hold.offset,
        hold.lapse_s,
        time_text(hold.lapses_at),
        list(hold.filters),
    )


async def _stored(web: Web) -> None:
    """Commit the present turn and wait for it."""
    web.broker.commit_soon()
    await stored(partial(web.broker.when_committed, web.broker.log.ticket))
