"""What one connection may send, how it may come in, and how it ends."""

import asyncio
import gc
import json
from collections import Counter
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from penstock.app import Server
from penstock.core.settings import SessionSettings
from penstock.doors.web.settings import WebSettings
from penstock.doors.web.socket.connection import CHANGE_BYTES, TURN_BYTES, SocketConnection
from penstock.doors.web.socket.door import LINES_PER_CONNECTION
from penstock.net.address_limits import AddressLimits, AddressLimitSettings
from penstock.net.http.settings import HttpSettings
from penstock.wire.websocket.encoding import CloseCode
from tests.doors.serving import Start, port_of
from tests.doors.web.socket.talking import Sloth, Talker
from tests.support.waiting import until


def address_of(server: Server) -> str:
    return f"ws://127.0.0.1:{port_of(server, 'http')}/ws"


async def test_who_sends_too_fast_is_told_when_to_come_again(start: Start, name: str) -> None:
    server = await start(web=WebSettings(rate_per_s=0.001, burst=3, explicit_topics=False))
    async with Talker(server) as talker, Talker(server) as other:
        await talker.publish(name, 1, 2, 3)
        for request in ({"type": "publish", "topic": name, "data": 4}, {"type": "ping"}):
            answer = await talker.ask(**request, request_id="x")
            assert (answer["type"], answer["code"], answer["request_id"]) == ("error", "RATE_LIMITED", "x")
            assert 0 < answer["details"]["retry_after_seconds"] <= 1_000
        assert server.broker.topics[name].sequence == 3
        await other.publish(name, 1)  # each has its own


async def test_whatever_is_sent_counts_for_the_rate(start: Start) -> None:
    server = await start(web=WebSettings(rate_per_s=0.001, burst=3))
    async with Talker(server) as talker:
        await talker.send("{", b"binary", '{"type":"dance","request_id":1}')
        codes = [(await talker.answer())["code"] for _ in range(3)]
        assert codes == ["INVALID_JSON", "INTERNAL", "UNKNOWN_MESSAGE_TYPE"]
        await talker.send("{", b"binary", '{"type":"dance","request_id":2}', "[2]")
        answers = [await talker.answer() for _ in range(4)]
        assert {answer["code"] for answer in answers} == {"RATE_LIMITED"}
        assert [answer.get("request_id") for answer in answers] == [None, None, 2, None]


async def test_who_has_to_wait_a_moment_is_not_told_to_come_at_once(start: Start) -> None:
    server = await start(web=WebSettings(rate_per_s=1_000, burst=500))
    async with Talker(server) as talker:
        await talker.send_at_once(*([{"type": "ping"}] * 3_000))
        answers = [await talker.answer() for _ in range(3_000)]
        waits_s = {answer["details"]["retry_after_seconds"] for answer in answers if "details" in answer}
        assert waits_s == {0.001}


async def test_there_is_no_limit_to_the_rate_by_default(server: Server) -> None:
    async with Talker(server) as talker:
        await talker.send(*([{"type": "ping"}] * 2_000))
        for _ in range(2_000):
            assert await talker.answer() == {"type": "pong"}


async def test_a_message_that_is_too_large_ends_the_connection(start: Start) -> None:
    server = await start(web=WebSettings(max_message_bytes=65_536))
    async with Talker(server) as talker:
        await talker.send(json.dumps({"type": "ping", "fill": "x" * 65_400}))
        assert await talker.answer() == {"type": "pong"}
        await talker.send(json.dumps({"type": "ping", "fill": "x" * 65_536}))
        with pytest.raises(ConnectionClosedError) as closed:
            await talker.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG


async def test_a_payload_that_is_too_large_for_all_doors_is_refused(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    limit_bytes = server.broker.settings.max_payload_bytes
    async with Talker(server) as talker:
        await talker.publish(name, "x" * (limit_bytes - 2))
        answer = await talker.ask("publish", topic=name, data="x" * limit_bytes)
        assert (answer["code"], answer["details"]["code"]) == ("TOO_LARGE", "too-large")


@pytest.mark.parametrize("is_offered", [False, True])
async def test_compression_is_there_if_both_want_it(start: Start, name: str, is_offered: bool) -> None:
    server = await start(web=WebSettings(deflate=is_offered, explicit_topics=False))
    async with Talker(server, compression="deflate") as talker, Talker(server) as plain:
        assert bool(talker.connection.protocol.extensions) is is_offered
        for each in (talker, plain):
            await each.subscribe(name)
        await talker.publish(name, "x" * 10_000, "short")
        assert await talker.data(2) == await plain.data(2) == ["x" * 10_000, "short"]
        assert len(server.socket.connections) == 2


async def test_who_does_not_answer_a_ping_is_cut(start: Start) -> None:
    server = await start(web=WebSettings(ping_s=0.01))
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "http"))
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    said = b""
    with pytest.raises(ConnectionError):
        while data := await reader.read(1_000):
            said += data
        raise ConnectionError
    assert b"Connected with client_id" in said
    assert said.endswith(b"\x89\x00")
    await until(lambda: not server.socket.connections, "a connection is still open")
    assert not server.broker.sessions
    writer.close()


