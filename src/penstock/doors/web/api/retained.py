"""GET /api/v1/retained: the last values of topics, by filter, or one as it is; DELETE removes one."""

import re
from collections.abc import Callable, Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from penstock.common.topics import ALL_LEVELS, check_topic
from penstock.core.access.identity import Identity
from penstock.core.replay.message_ids import Epochs
from penstock.core.topics.retained_value import RetainedValue
from penstock.doors.web.context import Web
from penstock.doors.web.publishing import send
from penstock.doors.web.support.paging import find_page, make_rows
from penstock.doors.web.support.requests import (
    DEFAULT_LIMIT,
    AfterName,
    Filter,
    Limit,
    TopicName,
    TopicPath,
    Unset,
    Who,
    check_plain_filter,
    respond_by,
    router_of,
)
from penstock.doors.web.support.responses import BINARY, UNSNIFFED, describe, json_response
from penstock.doors.web.support.schemas import Messages, MessageShape, time_text
from penstock.errors import (
    InvalidFilter,
    InvalidRequest,
    InvalidTopic,
    NotAuthorized,
    StorageUnavailable,
    UnknownTopic,
)
from penstock.model import Door
from penstock.net.http.errors import JSON
from penstock.net.http.request import Request as HotRequest
from penstock.runs import Run, bare_shape

BYTES = "application/octet-stream"
NO_CONTENT = 204
REMOVAL = """\
An empty retained message is published to the topic, as MQTT clients remove a value. So that needs the right
to publish, and subscribers get the message. The response comes after the commit."""
PAGE_BYTES = 4 << 20
"""A page ends at about this size, however few values it has."""
SAFE_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    **UNSNIFFED,
}
"""A value may be a web page with scripts, from any publisher: it must not act as a page of this server."""

_MEDIA_TYPE = re.compile(
    r"[\w!#$&^.+-]+/[\w!#$&^.+-]+( *; *[\w!#$&^.+-]+=([\w!#$&^.+-]+|\"[ !#-\[\]-~]*\"))*", re.A
)


class RetainedPage(Struct):
    """Values by the name of their topic; `matching` counts all pages."""

    retained: list[MessageShape]
    next: str | None
    matching: int


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("read", "/api/v1")
    broker = web.broker

    def value_of(name: str) -> RetainedValue | None:
        """The value of a topic, if it has one that is still alive."""
        topic = broker.topics.get(name)
        value = None if topic is None else topic.retained
        is_over = value is not None and value.is_expired(web.clock.monotonic())
        return None if is_over else value

    def one(who: Identity, topic: str) -> Response:
        """The value of a topic as it is."""
        check_topic(topic, broker.settings.topic)
        if not _may_read(web, who, topic):
            raise NotAuthorized(f"not allowed to read {topic}")
        found = value_of(topic)
        if found is None:
            raise UnknownTopic(f"there is no retained value on {topic}")
        stamps = {
            "Penstock-Sequence": str(found.sequence),
            "Penstock-Epoch": str(Epochs(broker.log).of(found.offset)),
            "Penstock-Cursor": broker.history.cursor(found.offset).encode(),
            "Penstock-Published-At": time_text(found.published_at),
        }
        kind = {"Content-Type": _media_of(found)}  # a `media_type` would be given a character set
        return Response(found.payload(), 200, stamps | SAFE_HEADERS | kind)

    responses = describe(RetainedPage, InvalidFilter, InvalidTopic, NotAuthorized, UnknownTopic)
    page, any_value = responses[200]["content"][JSON]["schema"], {"description": "The value of a topic."}
    responses[200]["content"][JSON]["schema"] = {"anyOf": [page, any_value]}
    responses[200]["content"]["*/*"] = {"schema": BINARY}
    one_value = describe(bytes, InvalidTopic, NotAuthorized, UnknownTopic, media="*/*")
    one_value[200]["content"][JSON] = {"schema": {}}  # any value, where that is what was published

    @router.get(
        "/retained",
        summary="Retained values by topic, a page at a time, or the value of one topic",
        description="Only those that the caller may read. Values of topics that begin with `$` are named "
        "only when the filter begins with `$`. With `topic`, and nothing else, the value of that topic as "
        "`/api/v1/retained/{topic}` has it.",
        responses=responses,
    )
    async def retained(
        request: Request,
        who: Who,
        filter: Filter = None,
        after: AfterName = None,
        limit: Limit = DEFAULT_LIMIT,
        topic: Annotated[
            str | Unset,
            Query(
                min_length=1,
                json_schema_extra={"format": "topic"},
                description="The one topic whose value is wanted, also one that no path can name.",
            ),
        ] = None,
    ) -> Response:
        if topic is not None:
            if len(request.query_params) > 1:
                raise InvalidRequest("with a topic there is one value, and nothing else to ask for")
            return one(who, topic)
        filter = filter or ALL_LEVELS
        check_plain_filter(filter, broker.settings.topic)
        names = (None if each is None else each.name for each in broker.retained.match(filter))
        page = await find_page(
            names, lambda name: value_of(name) is not None and _may_read(web, who, name), after or "", limit
        )
        shapes = Messages(broker, web.clock)
        runs = [value.run(name) for name in page.names if (value := value_of(name)) is not None]
        fitting = list(_fitting(runs))
        rows = await make_rows(fitting, shapes.shape)
        is_short = len(fitting) < len(runs)
        return json_response(RetainedPage(rows, fitting[-1].topic if is_short else page.next, page.matching))

    @router.get(
        "/retained/{topic:path}",
        summary="The retained value of a topic",
        description="The payload as it was published, with its content type; where it stands is in the "
        "headers `Penstock-Sequence`, `Penstock-Epoch`, `Penstock-Cursor` and `Penstock-Published-At`.",
        response_class=Response,
        responses=one_value,
    )
    async def value(who: Who, topic: TopicPath) -> Response:
        return one(who, topic)

    _add_removal(router, web, value_of)
    return router


