"""/api/v1/clients: known clients, connected or not; and the end of their connections.

A client is listed once, by the id that it gives itself. Over gRPC it may have several streams and calls that
publish: its row is their sum, and its detail lists them.
"""

from typing import Annotated, Any, Protocol, runtime_checkable

import structlog
from fastapi import APIRouter, Path, Query, Response
from msgspec import Struct

from penstock.core.access.access import ADMIN_FILTER
from penstock.core.access.identity import Identity
from penstock.core.sessions.clients import PublishingCall
from penstock.core.sessions.session import FOREVER, Ending, Session
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


AnyClientId = Annotated[
    str,
    Query(
        min_length=1,
        examples=["pump-7"],
        json_schema_extra={"format": "client-id"},
        description="The id of a client, also one that no path can name.",
    ),
]
EndSession = Annotated[bool, Query(description="End the session, too.")]
ENDING = (
    "All of its connections and streams end. Its session stays if it outlives connections, and it may "
    "connect again; with `end_session` the session ends, too, connected or not, and any user may have its "
    f"client id. For those who may publish to `{ADMIN_FILTER}`."
)


Entry = Session | PublishingCall
"""One session or stream of a client, or a call by which it publishes."""
SUMS = (
    "connections",
    "subscriptions",
    "waiting_messages",
    "waiting_bytes",
    "owed_messages",
    "in_flight",
)
FLAGS = ("connected", "connected_at", "address", "is_slow", "has_will")


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
    """One client, and what waits for it; of several streams, their sums and the user of the oldest."""

    client_id: str
    user: str | None
    door: Door
    address: str | None
    """Host and port of its connection; null if it has none."""
    connected: bool
    connections: int
    """Its connection, or its open streams and the calls by which it publishes."""
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


class StreamShape(Struct, kw_only=True):
    """One session or stream of a client, or a call by which it publishes."""

    session_id: str | None
    """Unique on this server; null for a call that only publishes."""
    user: str | None
    door: Door
    address: str | None
    connected_at: Time | None
    filters: list[str]
    waiting_messages: int