async def test_one_session_too_many_is_told_so(start: Start) -> None:
    server = await start(sessions=SessionSettings(max_sessions=1))
    async with Talker(server), connect(address_of(server), proxy=None) as second:
        assert json.loads(await second.recv())["code"] == "QUOTA_EXCEEDED"
        with pytest.raises(ConnectionClosed) as closed:
            await second.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.TRY_AGAIN_LATER
    await until(lambda: not server.socket.connections, "a connection is still open")


async def test_one_connection_too_many_from_an_address_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = AddressLimits(AddressLimitSettings(per_address=1), server.socket.clock)
    limits.enter("127.0.0.1")
    monkeypatch.setattr(server.socket._registry, "_address_limits", limits)
    async with connect(address_of(server), proxy=None) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == "Too many connections from this address"
    await until(lambda: not server.socket.connections, "a connection is still open")
    limits.leave("127.0.0.1")
    async with Talker(server):
        pass


async def test_who_has_left_makes_room_for_another_from_its_address(start: Start) -> None:
    server = await start(connections=AddressLimitSettings(per_address=2))
    async with Talker(server):
        async with Talker(server):
            pass
        await until(lambda: len(server.socket.connections) == 1, "there is not exactly one connection")
        async with Talker(server):
            pass


async def test_a_page_from_elsewhere_does_not_come_in(server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(address_of(server), origin="https://elsewhere.example", proxy=None)  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("request_", [b"GET /ws HT", b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: webs"])
async def test_a_half_open_upgrade_is_closed_in_time(start: Start, request_: bytes) -> None:
    assert HttpSettings().request_timeout_s == 10
    server = await start(http=HttpSettings(port=(0,), request_timeout_s=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server, "http"))
    writer.write(request_)
    async with asyncio.timeout(20):
        while await reader.read(1_000):
            pass
    writer.close()


async def test_a_server_that_stops_says_goodbye(start: Start) -> None:
    server = await start()
    async with Talker(server) as talker:
        stopping = asyncio.create_task(start.stop(server))
        with pytest.raises(ConnectionClosed) as closed:
            await talker.read()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            CloseCode.GOING_AWAY,
            "Server is shutting down",
        )
        await stopping


async def test_who_comes_while_the_server_stops_is_turned_away(start: Start) -> None:
    server = await start()
    async with Talker(server):
        await server.http.close()
        with pytest.raises(InvalidStatus) as refused:
            await connect(address_of(server), proxy=None)
        assert refused.value.response.status_code == 503


async def test_who_leaves_is_forgotten(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    async with Talker(server) as talker:
        await talker.subscribe(name)
        await talker.ask("subscribe", filter="#")
        assert server.broker.sessions
    await until(lambda: not server.broker.sessions, "a session is still there")
    assert not server.socket.connections
    assert not server.broker._node.router.match(name)


async def test_who_does_not_read_its_answers_is_not_read_from(server: Server) -> None:
    request = {"type": "unsubscribe", "filter": "x" * 60_000}
    async with Sloth(server) as sloth:
        sending = asyncio.create_task(sloth.send(*([request] * 300)))
        (connection,) = server.socket.connections
        await until(lambda: connection.read_pause.is_paused, "reading is not paused")
        for _ in range(300):
            assert (await sloth.answer())["code"] == "NOT_SUBSCRIBED"
        await sending
        assert not connection.read_pause.is_paused


async def test_who_never_reads_its_answers_is_cut(start: Start) -> None:
    server = await start(web=WebSettings(ping_s=1.0))
    request = {"type": "unsubscribe", "filter": "x" * 60_000}
    async with Sloth(server, ping_interval=None) as sloth:
        sending = asyncio.create_task(sloth.send(*([request] * 300)))
        (connection,) = server.socket.connections
        await until(lambda: connection.read_pause.is_paused, "reading is not paused")
        await until(lambda: not server.socket.connections, "a connection is still open")
        await asyncio.wait([sending])
        assert sending.exception() is not None
        sloth.connection.transport.abort()


class Turns:
    """Counts the turns of the loop until it is over."""

    def __init__(self) -> None:
        self.turn = 0
        self.is_over = False

    def go_on(self) -> None:
        self.turn += 1
        if not self.is_over:
            asyncio.get_running_loop().call_soon(self.go_on)


async def test_many_changes_of_one_read_leave_others_their_turn(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"{name}/{number}" for number in range(300)]
    for topic in topics:
        for number in range(10):
            server.broker.publish_server(topic, b"%d" % number)
    turns: list[int] = []
    catch_ups, clock = server.broker._catch_ups, Turns()
    begin = catch_ups.begin

    def note(*wanted: Any, **options: Any) -> Any:
        turns.append(clock.turn)
        return begin(*wanted, **options)

    monkeypatch.setattr(catch_ups, "begin", note)
    async with Talker(server) as talker:
        clock.go_on()
        await talker.send_at_once(*({"type": "subscribe", "topic": topic, "last_n": 10} for topic in topics))
        told = Counter([(await talker.answer())["type"] for _ in range(600)])
        clock.is_over = True
        assert told == {"ack": 300, "info": 300}
        assert len(turns) == 300
        assert max(Counter(turns).values()) <= TURN_BYTES // CHANGE_BYTES
        assert Counter(await talker.data(3_000)) == dict.fromkeys(range(10), 300)


async def test_what_comes_is_counted_in_bytes(server: Server) -> None:
    async with Talker(server) as talker:
        before = server.broker.counters.bytes_received
        text = json.dumps({"type": "ping", "fill": "ü" * 1_000}, ensure_ascii=False)
        await talker.send(text)
        assert await talker.answer() == {"type": "pong"}
        assert server.broker.counters.bytes_received - before == len(text.encode()) + 8  # and its header


def held_clients() -> list[str]:
    """Client ids of all connections in memory, of servers that are gone as well."""
    return [each.client_id for each in gc.get_objects() if type(each) is SocketConnection]


async def test_nothing_of_a_connection_waits_for_the_garbage_collector(server: Server, name: str) -> None:
    server.broker.declare_topic(name)
    gc.collect()
    gc.disable()
    try:
        async with Talker(server) as talker:
            await talker.publish(name, 1, 2)
            await talker.subscribe(name, last_n=5)
            assert await talker.data(2) == [1, 2]
            client_ids = [connection.client_id for connection in server.socket.connections]
            assert client_ids == held_clients()
        await until(lambda: not held_clients(), "the connection is still referenced")
    finally:
        gc.enable()


async def test_a_mistake_of_ours_is_told_and_the_connection_kept(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.broker.declare_topic(name)
    broker = server.broker
    async with Talker(server) as talker:
        for part, call, request in (
            (broker._catch_ups, "begin", {"type": "subscribe", "filter": name}),
            (broker._subscriber, "unsubscribe", {"type": "unsubscribe", "filter": name}),
            (broker.access, "may_publish", {"type": "publish", "topic": name, "data": 1}),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(part, call, None)
                answer = await talker.ask(**request, request_id=call)
            assert (answer["code"], answer["request_id"]) == ("INTERNAL", call)
        await talker.publish(name, 1)


async def test_a_mistake_amid_a_read_leaves_every_answer_in_its_place(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.broker.declare_topic(name)
    async with Talker(server) as talker:
        monkeypatch.setattr(server.broker.access, "may_publish", None)
        publish = {"type": "publish", "topic": name, "data": 1}
        await talker.send_at_once(
            {"type": "ping", "request_id": 1},
            {**publish, "request_id": 2},
            {"type": "ping", "request_id": 3},
            {**publish, "request_id": 4},
            {"type": "dance", "request_id": 5},
        )
        answers = [await talker.answer() for _ in range(5)]
        assert [answer["request_id"] for answer in answers] == [1, 2, 3, 4, 5]
        assert [answer.get("code") for answer in answers] == [
            None,
            "INTERNAL",
            None,
            "INTERNAL",
            "UNKNOWN_MESSAGE_TYPE",
        ]


async def test_mistakes_that_one_connection_meets_do_not_fill_the_log(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.broker.declare_topic(name)
    monkeypatch.setattr(server.broker._subscriber, "unsubscribe", None)
    async with Talker(server) as talker:
        with capture_logs() as lines:
            for _ in range(LINES_PER_CONNECTION + 10):
                assert (await talker.ask("unsubscribe", topic=name))["code"] == "INTERNAL"
        assert [line["log_level"] for line in lines] == ["error"] * LINES_PER_CONNECTION
