"""GET /api/v1/topics/{topic}/messages: the history of one topic, from memory and the log.

`GET /api/v1/messages?topic=` is the same for every topic, also for one that no path can name.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct
from msgspec.structs import replace

from penstock.core.identity import Identity
from penstock.core.statement import Chunk
from penstock.core.topics import check_topic
from penstock.doors.http.problems import JSON
from penstock.doors.web.answers import describe, json_answer
from penstock.doors.web.context import Web
from penstock.doors.web.media import preferred
from penstock.doors.web.paging import make_rows
from penstock.doors.web.parameters import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    CursorText,
    Limit,
    TopicName,
    TopicPath,
    Unset,
    Who,
    router_of,
)
from penstock.doors.web.reading import Reading, Start
from penstock.doors.web.shapes import Messages, MessageShape, StatementShape, statement_shape
from penstock.errors import (
    InvalidCursor,
    InvalidTopic,
    NotAcceptable,
    NotAuthorized,
    StorageUnavailable,
    UnknownTopic,
)
from penstock.model import Reason, Run
from penstock.wire import arrow

ABOUT = """\
Begins after a cursor, after a sequence, at a time, or with one of the last messages; without any of these,
with the last ones. The statement says what is missing and why, and `next` is where the next page begins. A
page may be short, or empty, while there is more: it is complete only where `is_at_head` says so."""
STATEMENT_KEY = "penstock.statement"
"""Where an Arrow answer has its statement: in the metadata of its last batch, which is empty."""


class Format(StrEnum):
    """What the messages are given as, whatever the request says it accepts."""

    JSON = "json"
    ARROW = "arrow"


class MessagePage(Struct):
    """Messages in their order, and what can be said of the page."""

    messages: list[MessageShape]
    statement: StatementShape


class Asked(Struct, frozen=True):
    """Which messages of a topic somebody wants, and as what."""

    start: Start
    limit: int
    format: Format | None


async def asked_of(
    after: CursorText = None,
    after_sequence: Annotated[
        int | Unset, Query(ge=0, le=2**63 - 1, description="The sequence after which to begin.")
    ] = None,
    since: Annotated[
        str | Unset,
        Query(
            alias="from",
            json_schema_extra={"format": "history-time"},
            description="`earliest`, `latest`, or a time as RFC 3339 writes it.",
        ),
    ] = None,
    last: Annotated[
        int | Unset, Query(ge=1, le=MAX_LIMIT, description="How many before the newest to begin.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    format: Annotated[Format | Unset, Query(description="`json` or `arrow`, before `Accept`.")] = None,
) -> Asked:
    """What the query says of it."""
    start = Start(after=after, after_sequence=after_sequence, since=since, last=last)
    return Asked(start, limit, format)


def routes(web: Web) -> APIRouter:
    """What this module answers."""
    router = router_of("read", "/api/v1")
    broker, clock = web.broker, web.clock
    answers = describe(
        MessagePage,
        InvalidTopic,
        InvalidCursor,
        NotAuthorized,
        UnknownTopic,
        NotAcceptable,
        StorageUnavailable,
    )
    answers[200]["content"][arrow.MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}

    async def answer(request: Request, who: Identity, topic: str, asked: Asked) -> Response:
        check_topic(topic, broker.settings.topic)
        asked.start.check()
        kind = asked.format or _choose(request.headers.get("accept"))
        reading = read_topic(web, who, topic)
        chunk = await reading.page(asked.start, asked.limit)
        if kind is Format.ARROW:
            return Response(await arrow_of(web, topic, reading, chunk), media_type=arrow.MEDIA_TYPE)
        shapes = Messages(broker, clock)
        rows = await make_rows(_single(chunk.runs), lambda each: shapes.shape(*each))
        return json_answer(MessagePage(rows, statement_shape(chunk.statement)))

    @router.get(
        "/topics/{topic:path}/messages",
        summary="A page of a topic's history",
        description=ABOUT,
        responses=answers,
    )
    async def messages(
        request: Request, who: Who, topic: TopicPath, asked: Annotated[Asked, Depends(asked_of)]
    ) -> Response:
        return await answer(request, who, topic, asked)

    @router.get(
        "/messages",
        summary="A page of a topic's history, with the topic in the query",
        description=ABOUT,
        responses=answers,
    )
    async def messages_of(
        request: Request, who: Who, topic: TopicName, asked: Annotated[Asked, Depends(asked_of)]
    ) -> Response:
        return await answer(request, who, topic, asked)

    return router


def read_topic(web: Web, who: Identity, topic: str) -> Reading:
    """A reader of a topic, for somebody who may have one.

    Raises:
        NotAuthorized: who asks may not read it.
        UnknownTopic: there never was a message.
    """
    if not web.broker.access.may_read(who, topic):
        raise NotAuthorized(f"not allowed to read {topic}")
    reading = Reading(web.broker, web.clock, topic)
    if not reading.newest:
        raise UnknownTopic(f"there is no message on {topic}")
    return reading


async def arrow_of(web: Web, topic: str, reading: Reading, chunk: Chunk) -> bytes:
    """A page as one Arrow stream. Only the log has Arrow, and only what is committed.

    Raises:
        NotAcceptable: the topic is not in the log.
    """
    known = web.broker.topics.get(topic)
    if web.archive is None or not (known is None or known.traits.is_kept):
        raise NotAcceptable("only what the log keeps can be given as Arrow; ask for application/json")
    chunk = reading.cut_after(chunk, web.archive.last_offset)
    streams: tuple[bytes, ...] = ()
    if chunk.runs:
        after, until = chunk.runs[0].offset - 1, chunk.runs[-1].offset + chunk.runs[-1].count - 1
        size = sum(len(run.slab) for run in chunk.runs)
        rows = 0
        while after < until:
            span = await web.archive.arrow(after, until, size, lambda name: name == topic)
            streams, after, rows = (*streams, *span.streams), span.until, rows + span.rows
        missing = tuple(each for each in chunk.statement.missing if each.reason is not Reason.EXPIRED)
        chunk = replace(chunk, statement=replace(chunk.statement, served=rows, missing=missing))
    said = msgspec.json.encode(statement_shape(chunk.statement)).decode()
    cuts = [arrow.cut(each) for each in (*streams, await web.archive.arrow_end(None, {STATEMENT_KEY: said}))]
    return b"".join((cuts[0].schema, *(each.body for each in cuts), arrow.END))


def _choose(accept: str | None) -> Format:
    """The kind that a caller reads; JSON, if it reads both.

    Raises:
        NotAcceptable: it reads neither.
    """
    kind = preferred(accept, (JSON, arrow.MEDIA_TYPE))
    if kind is not None:
        return Format.JSON if kind == JSON else Format.ARROW
    raise NotAcceptable(f"there is {JSON} and {arrow.MEDIA_TYPE} here")


def _single(runs: tuple[Run, ...]) -> list[tuple[Run, int]]:
    """Each message of some runs."""
    return [(run, index) for run in runs for index in range(run.count)]
