"""/api/v1/stage: rows that are sent in parts, kept out of sight, and published together, exactly once.

Rows come as an Arrow stream or as JSON lines. Reading and checking them takes a while, so a thread does it.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import Meta, Struct

from penstock.core.cursor import Cursor
from penstock.core.identity import Identity
from penstock.core.ports import Position
from penstock.core.records import ReleasedRecord
from penstock.core.settings import CoreSettings
from penstock.core.stages import Part
from penstock.core.staging import MOST_IDS, MOST_PARTS
from penstock.doors.web.answers import describe, json_answer
from penstock.doors.web.bodies import BODY_REFUSALS, media_of, read_json, takes_json
from penstock.doors.web.context import Web
from penstock.doors.web.incoming import read_message
from penstock.doors.web.paging import find_page, make_rows
from penstock.doors.web.parameters import DEFAULT_LIMIT, AfterName, Limit, Who, router_of
from penstock.doors.web.times import time_text
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
from penstock.model import Run
from penstock.wire.arrow import MEDIA_TYPE as ARROW
from penstock.wire.rows import MEDIA_TYPE as JSON_LINES
from penstock.wire.rows import lines_of

CREATED = 201
NO_CONTENT = 204
READ_AT_ONCE = 2
"""Bodies that are being read at the same time; the others wait."""
LINE_BYTES = 1024 * 1024
"""What a line of JSON may have beside twice the largest payload, which is longer as JSON."""
T = TypeVar("T")

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
    """When the stage is forgotten, unless something comes."""


class PartShape(Struct):
    """One part of a stage."""

    part: int
    rows: int
    bytes: int


class StageShape(Struct):
    """What waits in a stage."""

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
    """It was asked for before; nothing was published again."""


def routes(web: Web) -> APIRouter:
    """What this module answers."""
    router = router_of("stage", "/api/v1/stage")
    staging, reading = web.staging, asyncio.Semaphore(READ_AT_ONCE)

    def entry_of(who: Identity, id: str) -> StageEntry | None:
        try:
            found = staging.look(who, id)
        except PenstockError:  # gone a moment ago
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
        return json_answer(StagePage(rows, page.next, page.matching))

    @router.post(
        "/commit",
        summary="Publish everything in some stages, once",
        description="The answer comes when all rows are safe. The same key again gets the same answer, and "
        "nothing is published again: whoever got no answer may ask again.",
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
            raise InvalidRequest("`commit` is no name for a stage: this path commits others")
        body = await read_json(request, CommitRequest)
        parts = staging.unchecked(who, body.ids)
        if parts:
            await asyncio.to_thread(staging.check_rights, who, parts)
        outcome: asyncio.Future[tuple[ReleasedRecord, bool]] = _future()

        def done(result: ReleasedRecord | PenstockError, is_repeated: bool) -> None:
            _settle(outcome, result if isinstance(result, PenstockError) else (result, is_repeated))

        staging.commit(who, body.key, body.ids, done, rows=body.rows, any_ids=body.any_ids)
        record, is_repeated = await outcome
        first, last = _text(record.first), _text(record.last)
        return json_answer(CommitShape(record.key, record.rows, first, last, is_repeated))

    @router.post(
        "/{id}",
        status_code=CREATED,
        summary="Send a part of a stage",
        description="Everything is checked now, and nobody sees it before the commit. The same part again "
        "replaces the one that is there.",
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
        outcome: asyncio.Future[Part] = _future()
        staging.stage(who, id, part, packed, lambda result: _settle(outcome, result))
        staged = await outcome
        lapses_at = time_text(staging.lapses_at(staged))
        return json_answer(StagedShape(id, part, staged.rows, lapses_at), CREATED)

    @router.get(
        "/{id}", summary="What waits in a stage", responses=describe(StageShape, UnknownStage, NotAuthorized)
    )
    async def look(who: Who, id: StageId) -> Response:
        found = staging.look(who, id)
        parts = [PartShape(part.number, part.rows, part.bytes) for part in found.in_order()]
        return json_answer(StageShape(id, found.rows, parts, time_text(staging.lapses_at(found))))

    @router.delete(
        "/{id}",
        status_code=NO_CONTENT,
        summary="Forget a stage",
        responses=describe(None, UnknownStage, NotAuthorized, StorageUnavailable, status=NO_CONTENT),
    )
    async def drop(who: Who, id: StageId) -> Response:
        outcome: asyncio.Future[None] = _future()
        staging.drop(who, id, lambda result: _settle(outcome, result))
        await outcome
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
    """What reads a body of the kind that is announced.

    Raises:
        UnsupportedMedia: nothing does.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMedia("send the body as it is; the batches of an Arrow stream may be compressed")
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
        if len(line) > most:  # nobody else has a turn while it is read
            raise TooLarge(f"line {number}: a line may have {most} bytes")
        try:
            yield read_message(line, settings.topic)
        except PenstockError as error:
            raise type(error)(f"line {number}: {error}") from None


async def _receive(web: Web, request: Request, pieces: list[bytes]) -> None:
    """Read a body; each byte of it counts among those of all stages while it is here.

    Raises:
        TooLarge: it is larger than a part may be.
        QuotaExceeded: there is no room for it.
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


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


def _settle(outcome: "asyncio.Future[T]", result: T | PenstockError) -> None:
    """Hand a result to whoever waits, who may have gone."""
    if outcome.done():
        return
    if isinstance(result, PenstockError):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)


def _text(position: Position) -> str:
    return Cursor((position,)).encode()
