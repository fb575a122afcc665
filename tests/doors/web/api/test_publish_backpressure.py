"""Publishing over HTTP under `block`: who is held back waits for the answer, and nobody else does."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import httpx
import pytest

from penstock.app import Server
from penstock.core.access.identity import Identity
from penstock.core.publishing.request_senders import RequestConnection
from penstock.core.settings import OutboxSettings, TopicRule
from penstock.doors.web.api.publish import PATH
from penstock.model import Door, Policy
from penstock.wire.mqtt import Publish
from tests.doors.mqtt.peers import Peer, Peers
from tests.doors.serving import Start, client_of, port_of
from tests.support.waiting import until

BODY = b"x" * 200_000
PATIENT = OutboxSettings(messages=2, block_timeout_ms=60_000)


@pytest.fixture
async def server(start: Start, name: str) -> Server:
    """A server on which a slow reader holds its publishers back."""
    rule = TopicRule(filter=f"{name}/#", policy=Policy.BLOCK)
    return await start(outbox=PATIENT, topics=(rule,))


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    """MQTT clients of the same server."""
    peers = Peers(port_of(server, "mqtt"))
    yield peers
    await peers.close()


@pytest.fixture
async def slow(peers: Peers, name: str) -> Peer:
    """A subscriber that reads nothing until it is asked to."""
    peer = await peers.connect(is_slow=True)
    await peer.subscribe(f"{name}/a")
    return peer


async def publish(http: httpx.AsyncClient, topic: str, client_id: str = "") -> httpx.Response:
    return await http.post(
        PATH, params={"topic": topic}, content=BODY, headers={"X-Client-Id": client_id} if client_id else {}
    )


async def fill(
    server: Server, http: httpx.AsyncClient, topic: str, client_id: str = ""
) -> "tuple[int, asyncio.Task[httpx.Response]]":
    """Publish until an answer has to wait; tell how many were answered, and who waits."""
    holding, answered = server.broker.backpressure, 0
    while True:
        waiting = asyncio.create_task(publish(http, topic, client_id))

        def is_settled(waiting: asyncio.Task[httpx.Response] = waiting) -> bool:
            return waiting.done() or holding.blocked_total != 0

        await until(is_settled, "the request was neither answered nor blocked", every_s=0.001)
        if holding.blocked_total:
            assert not waiting.done()
            return answered, waiting
        assert waiting.result().status_code == 200
        answered += 1


async def until_waiting(server: Server, count: int, client_id: str = "") -> None:
    """Until so many requests of a caller wait."""
    sink = server.broker.request_sender(Identity(None, client_id), Door.WEB).connection
    assert isinstance(sink, RequestConnection)
    await until(
        lambda: len(sink.acknowledgements) + len(sink.waiting) >= count,
        "not all requests were received",
        every_s=0.001,
    )


async def test_the_answer_waits_until_the_slow_subscriber_has_room(
    server: Server, http: httpx.AsyncClient, slow: Peer, name: str
) -> None:
    answered, waiting = await fill(server, http, f"{name}/a")
    for _ in range(answered + 1):
        assert (await slow.receive(Publish)).payload == BODY
    answer = await waiting
    assert (answer.status_code, answer.json()["sequence"]) == (200, answered + 1)
    assert list(server.broker.ledger.rows()) == []


async def test_its_next_message_is_not_published_before(
    server: Server, http: httpx.AsyncClient, slow: Peer, name: str
) -> None:
    answered, waiting = await fill(server, http, f"{name}/a", "held")
    later = [asyncio.create_task(publish(http, f"{name}/b", "held")) for _ in range(3)]
    await until_waiting(server, 4, "held")
    assert not any(task.done() for task in (waiting, *later))
    assert f"{name}/b" not in server.broker.topics
    for _ in range(answered + 1):
        await slow.receive(Publish)
    sequences = [(await task).json()["sequence"] for task in later]
    assert sorted(sequences) == [1, 2, 3]
    assert (await waiting).status_code == 200


async def test_others_are_answered_meanwhile(
    server: Server, http: httpx.AsyncClient, slow: Peer, peers: Peers, name: str
) -> None:
    _, waiting = await fill(server, http, f"{name}/a", "held")
    device = await peers.connect("held")  # the same name, but another door
    for number in range(3):
        assert (await publish(http, f"{name}/b", f"other-{number}")).status_code == 200
        await device.publish(f"{name}/b", b"x")
    assert not waiting.done()
    await slow.cut()
    assert (await waiting).status_code == 200


async def test_whoever_hangs_up_while_it_waits_publishes_nothing_more(
    server: Server, http: httpx.AsyncClient, slow: Peer, name: str
) -> None:
    _, waiting = await fill(server, http, f"{name}/a")
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "http"))
    writer.write(
        f"POST {PATH}?topic={name}/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
    )
    await until_waiting(server, 2)
    before = len(server.http.connections)
    reset = struct.pack("ii", 1, 0)  # a connection that is half closed would still get its answer
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    writer.transport.abort()
    await until(
        lambda: len(server.http.connections) != before,
        "the number of connections did not change",
        every_s=0.001,
    )
    await slow.cut()
    assert (await waiting).status_code == 200
    assert (await publish(http, f"{name}/c")).status_code == 200
    assert f"{name}/b" not in server.broker.topics


async def test_after_the_block_timeout_the_oldest_is_dropped_and_the_answer_comes(
    start: Start, name: str
) -> None:
    rule = TopicRule(filter=f"{name}/#", policy=Policy.BLOCK)
    server = await start(outbox=OutboxSettings(messages=2, block_timeout_ms=50), topics=(rule,))
    peers = Peers(port_of(server, "mqtt"))
    slow = await peers.connect(is_slow=True)
    await slow.subscribe(f"{name}/a")
    async with client_of(server) as http:
        _, waiting = await fill(server, http, f"{name}/a")
        assert (await waiting).status_code == 200
    assert [str(row.reason) for row in server.broker.ledger.rows()] == ["block-timeout"]
    await peers.close()


async def test_a_server_that_stops_answers_those_who_wait(
    server: Server, http: httpx.AsyncClient, slow: Peer, name: str
) -> None:
    _, waiting = await fill(server, http, f"{name}/a", "held")
    later = asyncio.create_task(publish(http, f"{name}/b", "held"))
    await until_waiting(server, 2, "held")
    server.broker.stop()
    assert (await waiting).status_code == 200
    assert ((await later).status_code, (await later).json()["code"]) == (503, "shutting-down")
