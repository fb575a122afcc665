"""POST /topics, DELETE /topics/{name}, GET /topics: topics as the In-memory Pub/Sub has them.

Its clients make a topic before they use it, and delete it when they are done. The names of new topics are as
narrow here as they are there; whatever other doors have made can be listed and deleted like the rest.
"""

import re
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Meta, Struct, json

from penstock.doors.http.problems import JSON
from penstock.doors.web.answers import Detail, describe, json_answer, reference_to
from penstock.doors.web.bodies import BODY_REFUSALS, read_json, takes_json
from penstock.doors.web.context import Web
from penstock.doors.web.failures import UNPROCESSABLE
from penstock.doors.web.listing import list_names
from penstock.doors.web.parameters import Who, router_of
from penstock.doors.web.storing import stored
from penstock.doors.web.topics import choose_topics
from penstock.errors import (
    InvalidRequest,
    InvalidTopic,
    NotAuthorized,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownTopic,
)

CREATED = 201
NO_CONTENT = 204
INVALID_NAME = "Invalid topic name. Use alphanumeric, underscore, hyphen, or dot only."
STOPPING = "Server is shutting down"
MAX_NAME = 255
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]+")
"""Without `.` and `..`, which no path can name: who made them could not delete them."""

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


def routes(web: Web) -> APIRouter:
    """What this module answers."""
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
        description="Whoever may publish to it may make it. It stays until it is deleted.",
        openapi_extra=takes_json(NewTopic, {"name": "orders"}),
        responses=made,
    )
    async def make(request: Request, who: Who) -> Response:
        check_open(web)
        name = (await _read(request)).name
        if not _NAME.fullmatch(name):
            raise InvalidTopic(INVALID_NAME)
        broker.declare_topic(name, by=who)
        await stored(broker.when_declared)
        return json_answer(MadeTopic(name), CREATED)

    @router.delete(
        "/{name:path}",
        status_code=NO_CONTENT,
        summary="Delete a topic",
        description="Whoever may publish to it may delete it. Its last messages and its retained value are "
        "gone, and clients of `/ws` that have subscribed to it are told so. What the log has of it stays.",
        responses=describe(
            None,
            NotAuthorized,
            StorageUnavailable,
            UnknownTopic,
            status=NO_CONTENT,
            text="There is no such topic any more.",
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
        await stored(broker.when_declared)
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

    return router


def check_open(web: Web) -> None:
    """Refuse what comes when the server is about to stop, in the words of these paths."""
    if web.is_draining():
        raise ShuttingDown(STOPPING)


async def _read(request: Request) -> NewTopic:
    """The body of a request; one that is not what it should be is refused as callers of this path know it."""
    try:
        return await read_json(request, NewTopic)
    except InvalidRequest as error:
        fault = {"loc": ("body",), "msg": str(error), "type": "value_error"}
        raise RequestValidationError([fault]) from None
