"""From a request to an open WebSocket that speaks in messages, also when others have read the request."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from websockets.frames import Opcode

from penstock.core.access.identity import Identity
from penstock.net.door import Peer
from penstock.net.websocket.entrance import MessageEntrance
from tests.net.websocket.message_peers import MessageHall, frame
from tests.net.websocket.peers import has_nobody_waiting, has_somebody_waiting, request_bytes

PEER = Peer("203.0.113.9", 4711, "pump-7")
IDENTITY = Identity("ada", "engine-1")


class OtherListener(asyncio.Protocol):
    """Reads a request itself and hands the connection over, as an HTTP server does."""

    def __init__(self, take: Callable[[asyncio.Transport, bytes], None]) -> None:
        self._take = take

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._take(self._transport, data)


async def open_other(forum: MessageHall, identity: Identity | None = None, **changes: Any) -> MessageEntrance:
    """Listen elsewhere, and hand over to an entrance."""
    entrance = forum.make_entrance(**changes)

    def take(transport: asyncio.Transport, data: bytes) -> None:
        entrance.take_over(transport, PEER, data, identity=identity)

    await forum.listen(lambda: OtherListener(take))
    return entrance


async def test_a_connection_can_be_handed_over_with_who_it_is(forum: MessageHall) -> None:
    entrance = await open_other(forum, IDENTITY)
    client = await forum.connect()
    client.send(request_bytes("/ws?last_n=5&token=a%2Fb"), frame(b"early"))
    assert (await client.read_response())[0] == 101
    client.send(frame(b"later"))
    await client.fence()
    door = forum.door
    assert (door.peer, door.identity, door.target) == (PEER, IDENTITY, "/ws?last_n=5&token=a%2Fb")
    assert door.socket.peer is PEER
    assert door.received == ["early", "later"]
    assert entrance.waiting == set()


async def test_who_was_not_asked_has_no_identity(forum: MessageHall) -> None:
    await open_other(forum)
    await (await forum.connect()).shake()
    assert forum.door.identity is None


async def test_a_connection_of_our_own_listener_is_known_by_its_address(forum: MessageHall) -> None:
    await forum.open()
    client = await forum.enter()
    assert forum.door.peer == Peer(*client.writer.get_extra_info("sockname"))
    assert (forum.door.identity, forum.door.target) == (None, "/ws")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (request_bytes("/other"), 404),
        (request_bytes("/ws", Sec_WebSocket_Version="8"), 426),
        (request_bytes("/ws", Sec_WebSocket_Key="short"), 400),
        (request_bytes("/ws", Host="attacker.example"), 421),
        (request_bytes("/ws", Origin="https://attacker.example"), 403),
        (request_bytes("/ws", Sec_WebSocket_Extensions="="), 400),
    ],
    ids=["path", "version", "key", "host", "origin", "extensions"],
)
@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_who_is_refused_can_read_why(
    forum: MessageHall, request_: bytes, status: int, is_handed_over: bool
) -> None:
    await (open_other(forum, deflates=True) if is_handed_over else forum.open(deflates=True))
    client = await forum.connect()
    with capture_logs() as lines:
        client.send(request_)
        refused, body = await client.read_response()
    assert (refused, body[-1:], forum.doors) == (status, b"\n", [])
    assert [line["status"] for line in lines] == [status]


async def test_half_a_request_is_waited_for_no_longer_than_agreed(forum: MessageHall) -> None:
    entrance = await open_other(forum, timeout_s=0.05)
    client = await forum.connect()
    client.send(request_bytes("/ws")[:-1])
    await has_somebody_waiting(entrance)
    assert await client.is_cut()
    assert (entrance.waiting, forum.doors) == (set(), [])


async def test_a_closed_entrance_waits_for_nobody_and_keeps_who_is_in(forum: MessageHall) -> None:
    entrance = await forum.open()
    inside, outside = await forum.enter(), await forum.connect()
    outside.send(b"GET")
    await has_somebody_waiting(entrance)
    entrance.close()
    assert await outside.is_cut()
    await has_nobody_waiting(entrance)
    assert await inside.fence() == []


async def test_many_connections_share_an_entrance_and_a_frame(forum: MessageHall) -> None:
    await forum.open()
    clients = [await forum.enter() for _ in range(20)]
    shared = b"\x81\x05hello" * 3
    for door in forum.doors:
        door.socket.write(shared)
    for client in clients:
        assert [await client.read_frame() for _ in range(3)] == [(Opcode.TEXT, b"hello")] * 3
