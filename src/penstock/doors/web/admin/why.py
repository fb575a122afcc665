"""GET /api/v1/why: what became of a message, and why a client did not get it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from msgspec import Struct

from penstock.common.topics import check_topic
from penstock.core.diagnostics.ledger import Row
from penstock.core.diagnostics.why import check_asker, explain
from penstock.core.diagnostics.why_types import Code, Explanation, Published, Waiting
from penstock.doors.web.context import Web
from penstock.doors.web.support.requests import Unset, Who, router_of
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import Time, time_text
from penstock.errors import InvalidTopic, NotAuthorized
from penstock.model import Door, Policy, Reason


class RowShape(Struct, omit_defaults=True):
    """A record of messages that a client did not get; a shared group is named by its filter."""

    client_id: str
    reason: Reason
    first: int
    last: int
    count: int
    first_at: Time
    last_at: Time
    policy: Policy | None = None
    setting: str = ""
    counts_offsets: bool = False
    """Nothing but offsets is known of these messages, so `first` and `last` are such."""


class PublishedShape(Struct, omit_defaults=True):
    """The message itself, or why it is not there any more."""

    published_at: Time | None = None
    client_id: str | None = None
    qos: int | None = None
    retain: bool | None = None
    door: Door | None = None
    missing: Reason | None = None


class WaitingShape(Struct):
    """Queue that it waits in, and the number of messages before it."""

    client_id: str
    place: str
    ahead: int
    connected: bool


class Why(Struct, kw_only=True):
    """A verdict by its code, the same in a sentence, and the facts it rests on."""

    topic: str
    sequence: int
    client_id: str | None
    code: Code
    text: str
    newest: int
    """The last sequence of the topic."""
    message: PublishedShape | None
    rows: list[RowShape]
    """Recorded failures of its delivery."""
    waiting: list[WaitingShape]
    filters: list[str]
    """The client's subscriptions that match the topic now."""
    rows_forgotten: int
    """Records of any message that were dropped because there were too many."""
    truncated: bool
    """There are more records, or more queues."""


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("clients", "/api/v1")

    @router.get(
        "/why",
        summary="Why a client did not get a message",
        description="With a client, one verdict for it; without one, every client that did not get the "
        "message or has it queued. Callers without the right to see others may ask about their own sessions.",
        responses=describe(Why, InvalidTopic, NotAuthorized),
    )
    async def why(
        who: Who,
        topic: Annotated[
            str,
            Query(
                min_length=1,
                examples=["garden/pond"],
                json_schema_extra={"format": "topic"},
                description="The message's topic.",
            ),
        ],
        sequence: Annotated[
            int, Query(ge=0, le=2**63 - 1, examples=[17], description="Its number in that topic.")
        ],
        client: Annotated[
            str | Unset,
            Query(min_length=1, examples=["pump-7"], description="Id of the client that should have got it."),
        ] = None,
    ) -> Response:
        check_topic(topic, web.broker.settings.topic)
        check_asker(web.broker, who, topic, client)
        return json_response(shape_of(await explain(web.broker, topic, sequence, client)))

    return router


def shape_of(said: Explanation) -> Why:
    """An explanation as JSON has it."""
    return Why(
        topic=said.topic,
        sequence=said.sequence,
        client_id=said.client_id,
        code=said.code,
        text=said.text,
        newest=said.newest,
        message=None if said.message is None else _message(said.message),
        rows=[RowShape(**row_facts(row)) for row in said.rows],
        waiting=[_waiting(each) for each in said.waiting],
        filters=list(said.filters),
        rows_forgotten=said.rows_forgotten,
        truncated=said.is_truncated,
    )


def _message(known: Published) -> PublishedShape:
    at = None if known.published_at is None else time_text(known.published_at)
    return PublishedShape(at, known.client_id, known.qos, known.retain, known.door, known.missing)


def row_facts(row: Row) -> dict[str, Any]:
    """A record of the ledger as JSON has it."""
    return {
        "client_id": row.client_id,
        "reason": row.reason,
        "first": row.first,
        "last": row.last,
        "count": row.count,
        "first_at": time_text(row.first_at),
        "last_at": time_text(row.last_at),
        "policy": row.policy,
        "setting": row.setting,
        "counts_offsets": not row.topic,
    }


def _waiting(each: Waiting) -> WaitingShape:
    return WaitingShape(each.client_id, each.place, each.ahead, each.is_connected)
