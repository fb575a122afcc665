"""POST /topics, DELETE /topics/{name}, GET /topics, GET /stats: compatible with the In-memory Pub/Sub.

Its clients create a topic before they use it, and delete it afterwards. Names of new topics are as restricted
as there. Topics created at other doors can be listed and deleted like the rest.
"""

import re
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Meta, Struct, json

from penstock.doors.web.api.topics import choose_topics
from penstock.doors.web.context import Web, stored
from penstock.doors.web.support.error_handlers import UNPROCESSABLE
from penstock.doors.web.support.paging import list_names
from penstock.doors.web.support.requests import BODY_REFUSALS, Who, read_json, router_of, takes_json
from penstock.doors.web.support.responses import Detail, describe, json_response, reference_to
from penstock.errors import (
    InvalidRequest,
    InvalidTopic,
    NotAuthorized,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownTopic,
)
from penstock.net.http.errors import JSON

CREATED = 201
NO_CONTENT = 204
INVALID_NAME = "Invalid topic name. Use alphanumeric, underscore, hyphen, or dot only."
STOPPING = "Server is shutting down"
MAX_NAME = 255
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]+")
"""Without `.` and `..`, which no path can name: they could not be deleted."""

Name = Annotated[
    str,
    Path(
        examples=["orders"],
        json_schema_extra={"format": "topic-path"},
        description="The topic; one of another door may have slashes, as they are or as `%2F`.",
    ),
]


class NewTopic(Struct):
    """A topic that is to be."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


class MadeTopic(Struct):
    """A topic that is there now; `created` is true as well if it was there before."""

    name: str
    created: bool = True


class TopicStats(Struct):
    """One topic."""

    message_count: int
    """Messages since the server started, or since the topic was made."""
    subscriber_count: int
    """Offline subscribers included; a shared group counts once."""


class Stats(Struct):
    """Topics by name."""

    topics: dict[str, TopicStats]


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("topics", "/topics")
    broker = web.broker

    made = describe(
        MadeTopic,
        InvalidTopic,
        NotAuthorized,
        QuotaExceeded,
        StorageUnavailable,
        *BODY_REFUSALS,
        status=CREATED,
        text="The topic is there.",
    )
    made[UNPROCESSABLE] = {
        "description": f"There is no name, or it has not 1 to {MAX_NAME} characters.",
        "content": {JSON: {"schema": reference_to(Detail)}},
    }

    @router.post(
        "",
        status_code=CREATED,
        summary="Make a topic",
        description="Needs the right to publish to it. It stays until it is deleted.",
        openapi_extra=takes_json(NewTopic, {"name": "orders"}),
        responses=made,
    )
    async def make(request: Request, who: Who) -> Response:
        check_open(web)
        name = (await _read(request)).name
        if not _NAME.fullmatch(name):
            raise InvalidTopic(INVALID_NAME)
        broker.declare_topic(name, by=who)
        await stored(broker.when_topics_stored)
        return json_response(MadeTopic(name), CREATED)

    @router.delete(
        "/{name:path}",
        status_code=NO_CONTENT,
        summary="Delete a topic",
        description="Needs the right to publish to it. Its last messages and its retained value are deleted, "
        "and subscribed clients of `/ws` are notified. Its messages in the log stay.",
        responses=describe(
            None,
            NotAuthorized,
            StorageUnavailable,
            UnknownTopic,
            status=NO_CONTENT,
            text="The topic is deleted.",
        ),
    )
    async def delete(who: Who, name: Name) -> Response:
        check_open(web)
        try:
            is_deleted = broker.delete_topic(name, by=who)
        except InvalidTopic:  # so there is none
            is_deleted = False
        if not is_deleted:
            raise UnknownTopic(f"Topic '{name}' not found")
        await stored(broker.when_topics_stored)
        return Response(status_code=NO_CONTENT)

    @router.get(
        "",
        summary="The names of all topics",
        description="Those that the caller may read, in the order of their first use, without those that "
        "begin with `$`. `GET /api/v1/topics` has them in pages, and with more to each.",
        responses=describe(list[str]),
    )
    async def names(who: Who) -> Response:
        is_wanted = choose_topics(web, who, None, None)

        def part_of(name: str) -> bytes | None:
            return json.encode(name) if is_wanted(name) else None

        return list_names(list(broker.topics), part_of, b"[", b"]")

    router.routes += _stats_routes(web).routes
    return router


def _stats_routes(web: Web) -> APIRouter:
    router = router_of("topics")
    broker = web.broker

    @router.get(
        "/stats",
        summary="Messages and subscribers of each topic",
        description="Of those that the caller may read, without those that begin with `$`. `GET /metrics` "
        "has more.",
        responses=describe(Stats),
    )
    async def stats(who: Who) -> Response:
        is_wanted = choose_topics(web, who, None, None)

        def part_of(name: str) -> bytes | None:
            topic = broker.topics.get(name)
            if topic is None or not is_wanted(name):  # it may have been deleted a moment ago
                return None
            row = TopicStats(topic.published, broker.subscriber_count(name))
            return b"%b:%b" % (json.encode(name), json.encode(row))

        return list_names(list(broker.topics), part_of, b'{"topics":{', b"}}")

    return router


def check_open(web: Web) -> None:
    """Refuse requests at shutdown, with the text of these paths."""
    if web.is_draining():
        raise ShuttingDown(STOPPING)


async def _read(request: Request) -> NewTopic:
    """The body of a request; one that is not what it should be is refused as callers of this path know it."""
    try:
        return await read_json(request, NewTopic)
    except InvalidRequest as error:
        fault = {"loc": ("body",), "msg": str(error), "type": "value_error"}
        raise RequestValidationError([fault]) from None
