"""/api/v1/stage: staging: rows are uploaded in parts and published together, exactly once.

Rows come as an Arrow stream or as JSON lines. A thread decodes and checks them.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import Meta, Struct

from penstock.common.cursor import Cursor, Position
from penstock.core.access.identity import Identity
from penstock.core.durability.records import ReleasedRecord
from penstock.core.settings import CoreSettings
from penstock.core.staging.staging import MOST_IDS, MOST_PARTS
from penstock.doors.web.context import Web, outcome_of
from penstock.doors.web.publishing import read_message
from penstock.doors.web.support.paging import find_page, make_rows
from penstock.doors.web.support.requests import (
    BODY_REFUSALS,
    DEFAULT_LIMIT,
    AfterName,
    Limit,
    Who,
    media_of,
    read_json,
    router_of,
    takes_json,
)
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import time_text
from penstock.errors import (
    Conflict,
    InvalidPayload,
    InvalidRequest,
    InvalidTopic,
    NotAuthorized,
    PenstockError,
    QuotaExceeded,
    StorageUnavailable,
    TooLarge,
    UnknownStage,
    UnsupportedMedia,
)
from penstock.runs import Run
from penstock.wire.arrow import MEDIA_TYPE as ARROW
from penstock.wire.json_values import MEDIA_TYPE as JSON_LINES
from penstock.wire.json_values import lines_of

CREATED = 201
NO_CONTENT = 204
READ_AT_ONCE = 2
"""Bodies that are being read at the same time; the others wait."""
LINE_BYTES = 1024 * 1024
"""Allowance for a line of JSON beside twice the largest payload, which is longer as JSON."""

StageId = Annotated[
    str,
    Path(
        examples=["worker-1"],
        description="A name for the stage: letters, digits and `. _ : @ = ~ -`; any but `commit`.",
    ),
]
Prefix = Annotated[str, Query(max_length=200, description="What the names of the stages begin with.")]
PartNumber = Annotated[int, Query(ge=0, lt=MOST_PARTS, description="Which part of the stage this is.")]


class CommitRequest(Struct, forbid_unknown_fields=True):
    """Stages to be published together."""

    key: Annotated[str, Meta(min_length=1, max_length=200, description="Names this commit: it is made once.")]
    ids: Annotated[list[str], Meta(max_length=MOST_IDS, description="Stages, in the order of their rows.")]
    rows: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None,
        Meta(description="How many rows each of them has to have; nothing is published if one has not."),
    ] = None
    any_ids: Annotated[
        bool,
        Meta(description="The key alone says which commit it is: made before of other stages, it counts."),
    ] = False


class StagedShape(Struct):
    """A part that is safe and waits for the commit of its stage."""

    id: str
    part: int
    rows: int
    lapses_at: str
    """When the stage expires, unless another part arrives."""


class PartShape(Struct):
    """One part of a stage."""

    part: int
    rows: int
    bytes: int


class StageShape(Struct):
    """Contents of a stage."""

    id: str
    rows: int
    parts: list[PartShape]
    lapses_at: str


class StageEntry(Struct):
    """One stage among others."""

    id: str
    rows: int
    bytes: int
    parts: int
    lapses_at: str


class StagePage(Struct):
    """Stages by name. `matching` counts all pages."""

    stages: list[StageEntry]
    next: str | None
    matching: int


class CommitShape(Struct):
    """Stages that were published. Their rows lie after the cursor `first`, up to and including `last`."""

    key: str
    rows: int
    first: str
    last: str
    duplicate: bool
    """A repetition; nothing was published again."""


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("stage", "/api/v1/stage")
    staging, reading = web.staging, asyncio.Semaphore(READ_AT_ONCE)

    def entry_of(who: Identity, id: str) -> StageEntry | None:
        try:
            found = staging.look(who, id)
        except PenstockError:  # removed a moment ago
            return None
        parts, lapses_at = len(found.parts), time_text(staging.lapses_at(found))
        return StageEntry(id, found.rows, found.bytes, parts, lapses_at)

    @router.get(
        "",
        summary="Your stages by name, a page at a time",
        description="What was staged and waits for a commit.",
        responses=describe(StagePage),
    )
    async def stages(
        who: Who, prefix: Prefix = "", after: AfterName = None, limit: Limit = DEFAULT_LIMIT
    ) -> Response:
        page = await find_page(staging.names(who, prefix), lambda _: True, after or "", limit)
        rows = await make_rows(page.names, partial(entry_of, who))
        return json_response(StagePage(rows, page.next, page.matching))

    @router.post(
        "/commit",
        summary="Publish everything in some stages, once",
        description="The response comes after the commit of all rows. The same key gets the same response, "
        "and nothing is published again: a client without a response may retry.",
        openapi_extra=takes_json(CommitRequest, {"key": "night-17", "ids": ["worker-1", "worker-2"]}),
        responses=describe(
            CommitShape,
            *BODY_REFUSALS,
            UnknownStage,
            NotAuthorized,
            Conflict,
            QuotaExceeded,
            StorageUnavailable,
            text="All of it is published.",
        ),
    )
    async def commit(request: Request, who: Who) -> Response:
        if media_of(request) in (ARROW, JSON_LINES):
            raise InvalidRequest("`commit` is not a valid name for a stage: this path commits stages")
        body = await read_json(request, CommitRequest)
        parts = staging.unchecked(who, body.ids)
        if parts:
            await asyncio.to_thread(staging.check_rights, who, parts)

        def start(settle: Callable[[tuple[ReleasedRecord, bool] | PenstockError], None]) -> None:
            def done(result: ReleasedRecord | PenstockError, is_repeated: bool) -> None:
                settle(result if isinstance(result, PenstockError) else (result, is_repeated))

            staging.commit(who, body.key, body.ids, done, rows=body.rows, any_ids=body.any_ids)

        record, is_repeated = await outcome_of(start)
        first, last = _text(record.first), _text(record.last)
        return json_response(CommitShape(record.key, record.rows, first, last, is_repeated))

    @router.post(
        "/{id}",
        status_code=CREATED,
        summary="Send a part of a stage",
        description="Everything is checked now, and not visible before the commit. The same part again "
        "replaces the earlier one.",
        openapi_extra={"requestBody": _BODIES},
        responses=describe(
            StagedShape,
            InvalidTopic,
            InvalidPayload,
            NotAuthorized,
            TooLarge,
            UnsupportedMedia,
            Conflict,
            QuotaExceeded,
            StorageUnavailable,
            status=CREATED,
            text="The part is safe.",
        ),
    )
    async def stage(request: Request, who: Who, id: StageId, part: PartNumber = 0) -> Response:
        staging.check(who, id, part)
        read = _reader_of(web, request)
        packing = staging.packing(who)
        pieces: list[bytes] = []
        try:
            await _receive(web, request, pieces)
            async with reading:
                packed = await asyncio.to_thread(lambda: packing.pack(read(_joined(pieces))))
        finally:
            staging.free(sum(map(len, pieces)))
        staged = await outcome_of(partial(staging.stage, who, id, part, packed))
        lapses_at = time_text(staging.lapses_at(staged))
        return json_response(StagedShape(id, part, staged.rows, lapses_at), CREATED)

    @router.get(
        "/{id}", summary="What waits in a stage", responses=describe(StageShape, UnknownStage, NotAuthorized)
    )
    async def look(who: Who, id: StageId) -> Response:
        found = staging.look(who, id)
        parts = [PartShape(part.number, part.rows, part.bytes) for part in found.in_order()]
        return json_response(StageShape(id, found.rows, parts, time_text(staging.lapses_at(found))))

    @router.delete(
        "/{id}",
        status_code=NO_CONTENT,
        summary="Forget a stage",
        responses=describe(None, UnknownStage, NotAuthorized, StorageUnavailable, status=NO_CONTENT),
    )
    async def drop(who: Who, id: StageId) -> Response:
        await outcome_of(partial(staging.drop, who, id))
        return Response(status_code=NO_CONTENT)

    return router


_BODIES: dict[str, Any] = {
    "required": True,
    "content": {
        ARROW: {"schema": {"type": "string", "format": "binary"}},
        JSON_LINES: {
            "schema": {"type": "string", "description": "The objects of a publish, one a line."},
            "example": '{"topic": "garden/pond", "data": {"level": 3}}\n{"topic": "garden/tap", "data": 1}',
        },
    },
}


def _reader_of(web: Web, request: Request) -> Callable[[bytes], Iterator[Run]]:
    """Return the decoder of the announced content type.

    Raises:
        UnsupportedMedia: there is none.
    """
    kind = media_of(request)
    settings, read_arrow = web.broker.settings, web.read_arrow
    if kind == JSON_LINES:
        return lambda body: _read_lines(body, settings)
    if kind == ARROW and read_arrow is not None:
        stage = settings.stage
        return lambda body: read_arrow(body, stage.max_part_bytes, stage.max_part_rows)
    raise UnsupportedMedia(f"rows come as {ARROW} or as {JSON_LINES}")


def _read_lines(body: bytes, settings: CoreSettings) -> Iterator[Run]:
    most = 2 * settings.max_payload_bytes + LINE_BYTES
    for number, line in lines_of(body):
        if len(line) > most:  # decoding blocks the loop
            raise TooLarge(f"line {number}: a line may have {most} bytes")
        try:
            yield read_message(line, settings.topic)
        except PenstockError as error:
            raise type(error)(f"line {number}: {error}") from None


async def _receive(web: Web, request: Request, pieces: list[bytes]) -> None:
    """Read a body; its bytes count in the budget of all stages.

    Raises:
        TooLarge: larger than a part may be.
        QuotaExceeded: the budget is exceeded.
    """
    most, size = web.broker.settings.stage.max_part_bytes, 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise TooLarge(f"a part may have {most} bytes")
        web.staging.reserve(len(piece))
        pieces.append(piece)


def _joined(pieces: list[bytes]) -> bytes:
    """In a thread: a body in one piece, in place of the others: it is large, and must not be here twice."""
    pieces[:] = (b"".join(pieces),)
    return pieces[0]


def _text(position: Position) -> str:
    return Cursor((position,)).encode()
