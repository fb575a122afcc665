"""Inspection of a server from inside; everything here runs in its own thread."""

from typing import TYPE_CHECKING

import msgspec

from penstock.client.messages import LedgerRow, Message, datetime_from_us
from penstock.common.statement import Gap, Missing
from penstock.common.topics import check_filter, is_wildcard, matches, split_share
from penstock.model import Reason

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.core.sessions.session import Session

CHUNK_BYTES = 4 << 20


async def published(server: "Server", filter: str) -> list[Message]:
    """Return the messages of a filter in order, without expired ones.

    Raises:
        InvalidFilter: the filter is not valid.
        LookupError: some of them are neither in memory nor in the log any more.
    """
    from penstock.doors.web.support.schemas import Messages  # noqa: PLC0415 - not needed to start

    broker = server.broker
    check_filter(filter, broker.settings.topic)
    shapes = Messages(broker, broker.history.clock)
    replay = broker.history.replay((filter,), broker.history.cursor(0))
    found: list[Message] = []
    lost: list[Missing | Gap] = []
    while True:
        chunk = await replay.read(CHUNK_BYTES)
        lost += (each for each in chunk.statement.missing if each.reason is not Reason.EXPIRED)
        lost += chunk.statement.gaps
        each_message = ((run, index) for run in chunk.runs for index in range(run.count))
        found += (_message_from(msgspec.json.encode(shapes.shape(run, index))) for run, index in each_message)
        if chunk.statement.is_at_head:
            break
    if lost:
        raise LookupError(f"not everything of {filter!r} is there any more: {_describe(lost[0])}")
    return found


def _describe(lost: Missing | Gap) -> str:
    if isinstance(lost, Gap):
        return f"offsets {lost.first} to {lost.last} ({lost.reason})"
    return f"{lost.topic} up to message {lost.last} ({lost.reason})"


def _message_from(message: bytes) -> Message:
    """A message as a client of the HTTP API would get it."""
    return msgspec.json.decode(message, type=Message)


def drops(server: "Server", topic: str | None = None, client_id: str | None = None) -> list[LedgerRow]:
    """Return the ledger's rows of messages that were not delivered, oldest first."""
    return [
        LedgerRow(
            topic=row.topic,
            client_id=row.client_id,
            reason=str(row.reason),
            policy=None if row.policy is None else str(row.policy),
            setting=row.setting or None,
            first=row.first,
            last=row.last,
            count=row.count,
            first_at=datetime_from_us(row.first_at),
            last_at=datetime_from_us(row.last_at),
        )
        for row in server.broker.ledger.rows(topic=topic, client_id=client_id)
    ]


def describe_drops(rows: list[LedgerRow]) -> str:
    """Rows of the ledger as lines."""
    return "\n".join(
        f"  {row.topic or '(any topic)'} {row.first}..{row.last}: {row.count} not delivered to "
        f"{row.client_id or '(unnamed)'}, {row.reason}" + (f" ({row.setting})" if row.setting else "")
        for row in rows
    )


def subscribers(server: "Server", filter: str) -> list[str]:
    """Return connected clients that subscribe to a filter; for a topic, those that it reaches."""
    connected = (session for session in server.broker.sessions.values() if session.connection is not None)
    return [session.client_id for session in connected if _wants(session, filter)]


def _wants(session: "Session", filter: str) -> bool:
    if filter in session.subscriptions:
        return True
    if is_wildcard(filter):
        return False
    return any(matches(split_share(known)[1], filter) for known in session.subscriptions)


def describe_subscribers(server: "Server") -> str:
    """Describe the subscriptions in one line."""
    known = [
        f"{session.client_id} to {', '.join(session.subscriptions)}"
        for session in server.broker.sessions.values()
        if session.connection is not None and session.subscriptions
    ]
    return "; ".join(known) or "there are no subscriptions"


def cut(server: "Server") -> int:
    """Drop all connections without a goodbye. Returns their number."""
    doors = (server.mqtt, server.http, server.socket, server.sidecar)
    connections = [connection for door in doors for connection in door.connections]
    for connection in connections:
        connection.abort()
    return len(connections)
