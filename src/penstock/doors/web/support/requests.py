"""Requests of the FastAPI application: the identity of the caller, parameters, JSON bodies, hot routes.

Dependencies are coroutines: FastAPI would run a plain function in a thread, every time.

Forms are not supported, but curl announces one by default: so a body announced as a form, or not at all,
is JSON.

The listener serves hot routes itself; the application has them for OpenAPI, and for hosts other than the
listener. Both call the same handler.
"""

import re
from asyncio import Future, get_running_loop, to_thread
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec.json import Decoder
from pydantic.json_schema import SkipJsonSchema

from penstock.common.topics import TopicLimits, check_filter, split_share
from penstock.core.access.access import ADMIN_FILTER
from penstock.core.access.identity import Identity
from penstock.doors.web.context import Web
from penstock.doors.web.publishing import FORM, decode
from penstock.doors.web.support.responses import reference_to
from penstock.errors import InvalidFilter, InvalidRequest, NotAuthorized, TooLarge, UnsupportedMedia
from penstock.net.http.errors import JSON
from penstock.net.http.request import HostedRequest
from penstock.net.http.response import Headers
from penstock.net.http.routes import Handler

DEFAULT_LIMIT = 100
_NUMBER = re.compile("-?[0-9]+")
MAX_LIMIT = 10_000
T = TypeVar("T")

MAX_BYTES = 4 << 20
"""No such body needs more."""
BODY_REFUSALS = (TooLarge, UnsupportedMedia)
"""Errors of any body."""


async def identity_of(request: Request) -> Identity:
    """Identity of the caller, authenticated by the listener."""
    return cast("Identity", request.state.identity)


Who = Annotated[Identity, Depends(identity_of)]


def is_admin(web: Web, identity: Identity) -> bool:
    """True if the caller may see clients, totals and statistics."""
    return web.broker.access.may_subscribe(identity, ADMIN_FILTER)


def admin_of(web: Web) -> Callable[[Identity], Awaitable[Identity]]:
    """A dependency for views that only some may see: `Depends(admin_of(web))`."""

    async def admin(identity: Who) -> Identity:
        if not is_admin(web, identity):
            raise NotAuthorized(f"this view needs the right to subscribe to {ADMIN_FILTER}")
        return identity

    return admin


def check_plain_filter(filter: str, limits: TopicLimits) -> None:
    """Check a topic filter; shared ones are only for subscriptions.

    Raises:
        InvalidFilter: with the reason.
    """
    check_filter(filter, limits)
    if split_share(filter)[0] is not None:
        raise InvalidFilter("a shared filter is for subscribers; give the filter behind the group")


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query parameter that the operation does not have, or has once and was given twice.

    A misspelt parameter would otherwise be overlooked, and what is not a text or no number be taken for
    another one: the response would be one to another question.

    Raises:
        InvalidRequest: naming the parameter.
        RequestValidationError: the same, for a number.
    """
    pairs = _pairs_of(request.scope["query_string"])
    given = Counter(name for name, _ in pairs)
    known = await _parameters_of(request) if given else {}
    for name, count in given.items():
        if name not in known:
            called = f"{request.method} {request.scope['route'].path_format}"
            raise InvalidRequest(f"{called} has no parameter {name!r}")
        if count > 1 and known[name].get("type") != "array":
            raise InvalidRequest(f"{name!r} was given {count} times")
    for name, value in pairs:
        if known[name].get("type") == "integer" and not _NUMBER.fullmatch(value):
            # With FastAPI's text, but stricter about numbers.
            fault = {"loc": ("query", name), "msg": "Input should be a valid integer", "type": "int_parsing"}
            raise RequestValidationError([fault])


def _pairs_of(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidRequest("the query is not UTF-8") from None


async def _parameters_of(request: Request) -> dict[str, dict[str, Any]]:
    """Return the query parameters of the requested operation, with their schemas."""
    app = request.app
    document = app.openapi_schema or await to_thread(app.openapi)  # the first call is slow
    path = document["paths"].get(request.scope["route"].path_format, {})
    operation = path.get(request.method.lower(), {})
    return {each["name"]: each["schema"] for each in operation.get("parameters", ()) if each["in"] == "query"}


def router_of(tag: str, prefix: str = "", *needed: Callable[..., Awaitable[object]]) -> APIRouter:
    """A router for operations of one kind; a request has to pass what is needed before it gets to them."""
    dependencies = [Depends(each) for each in (refuse_unknown_parameters, *needed)]
    return APIRouter(prefix=prefix, tags=[tag], dependencies=dependencies)


Unset = SkipJsonSchema[None]
"""Stands for a parameter that was not given; clients need not know of it."""

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Most entries of the response.")]
Search = Annotated[
    str | Unset, Query(min_length=1, max_length=1_000, description="Text that the name has somewhere.")
]
Filter = Annotated[
    str | Unset,
    Query(
        min_length=1,
        json_schema_extra={"format": "topic-filter"},
        description="A topic filter with `+` and `#`, as subscribers have them.",
    ),
]
AfterName = Annotated[
    str | Unset, Query(description="The name after which to continue: `next` of the last response.")
]
CursorText = Annotated[
    str | Unset,
    Query(json_schema_extra={"format": "cursor"}, description="The cursor after which to begin."),
]
TopicPath = Annotated[
    str,
    Path(
        min_length=1,
        examples=["garden/pond"],
        json_schema_extra={"format": "topic-path"},
        description="A topic; its slashes may be written as they are, or as `%2F`.",
    ),
]
TopicName = Annotated[
    str,
    Query(
        min_length=1,
        examples=["garden/pond"],
        json_schema_extra={"format": "topic"},
        description="A topic, also one that no path can name: with a level `..` or a control character.",
    ),
]


async def read_json(request: Request, shape: type[T]) -> T:
    """Read and decode the body of a request.

    Raises:
        UnsupportedMedia: another content type.
        TooLarge: too many bytes.
        InvalidRequest: not JSON, or not of this shape.
    """
    return decode(Decoder(shape), await read_body(request))


async def read_body(request: Request) -> bytes:
    """Read a body that should be JSON.

    Raises:
        UnsupportedMedia: another content type.
        TooLarge: too many bytes.
    """
    media = media_of(request)
    if media not in ("", JSON, FORM):
        raise UnsupportedMedia(f"this is {media}: send {JSON}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BYTES:
            raise TooLarge(f"such a body may have {MAX_BYTES} bytes")
    return bytes(body)


def media_of(request: Request) -> str:
    """Return the content type of a body without parameters; empty if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def takes_json(shape: type, example: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of such a body, for `openapi_extra`."""
    content = {JSON: {"schema": reference_to(shape), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


async def respond_by(handler: Handler, request: Request) -> Response:
    """Return the response of a hot handler to a request of the application."""
    scope = request.scope
    response: Future[Response] = get_running_loop().create_future()

    def respond(status: int, body: bytes, content_type: str, headers: Headers) -> None:
        if not response.done():  # the caller may have gone
            response.set_result(Response(body, status, dict(headers), content_type if body else None))

    hot = HostedRequest(
        request.state.peer,
        scope["scheme"],
        request.method,
        scope["path"],
        scope["query_string"],
        list(scope["headers"]),
        respond,
    )
    hot.identity = request.state.identity
    hot.body = await request.body()
    handler(hot)
    try:
        return await response
    finally:
        hot.is_disconnected = True