class ClientDetail(ClientShape, kw_only=True):
    """One client with its filters and its will."""

    filters: list[SubscriptionShape]
    will: WillShape | None
    streams: list[StreamShape]


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
    directory, watched = web.broker.clients, web.broker.slow_consumers.watched

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
            if search is not None and search not in client_id:
                return False
            entries = _entries(client_id)
            is_connected = any(_is_connected(each) for each in entries)
            return bool(entries) and (connected is None or connected is is_connected)

        names = directory.ids()
        page = await find_page(names, is_wanted, after or "", limit)
        found = [entries for entries in map(_entries, page.names) if entries]
        rows = await make_rows(found, lambda entries: ClientShape(**_sum(entries)))
        return json_response(ClientPage(rows, page.next, page.matching, len(names)))

    @router.get(
        "/clients/{client_id:path}",
        summary="One client, with its subscriptions",
        responses=describe(ClientDetail, NotAuthorized, UnknownClient),
    )
    async def client(client_id: ClientId) -> Response:
        return json_response(_detail(_find(client_id)))

    @router.get(
        "/client",
        summary="One client, also one whose id no path can name",
        responses=describe(ClientDetail, NotAuthorized, UnknownClient),
    )
    async def any_client(client_id: AnyClientId) -> Response:
        return json_response(_detail(_find(client_id)))

    @router.delete(
        "/clients/{client_id:path}",
        summary="End the connection of a client",
        description=ENDING,
        responses=describe(Dismissal, NotAuthorized, UnknownClient),
    )
    async def disconnect(client_id: ClientId, who: Who, end_session: EndSession = False) -> Response:
        return _dismiss(client_id, who, end_session)

    @router.delete(
        "/client",
        summary="End the connection of a client, also of one whose id no path can name",
        description=ENDING,
        responses=describe(Dismissal, NotAuthorized, UnknownClient),
    )
    async def disconnect_any(client_id: AnyClientId, who: Who, end_session: EndSession = False) -> Response:
        return _dismiss(client_id, who, end_session)

    def _dismiss(client_id: str, who: Identity, end_session: bool) -> Response:
        if not web.broker.access.may_publish(who, ADMIN_FILTER):
            raise NotAuthorized(f"this needs the right to publish to {ADMIN_FILTER}")
        is_ended = False
        for entry in _find(client_id):
            if isinstance(entry, Session):
                is_ended |= web.broker.dismiss(entry, ends_session=end_session)
            else:
                entry.close(Ending.SESSION_ENDED if end_session else Ending.ADMINISTRATIVE)
                is_ended = True
        act = "end the session" if end_session else "disconnect"
        web.broker.audit.record("client dismissed", user=who.user, act=act, client=client_id)
        if end_session:
            log.info("session ended on request", client_id=client_id, user=who.user)
        elif is_ended:
            log.info("client disconnected on request", client_id=client_id, user=who.user)
        return json_response(Dismissal(client_id, is_ended, end_session))

    def _entries(client_id: str) -> list[Entry]:
        return [*directory.find(client_id), *directory.calls_of(client_id)]

    def _find(client_id: str) -> list[Entry]:
        entries = _entries(client_id)
        if not entries:
            raise UnknownClient(f"there is no session of {client_id}")
        return entries

    def _detail(entries: list[Entry]) -> ClientDetail:
        sessions = [each for each in entries if isinstance(each, Session)]
        return ClientDetail(
            **_sum(entries),
            filters=[each for session in sessions for each in _filters(session)],
            will=next((_will(each) for each in sessions if each.will is not None), None),
            streams=[_stream(each) for each in entries],
        )

    def _sum(entries: list[Entry]) -> dict[str, Any]:
        """The facts of one client; of several streams the first stands for those that are no sums."""
        all_facts = [_facts(each) if isinstance(each, Session) else _call_facts(each) for each in entries]
        facts = all_facts[0]
        for other in all_facts[1:]:
            facts |= {key: facts[key] + other[key] for key in SUMS}
            facts |= {key: facts[key] or other[key] for key in FLAGS}
        return facts

    def _facts(session: Session) -> dict[str, Any]:
        is_connected, outbox = session.connection is not None, session.outbox
        left_at = None if is_connected or session.left_at is None else session.left_at
        return {
            "client_id": session.name,
            "user": session.identity.user,
            "door": session.door,
            "address": _address(session.connection),
            "connected": is_connected,
            "connections": int(is_connected),
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


def _is_connected(entry: Entry) -> bool:
    return not isinstance(entry, Session) or entry.connection is not None


def _call_facts(call: PublishingCall) -> dict[str, Any]:
    """Return the facts of a call that publishes: nothing waits for it."""
    return {
        **dict.fromkeys((*SUMS, "expiry_s"), 0),
        **dict.fromkeys((*FLAGS, "left_at", "expires_at")),
        "client_id": call.identity.client_id,
        "user": call.identity.user,
        "door": call.door,
        "address": _address(call),
        "connected": True,
        "connections": 1,
        "connected_at": time_text(call.connected_at),
        "is_slow": False,
        "has_will": False,
    }


def _stream(entry: Entry) -> StreamShape:
    if not isinstance(entry, Session):
        at = time_text(entry.connected_at)
        return StreamShape(
            session_id=None,
            user=entry.identity.user,
            door=entry.door,
            address=_address(entry),
            connected_at=at,
            filters=[],
            waiting_messages=0,
        )
    return StreamShape(
        session_id=entry.client_id,
        user=entry.identity.user,
        door=entry.door,
        address=_address(entry.connection),
        connected_at=None if entry.connection is None else time_text(entry.connected_at),
        filters=list(entry.subscriptions),
        waiting_messages=len(entry.outbox) if entry.outbox else 0,
    )


def _address(connection: object) -> str | None:
    """Return the address of a client, if its door knows it."""
    peer = connection.peer if isinstance(connection, Located) else None
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
