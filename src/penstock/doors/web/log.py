"""GET /api/v1/log: the log in bulk, as one Arrow stream; positions in it, and ranges to read side by side."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from penstock.core.archive import LOG_COLUMNS, Archive, Portions
from penstock.core.identity import Identity
from penstock.core.ports import Gap, Wanted
from penstock.core.topics import ALL_LEVELS, check_filter, matches, split_share
from penstock.doors.web.answers import describe, json_answer
from penstock.doors.web.bulk import BulkAnswer, BulkRead, Seats, Wish
from penstock.doors.web.context import Web
from penstock.doors.web.media import preferred
from penstock.doors.web.parameters import Unset, Who, is_admin, router_of
from penstock.doors.web.places import Places
from penstock.doors.web.reading import EARLIEST, LATEST
from penstock.doors.web.shapes import GapShape
from penstock.doors.web.times import microseconds, time_text
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
from penstock.wire.arrow import MEDIA_TYPE

MOST_PARTS = 10_000
MOST_FILTERS = 100
MOST_ROWS = MOST_BYTES = 2**63 - 1
"""There are no more offsets."""

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
    """The time that was asked for."""
    lag_rows: int | None = None
    """How many rows there are between the cursor that was given and here, at most."""


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
    """What is missing, as far as that is known without a look at the rows."""


def routes(web: Web) -> APIRouter:
    """What this module answers."""
    router = router_of("log", "/api/v1/log")
    broker = web.broker
    seats = Seats(lambda: broker.settings.log.max_readers)

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
        wish = Wish(stretch, wanted_by(filter), chosen, limit_rows)
        seat = seats.one(who.user, is_admin=is_admin(web, who))
        read_timeout_s = broker.settings.log.read_timeout_s
        return BulkAnswer(BulkRead(archive, places, wish), seat, check_rights, read_timeout_s)

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
        return json_answer(
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
        return json_answer(ranges_shape(portions, gaps, places))

    return router


def ranges_shape(portions: Portions, gaps: Iterable[Gap], places: Places) -> RangesShape:
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


def opened(web: Web) -> tuple[Archive, Places]:
    """The log, and the places in it.

    Raises:
        NoLog: this server keeps none.
    """
    if web.archive is None:
        raise NoLog("this server keeps no log; start it with --data-dir")
    return web.archive, Places(web.archive, web.broker)


def rights_of(web: Web, who: Identity, filters: Sequence[str]) -> Callable[[], None]:
    """Refuse filters that are none, or that somebody may not subscribe to; answer how to ask that again.

    Raises:
        InvalidFilter: one breaks a rule or a limit.
        NotAuthorized: one reaches further than the caller's rights.
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
    """Whether a topic is asked for; those that begin with `$` are only where a filter names them."""
    if not filters or ALL_LEVELS in filters:
        reserved = [each for each in filters if each.startswith("$")]
        if not reserved:
            return is_public
        return lambda topic: is_public(topic) or any(matches(each, topic) for each in reserved)
    return lambda topic: any(matches(each, topic) for each in filters)


def choose_columns(text: str) -> tuple[str, ...]:
    """Columns by name.

    Raises:
        InvalidRequest: there is none of a name, or it comes twice.
    """
    columns = tuple(name.strip() for name in text.split(","))
    for name in columns:
        if name not in LOG_COLUMNS:
            raise InvalidRequest(f"there is no column {name!r}; the columns are {', '.join(LOG_COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise InvalidRequest("a column was given twice")
    return columns
