"""GET /api/v1/drops: messages that were not delivered recently, to which client and why."""

from asyncio import Event, sleep
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response
from msgspec import Struct

from penstock.core.diagnostics.ledger import Ledger, Row
from penstock.doors.web.admin.why import RowShape, row_facts
from penstock.doors.web.context import Web
from penstock.doors.web.support.paging import make_rows
from penstock.doors.web.support.requests import DEFAULT_LIMIT, Limit, Unset, admin_of, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.errors import NotAuthorized
from penstock.model import Reason

ROWS_A_SLICE = 2_000
"""Records checked in one turn of the loop."""

Numbered = tuple[int, Row]


class DropShape(RowShape, omit_defaults=True, kw_only=True):
    """A record of messages of a topic that a client did not get."""

    number: int
    """Number of the record, by its beginning; a record that grows keeps it."""
    topic: str


class DropPage(Struct):
    """Records, the newest first. `total` counts all records."""

    drops: list[DropShape]
    next: int | None
    total: int
    rows_forgotten: int
    """Records dropped because there were too many."""


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("clients", "/api/v1", admin_of(web))
    ledger, clients = web.broker.ledger, web.broker.clients

    @router.get(
        "/drops",
        summary="What was not delivered, the latest first, a page at a time",
        description="A record is a range of messages of one topic that one client did not get for one "
        "reason. Where nothing but offsets is known of them the topic is empty.",
        responses=describe(DropPage, NotAuthorized),
    )
    async def drops(
        topic: Annotated[
            str | Unset,
            Query(min_length=1, examples=["garden/pond"], description="Only what this topic had."),
        ] = None,
        client: Annotated[
            str | Unset, Query(min_length=1, examples=["pump-7"], description="Only what this client lost.")
        ] = None,
        reason: Annotated[
            Reason | Unset, Query(examples=["outbox-full"], description="Only what was lost for this reason.")
        ] = None,
        after: Annotated[
            int | Unset,
            Query(ge=0, le=2**63 - 1, description="Where to continue: `next` of the last response."),
        ] = None,
        limit: Limit = DEFAULT_LIMIT,
    ) -> Response:
        def is_wanted(row: Row) -> bool:
            return (
                (topic is None or row.topic == topic)
                and (client is None or client in (row.client_id, clients.client_of(row.client_id)))
                and (reason is None or row.reason is reason)
            )

        recorded = Event()
        web.broker.when_losses_recorded(recorded.set)
        await recorded.wait()
        found = await _find(ledger, is_wanted, after, limit + 1)
        rows = await make_rows(found[:limit], shape)
        following = rows[-1].number if len(found) > limit else None
        return json_response(DropPage(rows, following, ledger.rows_known, ledger.rows_forgotten))

    def shape(numbered: Numbered) -> DropShape:
        number, row = numbered
        facts = {**row_facts(row), "client_id": clients.client_of(row.client_id)}
        return DropShape(number=number, topic=row.topic, **facts)

    return router


async def _find(
    ledger: Ledger, is_wanted: Callable[[Row], bool], before: int | None, limit: int
) -> list[Numbered]:
    """The first records before a number that are wanted; a slice of them in each turn of the loop."""
    found: list[Numbered] = []
    while len(found) < limit and (some := ledger.rows_before(before, ROWS_A_SLICE)):
        found += [numbered for numbered in some if is_wanted(numbered[1])]
        before = some[-1][0]
        await sleep(0)
    return found[:limit]
