"""GET /api/v1/topics/tree: topics level by level.

Core has the levels sorted, so a page of them needs no look at the topics of others. What a caller may read
only in part is counted topic by topic, some in each turn of the loop, and only where a rule could match.
"""

from asyncio import sleep
from contextlib import suppress
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from msgspec import Meta, Raw, Struct

from penstock.common.topics import SEPARATOR, check_topic
from penstock.core.access.identity import Identity
from penstock.core.topics.topic import Topic
from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import AfterName, Unset, Who, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import Time, time_text
from penstock.errors import InvalidTopic, NotAuthorized, StorageUnavailable
from penstock.runs import Run
from penstock.wire.json_values import encode_value

DEFAULT_LIMIT = 200
MAX_LIMIT = 1_000
LEVELS_A_SLICE = 50
"""Levels that are described in one turn of the loop."""
NAMES_A_SLICE = 250
"""Topics whose rights are checked in one turn of the loop."""
MOST_COUNTED = 1_000
"""Readable topics of a level that are counted one by one."""
MOST_DATA_BYTES = 1_024
"""Larger payloads are left out."""
EVERYTHING = ("#", "$SYS/#", "$penstock/#")
"""Filters that match all topics."""
RATE_WINDOW_US = 10_000_000
"""Time over which the rate of a topic is measured."""

Under = Annotated[
    str | Unset,
    Query(
        json_schema_extra={"format": "topic"},
        examples=["garden"],
        description="Path of a level; without it the first levels. An empty one is the level of topics that "
        "begin with a slash.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Most levels of the response.")]


class LastShape(Struct, omit_defaults=True):
    """Last message of a topic, if it is in memory."""

    at: Time
    sequence: int
    data: Annotated[Raw, Meta(extra_json_schema={"description": "Any JSON value."})]
    """Payload: JSON as it is, text as a string beside `encoding`, anything else as `{"$bytes": "<base64>"}`;
    null if it is left out.
    """
    size: int
    """Bytes of the payload."""
    is_cut: bool
    """The payload is too large for a list, and left out."""
    encoding: Literal["text"] | None = None


class LevelShape(Struct, kw_only=True):
    """One level, and the topic of that name, if there is one."""

    name: str
    topic: str
    """Path of the level."""
    is_topic: bool
    topics: int
    """Topics at and below it."""
    more: bool = False
    """There are more topics than were counted."""
    published: int = 0
    """Messages of this topic since the server started."""
    rate: float | None = None
    """Messages of this topic a second, in the last ten seconds; null if it is not in memory."""
    last: LastShape | None = None


class LevelPage(Struct):
    """Levels by name. `total` is the number of topics below, for callers that may read all of them."""

    under: str | None
    levels: list[LevelShape]
    next: str | None
    total: int | None


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("read", "/api/v1")
    broker = web.broker
    access, levels = broker.access, broker.topic_levels

    async def build_index() -> None:
        with suppress(StorageUnavailable):  # then those in memory are better than none
            await broker.catalog.load()
        while levels.build():  # noqa: ASYNC110 - a step in each turn of the loop
            await sleep(0)

    def may_read_all(who: Identity, path: str) -> bool:
        return access.may_subscribe(who, f"{path}{SEPARATOR}#")

    async def count_readable(who: Identity, path: str) -> tuple[int, bool]:
        """Count the topics at and below a path that a caller may read, and say if there may be more."""
        count = 0
        for block in levels.topics_of(path):
            for start in range(0, len(block), NAMES_A_SLICE):
                count += sum(access.may_read(who, name) for name in block[start : start + NAMES_A_SLICE])
                if count >= MOST_COUNTED:
                    return count, True
                await sleep(0)
        return count, False

    def describe_topic(row: LevelShape) -> None:
        topic = broker.topics.get(row.topic)
        if topic is not None:
            now_us = web.clock.wall_us()
            row.published = topic.published
            row.rate = round(topic.rate_since(now_us - RATE_WINDOW_US, now_us), 2)
            row.last = _last_of(topic, web.clock.monotonic())

    @router.get(
        "/topics/tree",
        summary="Topics level by level, a page at a time",
        description="The levels directly below a path, each with the number of topics at and below it, and "
        "the last message of the topic of that name. Only levels with topics that the caller may read.",
        responses=describe(LevelPage, InvalidTopic, NotAuthorized),
    )
    async def tree(
        who: Who, under: Under = None, after: AfterName = None, limit: Limit = DEFAULT_LIMIT
    ) -> Response:
        if under:
            check_topic(under, broker.settings.topic)
        await build_index()
        rows: list[LevelShape] = []
        found, is_complete = levels.below(under, after), False
        while not is_complete and len(rows) <= limit:
            some = list(islice(found, LEVELS_A_SLICE))
            is_complete = len(some) < LEVELS_A_SLICE
            for level in some:
                count, has_more = level.topics, False
                if not may_read_all(who, level.path):
                    if not access.may_read_below(who, level.path):
                        continue
                    count, has_more = await count_readable(who, level.path)
                if count and len(rows) <= limit:
                    is_topic = level.is_topic and access.may_read(who, level.path)
                    row = LevelShape(
                        name=level.name, topic=level.path, is_topic=is_topic, topics=count, more=has_more
                    )
                    if is_topic:
                        describe_topic(row)
                    rows.append(row)
            await sleep(0)
        following = rows[limit - 1].name if len(rows) > limit else None
        total = levels.count_below(under) if _may_read_all_below(who, under) else None
        return json_response(LevelPage(under, rows[:limit], following, total))

    def _may_read_all_below(who: Identity, under: str | None) -> bool:
        if under is not None:
            return may_read_all(who, under)
        return all(access.may_subscribe(who, filter) for filter in EVERYTHING)

    return router


def _last_of(topic: Topic, now: float) -> LastShape | None:
    run: Run | None = topic.newest
    if run is None or run.is_expired(now):
        return None
    payload = run.payload(run.count - 1)
    is_cut = len(payload) > MOST_DATA_BYTES
    data, encoding = (Raw(b"null"), None) if is_cut else encode_value(payload)
    return LastShape(time_text(run.published_at), run.last_sequence, data, len(payload), is_cut, encoding)
