"""GET /api/v1/topics: which topics there are."""

import re
from asyncio import sleep
from collections.abc import Callable
from contextlib import suppress

from fastapi import APIRouter, Response
from msgspec import Struct

from penstock.common.topics import ALL_LEVELS, matches
from penstock.core.access.identity import Identity
from penstock.doors.web.context import Web
from penstock.doors.web.support.paging import NAMES_A_SLICE, find_page, make_rows
from penstock.doors.web.support.requests import (
    DEFAULT_LIMIT,
    AfterName,
    Filter,
    Limit,
    Search,
    Who,
    check_plain_filter,
    is_admin,
    router_of,
)
from penstock.doors.web.support.responses import describe, json_response
from penstock.errors import InvalidFilter, NotAuthorized, StorageUnavailable

_WILDCARDS = re.compile(r"/?[+#]")


class TopicShape(Struct):
    """One topic."""

    name: str
    sequence: int
    """Of its last message."""
    published: int
    """Messages since the server started."""
    subscribers: int
    """Offline subscribers included; a shared group counts once."""
    retained: bool
    ring_messages: int
    """Number of its last messages in memory."""
    kept: bool
    """The log stores it."""


class TopicPage(Struct):
    """Topics by name. `matching` counts all pages; `total` is for callers that may see everything."""

    topics: list[TopicShape]
    next: str | None
    matching: int
    total: int | None


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("read", "/api/v1")
    broker = web.broker

    def row_of(name: str) -> TopicShape | None:
        topic = broker.topics.get(name)
        if topic is None:
            return _dormant_row(name)
        ring = 0 if topic.ring is None else topic.ring.messages
        return TopicShape(
            name=name,
            sequence=topic.sequence,
            published=topic.published,
            subscribers=broker.subscriber_count(name),
            retained=topic.retained is not None,
            ring_messages=ring or len(topic.runs),
            kept=topic.rules.is_kept,
        )

    def _dormant_row(name: str) -> TopicShape | None:
        if not broker.is_dormant(name):  # it was forgotten a moment ago
            return None
        return TopicShape(
            name=name,
            sequence=broker.catalog.stored[name],
            published=0,
            subscribers=broker.subscriber_count(name),
            retained=False,
            ring_messages=0,
            kept=broker.topics.keeps(name),
        )

    async def names() -> list[str]:
        """All that are used, and those that only the log knows."""
        with suppress(StorageUnavailable):  # then those in memory are better than none
            await broker.catalog.load()
        known, dormant = list(broker.topics), list(broker.catalog.stored)
        for start in range(0, len(dormant), NAMES_A_SLICE):
            known += filter(broker.is_dormant, dormant[start : start + NAMES_A_SLICE])
            await sleep(0)
        return known

    @router.get(
        "/topics",
        summary="Topics by name, a page at a time",
        description="Only those that the caller may read. Topics that begin with `$` are named only "
        "when the filter or the search begins with `$`.",
        responses=describe(TopicPage, InvalidFilter, NotAuthorized),
    )
    async def topics(
        who: Who,
        search: Search = None,
        filter: Filter = None,
        after: AfterName = None,
        limit: Limit = DEFAULT_LIMIT,
    ) -> Response:
        if filter is not None:
            check_plain_filter(filter, broker.settings.topic)
        is_wanted = choose_topics(web, who, search, filter)
        known = await names()
        page = await find_page(known, is_wanted, after or "", limit)
        rows = await make_rows(page.names, row_of)
        total = len(known) if is_admin(web, who) else None
        return json_response(TopicPage(rows, page.next, page.matching, total))

    return router


def choose_topics(web: Web, who: Identity, search: str | None, filter: str | None) -> Callable[[str], bool]:
    """Return a predicate: the topic is requested, and may be read."""
    access = web.broker.access
    may_read_plain = access.may_subscribe(who, ALL_LEVELS)  # then no single check is needed
    beginning = _WILDCARDS.split(filter or "", maxsplit=1)[0]  # cheaper to check than the whole filter
    wants_reserved = any(text is not None and text.startswith("$") for text in (search, filter))

    def is_wanted(name: str) -> bool:
        is_reserved = name.startswith("$")
        if is_reserved and not wants_reserved:
            return False
        if search is not None and search not in name:
            return False
        if filter is not None and not (name.startswith(beginning) and matches(filter, name)):
            return False
        return (may_read_plain and not is_reserved) or access.may_read(who, name)

    return is_wanted
