"""POST /topics, DELETE /topics/{name}, GET /topics, GET /stats: compatible with the In-memory Pub/Sub.

Its clients create a topic before they use it, and delete it afterwards. Names of new topics are as restricted
as there. Topics created at other doors can be listed and deleted like the rest.
"""

import re
from json import JSONDecodeError, loads
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from msgspec import Meta, Struct, json
from msgspec.json import Decoder
from pydantic import BaseModel, Field, ValidationError

from penstock.doors.web.api.topics import choose_topics
from penstock.doors.web.context import Web, stored
from penstock.doors.web.publishing import decode
from penstock.doors.web.support.error_handlers import UNPROCESSABLE
from penstock.doors.web.support.paging import list_names
from penstock.doors.web.support.requests import BODY_REFUSALS, Who, read_body, router_of, takes_json
from penstock.doors.web.support.responses import describe, json_response, reference_to
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
SHOWN_BYTES = 1000
MOVED = 307
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


class _Checked(BaseModel):
    """The same for FastAPI's validation, which words the faults."""

    name: str = Field(min_length=1, max_length=MAX_NAME)


class TopicFault(Struct, omit_defaults=True):
    """One thing that is wrong with a new topic."""

    type: str
    loc: list[str | int]
    msg: str
    input: Any = None
    ctx: dict[str, Any] = {}


class TopicFaults(Struct):
    """Everything that is wrong with a new topic."""

    detail: list[TopicFault]


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


_decoder = Decoder(NewTopic)


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
        "content": {JSON: {"schema": reference_to(TopicFaults)}},
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

    @router.api_route("/", methods=["GET", "POST"], include_in_schema=False)
    async def without_slash(who: Who) -> Response:
        return RedirectResponse("/topics", MOVED)

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
    """The body of a request; an invalid one is refused in the form that callers of this path know."""
    body = await read_body(request)
    try:
        return decode(_decoder, body)
    except InvalidRequest as error:
        raise RequestValidationError(_faults(body, str(error))) from None


def _faults(body: bytes, text: str) -> list[dict[str, Any]]:
    """Faults of a body, in the form of FastAPI's own validation."""
    if not body:
        return [{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}]
    try:
        value = loads(body)
        _Checked.model_validate(value, from_attributes=True)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        return [
            {**fault, "loc": ("body", *fault["loc"]), "input": _shown(fault["input"])} for fault in faults
        ]
    except (ValueError, RecursionError) as error:
        place = ("body", error.pos) if isinstance(error, JSONDecodeError) else ("body",)
        context = {"error": text}
        return [
            {"type": "json_invalid", "loc": place, "msg": "JSON decode error", "input": {}, "ctx": context}
        ]
    return [{"type": "value_error", "loc": ("body",), "msg": text, "input": _shown(value)}]


def _shown(value: object) -> object:
    """The input in a response; one that is large, or not text, is left out."""
    try:
        return value if len(json.encode(value)) <= SHOWN_BYTES else None
    except ValueError:
        return None
