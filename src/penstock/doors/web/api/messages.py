"""GET /api/v1/topics/{topic}/messages: the history of one topic, from memory and the log.

`GET /api/v1/messages?topic=` is the same for every topic, also for one that no path can name.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct
from msgspec.structs import replace

from penstock.common.topics import check_topic
from penstock.core.access.identity import Identity
from penstock.core.replay.statement import Chunk
from penstock.doors.web.context import Web
from penstock.doors.web.reading.history_page import HistoryReader, Start
from penstock.doors.web.support.paging import make_rows
from penstock.doors.web.support.requests import (
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
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import Messages, MessageShape, StatementShape, statement_shape
from penstock.errors import (
    InvalidCursor,
    InvalidTopic,
    NotAcceptable,
    NotAuthorized,
    StorageUnavailable,
    UnknownTopic,
)
from penstock.model import Reason
from penstock.net.http.errors import JSON
from penstock.net.http.response import preferred
from penstock.runs import Run
from penstock.wire import arrow
from penstock.wire.arrow import STATEMENT_KEY

ABOUT = """\
Begins after a cursor, after a sequence, at a time, or with one of the last messages; without any of these,
with the last ones. The statement says what is missing and why, and `next` is where the next page begins. A
page may be short, or empty, while there is more: it is complete only where `is_at_head` says so."""


class Format(StrEnum):
    """Format of the messages, regardless of `Accept`."""

    JSON = "json"
    ARROW = "arrow"


class MessagePage(Struct):
    """Messages in their order, and what can be said of the page."""

    messages: list[MessageShape]
    statement: StatementShape


class MessagesQuery(Struct, frozen=True):
    """Requested messages of a topic, and their format."""

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
) -> MessagesQuery:
    """Parse the query."""
    start = Start(after=after, after_sequence=after_sequence, since=since, last=last)
    return MessagesQuery(start, limit, format)


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("read", "/api/v1")
    broker, clock = web.broker, web.clock
    responses = describe(
        MessagePage,
        InvalidTopic,
        InvalidCursor,
        NotAuthorized,
        UnknownTopic,
        NotAcceptable,
        StorageUnavailable,
    )
    responses[200]["content"][arrow.MEDIA_TYPE] = {"schema": {"type": "string", "format": "binary"}}

    async def respond(request: Request, who: Identity, topic: str, asked: MessagesQuery) -> Response:
        check_topic(topic, broker.settings.topic)
        asked.start.check()
        kind = asked.format or _choose(request.headers.get("accept"))
        reading = read_topic(web, who, topic)
        chunk = await reading.page(asked.start, asked.limit)
        if kind is Format.ARROW:
            return Response(await arrow_of(web, topic, reading, chunk), media_type=arrow.MEDIA_TYPE)
        shapes = Messages(broker, clock)
        rows = await make_rows(_single(chunk.runs), lambda each: shapes.shape(*each))
        return json_response(MessagePage(rows, statement_shape(chunk.statement)))

    @router.get(
        "/topics/{topic:path}/messages",
        summary="A page of a topic's history",
        description=ABOUT,
        responses=responses,
    )
    async def messages(
        request: Request, who: Who, topic: TopicPath, asked: Annotated[MessagesQuery, Depends(asked_of)]
    ) -> Response:
        return await respond(request, who, topic, asked)

    @router.get(
        "/messages",
        summary="A page of a topic's history, with the topic in the query",
        description=ABOUT,
        responses=responses,
    )
    async def messages_of(
        request: Request, who: Who, topic: TopicName, asked: Annotated[MessagesQuery, Depends(asked_of)]
    ) -> Response:
        return await respond(request, who, topic, asked)

    return router


def read_topic(web: Web, who: Identity, topic: str) -> HistoryReader:
    """Return a reader of a topic.

    Raises:
        NotAuthorized: the caller may not read it.
        UnknownTopic: it never had a message.
    """
    if not web.broker.access.may_read(who, topic):
        raise NotAuthorized(f"not allowed to read {topic}")
    reading = HistoryReader(web.broker, web.clock, topic)
    if not reading.newest:
        raise UnknownTopic(f"there is no message on {topic}")
    return reading


async def arrow_of(web: Web, topic: str, reading: HistoryReader, chunk: Chunk) -> bytes:
    """A page as one Arrow stream. Only the log has Arrow, and only what is committed.

    Raises:
        NotAcceptable: the topic is not in the log.
    """
    known = web.broker.topics.get(topic)
    if web.archive is None or not (known is None or known.rules.is_kept):
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