def _add_removal(router: APIRouter, web: Web, value_of: Callable[[str], RetainedValue | None]) -> None:
    """Add the routes that remove a value."""
    broker = web.broker

    async def remove(request: Request, who: Identity, topic: str) -> Response:
        """Publish an empty retained message, which removes the value; its subscribers get it, too."""
        check_topic(topic, broker.settings.topic)
        if not broker.access.may_publish(who, topic):
            raise NotAuthorized(f"not allowed to publish to {topic}")
        if value_of(topic) is None:
            raise UnknownTopic(f"there is no retained value on {topic}")
        run = Run(topic, b"", 0, 0, 1, bare_shape(Door.WEB, 1, retain=True))

        def publish(hot: HotRequest) -> None:
            send(broker, hot, run, lambda done, _: done.respond(NO_CONTENT), HotRequest.fail)

        return await respond_by(publish, request)

    removal = describe(
        None,
        InvalidTopic,
        NotAuthorized,
        UnknownTopic,
        StorageUnavailable,
        status=NO_CONTENT,
        text="Removed.",
    )

    @router.delete(
        "/retained",
        status_code=NO_CONTENT,
        summary="Remove the retained value of a topic, also of one that no path can name",
        description=REMOVAL,
        response_class=Response,
        responses=removal,
    )
    async def remove_named(request: Request, who: Who, topic: TopicName) -> Response:
        return await remove(request, who, topic)

    @router.delete(
        "/retained/{topic:path}",
        status_code=NO_CONTENT,
        summary="Remove the retained value of a topic",
        description=REMOVAL,
        response_class=Response,
        responses=removal,
    )
    async def remove_value(request: Request, who: Who, topic: TopicPath) -> Response:
        return await remove(request, who, topic)


def _may_read(web: Web, who: Identity, topic: str) -> bool:
    return web.broker.access.may_read(who, topic)


def _fitting(runs: list[Run]) -> Iterator[Run]:
    """As many values as a page takes, at least one."""
    size = 0
    for run in runs:
        if size >= PAGE_BYTES:
            return
        size += len(run.slab)
        yield run


def _media_of(value: RetainedValue) -> str:
    """Return the content type of a value if it is valid: publishers may send any text."""
    properties = None if value.extras is None else value.extras.properties
    given = None if properties is None else properties.content_type
    return given if given is not None and _MEDIA_TYPE.fullmatch(given) else BYTES
