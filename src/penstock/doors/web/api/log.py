"""GET /api/v1/log: the log in bulk, as one Arrow stream; positions in it, and ranges to read side by side."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from penstock.common.statement import Gap
from penstock.common.topics import ALL_LEVELS, check_filter, matches, split_share
from penstock.core.access.identity import Identity
from penstock.core.ports.archive import Archive, Portions
from penstock.core.ports.log import Wanted
from penstock.doors.web.context import Web
from penstock.doors.web.reading.bulk import BulkRead, BulkRequest, BulkResponse, ReaderSlots
from penstock.doors.web.reading.history_page import EARLIEST, LATEST
from penstock.doors.web.reading.positions import LogPositions
from penstock.doors.web.support.requests import Unset, Who, is_admin, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import GapShape, microseconds, time_text
from penstock.errors import (
    InvalidCursor,
    InvalidFilter,
    InvalidRequest,
    NoLog,
    NotAcceptable,
    NotAuthorized,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
)
from penstock.model import is_public
from penstock.net.http.response import preferred
from penstock.wire.arrow import LOG_COLUMNS, MEDIA_TYPE

MOST_PARTS = 10_000
MOST_FILTERS = 100
MOST_ROWS = MOST_BYTES = 2**63 - 1
"""Largest offset."""

After = Annotated[str | Unset, Query(description="A cursor: begin behind it.")]
Until = Annotated[str | Unset, Query(description="A cursor: go no further than this.")]
Filters = Annotated[
    list[str],
    Query(
        max_length=MOST_FILTERS,
        description="Only topics that match one of these; without any, all that do not begin with `$`.",
    ),
]
LimitRows = Annotated[int | Unset, Query(ge=1, le=MOST_ROWS, description="Most rows.")]
LimitBytes = Annotated[
    int | Unset,
    Query(
        ge=1,
        le=MOST_BYTES,
        description="Most bytes, as stored; if the first batch has more already, no more than that.",
    ),
]


class PositionShape(Struct, omit_defaults=True):
    """A place in the log."""

    cursor: str
    offset: int
    epoch: int
    log_id: str
    time: str | None = None
    """The requested time."""
    lag_rows: int | None = None
    """Most rows between the given cursor and this position."""


class RangeShape(Struct):
    """A part of the log, to be read with its two cursors."""

    after: str
    until: str
    rows: int
    """There may be fewer, but not more."""
    bytes: int
    """As stored, about."""


class RangesShape(Struct):
    """Parts that meet: where one ends the next begins."""

    after: str
    until: str
    rows: int
    ranges: list[RangeShape]
    gaps: list[GapShape]
    """Gaps, as far as known without reading the rows."""


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("log", "/api/v1/log")
    broker = web.broker
    seats = ReaderSlots(lambda: broker.settings.log.max_readers)

    @router.get(
        "",
        summary="Messages of the log, oldest first, as one Arrow IPC stream",
        description="The last batch has no rows; its metadata has the statement, under `penstock.statement`.",
        responses=describe(
            bytes,
            InvalidCursor,
            InvalidFilter,
            NoLog,
            NotAcceptable,
            QuotaExceeded,
            StorageUnavailable,
            media=MEDIA_TYPE,
        ),
    )
    async def log(
        request: Request,
        who: Who,
        after: After = None,
        start: Annotated[
            str | Unset,
            Query(alias="from", description=f"`{EARLIEST}` (default), `{LATEST}`, or a time to begin at."),
        ] = None,
        until: Until = None,
        filter: Filters = [],  # noqa: B006 - FastAPI copies it
        columns: Annotated[
            str | Unset, Query(description="Columns by name, with commas between them; all if not given.")
        ] = None,
        limit_rows: LimitRows = None,
    ) -> Response:
        if preferred(request.headers.get("accept"), [MEDIA_TYPE]) is None:
            raise NotAcceptable(f"the log comes as {MEDIA_TYPE}")
        archive, places = opened(web)
        if web.is_draining():
            raise ShuttingDown("the server is about to stop")
        check_rights = rights_of(web, who, filter)
        chosen = None if columns is None else choose_columns(columns)
        stretch = await places.stretch(after, start, until)
        wish = BulkRequest(stretch, wanted_by(filter), chosen, limit_rows)
        seat = seats.one(who.user, is_admin=is_admin(web, who))
        read_timeout_s = broker.settings.log.read_timeout_s
        return BulkResponse(BulkRead(archive, places, wish), seat, check_rights, read_timeout_s)

    @router.get(
        "/position",
        summary="A place in the log, and how far behind it a cursor is",
        responses=describe(PositionShape, InvalidCursor, InvalidFilter, NoLog, StorageUnavailable),
    )
    async def position(
        who: Who,
        at: Annotated[str, Query(description=f"`{EARLIEST}`, `{LATEST}`, or a time.")] = LATEST,
        after: Annotated[str | Unset, Query(description="A cursor: count what lies behind it.")] = None,
        filter: Filters = [],  # noqa: B006
    ) -> Response:
        archive, places = opened(web)
        rights_of(web, who, filter)
        place = await places.at(at)
        lag_rows = None
        if after is not None:
            behind = min(places.at_cursor(after).offset, place.offset)
            (whole,) = (await archive.portions(behind, place.offset, 1, wanted_by(filter))).parts
            lag_rows = whole.rows
        return json_response(
            PositionShape(
                places.cursor(place.offset).encode(),
                place.offset,
                archive.epoch,
                archive.log_id,
                None if at in (EARLIEST, LATEST) else time_text(microseconds(at)),
                lag_rows,
            )
        )

    @router.get(
        "/ranges",
        summary="A part of the log in ranges of about the same size",
        description="They are cut where stored batches end, so that each is read without being converted.",
        responses=describe(RangesShape, InvalidCursor, InvalidFilter, NoLog, StorageUnavailable),
    )
    async def ranges(
        who: Who,
        after: After = None,
        start: Annotated[
            str | Unset,
            Query(alias="from", description=f"`{EARLIEST}` (default), `{LATEST}`, or a time to begin at."),
        ] = None,
        until: Until = None,
        filter: Filters = [],  # noqa: B006
        parts: Annotated[int, Query(ge=1, le=MOST_PARTS, description="Most ranges.")] = 1,
        limit_rows: LimitRows = None,
        limit_bytes: LimitBytes = None,
    ) -> Response:
        archive, places = opened(web)
        rights_of(web, who, filter)
        stretch = await places.stretch(after, start, until)
        portions = await archive.portions(
            stretch.after, stretch.until, parts, wanted_by(filter), limit_rows, limit_bytes
        )
        is_whole = portions.parts[-1].until >= stretch.until
        gaps = stretch.lost + portions.gaps + (stretch.lost_at_end if is_whole else ())
        return json_response(ranges_shape(portions, gaps, places))

    return router


def ranges_shape(portions: Portions, gaps: Iterable[Gap], places: LogPositions) -> RangesShape:
    """Portions as their readers name them."""
    first = places.cursor(portions.parts[0].after).encode()
    cursors = [places.cursor(portion.until).encode() for portion in portions.parts]
    return RangesShape(
        first,
        cursors[-1],
        sum(portion.rows for portion in portions.parts),
        [
            RangeShape(begin, end, portion.rows, portion.bytes)
            for begin, end, portion in zip([first, *cursors], cursors, portions.parts, strict=False)
        ],
        [GapShape(gap.first, gap.last, gap.reason) for gap in gaps],
    )


def opened(web: Web) -> tuple[Archive, LogPositions]:
    """Return the log, and positions in it.

    Raises:
        NoLog: the server has no data directory.
    """
    if web.archive is None:
        raise NoLog("this server keeps no log; start it with --data-dir")
    return web.archive, LogPositions(web.archive, web.broker)


def rights_of(web: Web, who: Identity, filters: Sequence[str]) -> Callable[[], None]:
    """Check filters and the right to subscribe to them; return a function to check again.

    Raises:
        InvalidFilter: not a valid filter.
        NotAuthorized: beyond the caller's rights.
    """
    access = web.broker.access
    for each in filters:
        check_filter(each, web.broker.settings.topic)
        if split_share(each)[0] is not None:
            raise InvalidFilter(f"{each}: a log is not shared; leave out the group")
    generation = None

    def check() -> None:
        nonlocal generation
        if generation == access.generation:
            return
        for each in filters or (ALL_LEVELS,):
            if not (access.is_known(who) and access.may_subscribe(who, each)):
                raise NotAuthorized(f"not allowed to read {each}")
        generation = access.generation

    check()
    return check


def wanted_by(filters: Sequence[str]) -> Wanted:
    """Return a predicate for topics; those that begin with `$` need a filter that names them."""
    if not filters or ALL_LEVELS in filters:
        reserved = [each for each in filters if each.startswith("$")]
        if not reserved:
            return is_public
        return lambda topic: is_public(topic) or any(matches(each, topic) for each in reserved)
    return lambda topic: any(matches(each, topic) for each in filters)


def choose_columns(text: str) -> tuple[str, ...]:
    """Return columns by name.

    Raises:
        InvalidRequest: an unknown name, or one given twice.
    """
    columns = tuple(name.strip() for name in text.split(","))
    for name in columns:
        if name not in LOG_COLUMNS:
            raise InvalidRequest(f"there is no column {name!r}; the columns are {', '.join(LOG_COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise InvalidRequest("a column was given twice")
    return columns
