"""/api/v1/clients: known clients, connected or not; and the end of a connection."""

from typing import Annotated, Any, Protocol, runtime_checkable

import structlog
from fastapi import APIRouter, Path, Query, Response
from msgspec import Struct

from penstock.core.access.access import ADMIN_FILTER
from penstock.core.sessions.session import FOREVER, Session
from penstock.doors.web.context import Web
from penstock.doors.web.support.paging import find_page, make_rows
from penstock.doors.web.support.requests import (
    DEFAULT_LIMIT,
    AfterName,
    Limit,
    Search,
    Unset,
    Who,
    admin_of,
    router_of,
)
from penstock.doors.web.support.responses import describe, json_response
from penstock.doors.web.support.schemas import Time, time_text
from penstock.errors import NotAuthorized, UnknownClient
from penstock.model import Door, Policy
from penstock.net.door import Peer

log = structlog.get_logger("penstock.web")

ClientId = Annotated[
    str,
    Path(
        min_length=1,
        examples=["pump-7"],
        json_schema_extra={"format": "client-id"},
        description="The id of a client; a slash in it may be written as it is.",
    ),
]


@runtime_checkable
class Located(Protocol):
    """A connection that knows where its other end is."""

    @property
    def peer(self) -> Peer | None: ...


class SubscriptionShape(Struct):
    """One filter of a client, and its options."""

    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None
    marks: bool
    policy: Policy


class WillShape(Struct):
    """Will, published when the client is lost."""

    topic: str
    qos: int
    retain: bool
    payload_bytes: int
    delay_s: float


class ClientShape(Struct, kw_only=True):
    """One client, and what waits for it."""

    client_id: str
    user: str | None
    door: Door
    address: str | None
    """Host and port of its connection; null if it has none."""
    connected: bool
    connected_at: Time | None
    """Since when, if it is connected."""
    left_at: Time | None
    """When it disconnected, if it is offline."""
    expires_at: Time | None
    """When its session expires, if it stays offline."""
    expiry_s: float
    """Session expiry interval after its connection ends."""
    subscriptions: int
    waiting_messages: int
    waiting_bytes: int
    owed_messages: int
    in_flight: int
    is_slow: bool
    """Something waits for it for too long, or was dropped; `/api/v1/slow` has more."""
    has_will: bool


class ClientDetail(ClientShape, kw_only=True):
    """One client with its filters and its will."""

    filters: list[SubscriptionShape]
    will: WillShape | None


class Dismissal(Struct):
    """Outcome of a disconnect."""

    client_id: str
    disconnected: bool
    """False if there was none."""
    session_ended: bool = False
    """Its client id is free."""


class ClientPage(Struct):
    """Clients by id. `matching` counts all pages, `total` all clients."""

    clients: list[ClientShape]
    next: str | None
    matching: int
    total: int


def routes(web: Web) -> APIRouter:
    """Routes of this module."""
    router = router_of("clients", "/api/v1", admin_of(web))
    sessions, watched = web.broker.sessions, web.broker.slow_consumers.watched

    @router.get(
        "/clients",
        summary="Clients by id, a page at a time",
        responses=describe(ClientPage, NotAuthorized),
    )
    async def clients(
        search: Search = None,
        connected: Annotated[
            bool | Unset, Query(description="Only connected clients, or only offline ones.")
        ] = None,
        after: AfterName = None,
        limit: Limit = DEFAULT_LIMIT,
    ) -> Response:
        def is_wanted(client_id: str) -> bool:
            session = sessions.get(client_id)
            if session is None or (search is not None and search not in client_id):
                return False
            return connected is None or connected is (session.connection is not None)

        page = await find_page(list(sessions), is_wanted, after or "", limit)
        rows = await make_rows([each for each in map(sessions.get, page.names) if each is not None], _row)
        return json_response(ClientPage(rows, page.next, page.matching, len(sessions)))

    @router.get(
        "/clients/{client_id:path}",
        summary="One client, with its subscriptions",
        responses=describe(ClientDetail, NotAuthorized, UnknownClient),
    )
    async def client(client_id: ClientId) -> Response:
        return json_response(_detail(_find(client_id)))

    @router.delete(
        "/clients/{client_id:path}",
        summary="End the connection of a client",
        description="Its session stays if it outlives connections, and it may connect again; with "
        "`end_session` the session ends, too, connected or not, and any user may have its client id. For "
        f"those who may publish to `{ADMIN_FILTER}`.",
        responses=describe(Dismissal, NotAuthorized, UnknownClient),
    )
    async def disconnect(
        client_id: ClientId,
        who: Who,
        end_session: Annotated[bool, Query(description="End the session, too.")] = False,
    ) -> Response:
        if not web.broker.access.may_publish(who, ADMIN_FILTER):
            raise NotAuthorized(f"this needs the right to publish to {ADMIN_FILTER}")
        session = _find(client_id)
        is_ended = web.broker.dismiss(session, ends_session=end_session)
        if end_session:
            log.info("session ended on request", client_id=client_id, user=who.user)
        elif is_ended:
            log.info("client disconnected on request", client_id=client_id, user=who.user)
        return json_response(Dismissal(client_id, is_ended, end_session))

    def _find(client_id: str) -> Session:
        session = sessions.get(client_id)
        if session is None:
            raise UnknownClient(f"there is no session of {client_id}")
        return session

    def _row(session: Session) -> ClientShape:
        return ClientShape(**_facts(session))

    def _detail(session: Session) -> ClientDetail:
        return ClientDetail(**_facts(session), filters=_filters(session), will=_will(session))

    def _facts(session: Session) -> dict[str, Any]:
        is_connected, outbox = session.connection is not None, session.outbox
        left_at = None if is_connected or session.left_at is None else session.left_at
        return {
            "client_id": session.client_id,
            "user": session.identity.user,
            "door": session.door,
            "address": _address(session),
            "connected": is_connected,
            "connected_at": time_text(session.connected_at) if is_connected else None,
            "left_at": None if left_at is None else time_text(left_at),
            "expires_at": None if left_at is None else _expiry_text(left_at, session.expiry),
            "expiry_s": session.expiry,
            "subscriptions": len(session.subscriptions),
            "waiting_messages": len(outbox) if outbox else 0,
            "waiting_bytes": outbox.bytes if outbox else 0,
            "owed_messages": len(session.offline_queue) if session.offline_queue else 0,
            "in_flight": len(session.inflight) if session.inflight else 0,
            "is_slow": (watch := watched.get(session)) is not None and watch.is_slow,
            "has_will": session.will is not None,
        }

    return router


def _address(session: Session) -> str | None:
    """Return the address of a client, if its door knows it."""
    sink = session.connection
    peer = sink.peer if isinstance(sink, Located) else None
    return str(peer) if peer is not None and peer.host else None


def _expiry_text(left_at: int, expiry_s: float) -> str | None:
    """Return when a session expires that disconnected at this time."""
    return None if expiry_s == FOREVER else time_text(left_at + round(expiry_s * 1_000_000))


def _filters(session: Session) -> list[SubscriptionShape]:
    return [
        SubscriptionShape(
            each.filter,
            each.options.qos,
            each.options.no_local,
            each.options.retain_as_published,
            each.options.identifier or None,
            each.options.marks,
            each.policy,
        )
        for each in session.subscriptions.values()
    ]


def _will(session: Session) -> WillShape | None:
    will = session.will
    if will is None:
        return None
    return WillShape(will.topic, will.qos, will.retain, len(will.payload), will.delay)
