"""`penstock.connect` and a NexusD daemon: it falls back to what the daemon speaks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client.errors import UnknownService
from penstock.client.grpc.client import Client
from penstock.client.grpc.connection import Reconnection
from penstock.client.grpc.cursors import CursorFile
from penstock.client.grpc.nexusd import feed
from penstock.client.grpc.nexusd.dialect import NexusdDialect
from penstock.client.grpc.v1.dialect import V1Dialect
from penstock.client.messages import GapNotice, Outgoing
from penstock.errors import InvalidCursor, InvalidRequest
from penstock.wire.sidecar.messages import nexusd
from tests.client.grpc.nexusd.daemon import Daemon
from tests.support.waiting import until

SOON = Reconnection(initial_s=0.02, max_s=0.2)
TIMEOUT_S = 20.0
Connect = Callable[..., Any]


@pytest.fixture
async def connect(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    """Makes clients of the daemon, which are closed after the test; they know that it is not Penstock."""

    async def refuse(_: V1Dialect, channel: object) -> None:
        raise UnknownService("penstock.v1")

    monkeypatch.setattr(V1Dialect, "connect", refuse)
    async with AsyncExitStack() as stack:

        async def new(**options: Any) -> Client:
            client = penstock.connect(daemon.address, reconnection=SOON, **options)
            return await stack.enter_async_context(client)

        yield new


async def payloads(messages: Any, count: int) -> list[bytes]:
    return [(await messages.receive(TIMEOUT_S)).payload for _ in range(count)]


async def test_a_daemon_is_recognised_however_fast_it_refuses(daemon: Daemon) -> None:
    for _ in range(20):
        async with penstock.connect(daemon.address, reconnection=SOON) as client:
            assert await client.topics() == {}


async def test_messages_go_there_and_back_with_all_that_the_daemon_carries(connect: Connect) -> None:
    client = await connect()
    async with client.subscribe("orders", "stock") as messages:
        receipt = await client.publish(
            "orders", b"one", content_type="text/plain", correlation_id="c-1", ttl_s=60
        )
        message = await messages.receive(TIMEOUT_S)
    assert (receipt.subscribers, receipt.sequence) == (1, 0)
    assert (message.topic, message.payload, message.sequence) == ("orders", b"one", 1)
    assert (message.content_type, message.correlation_id) == ("text/plain", b"c-1")
    assert message.message_id == receipt.message_id


async def test_many_messages_keep_their_order(connect: Connect) -> None:
    client = await connect()
    async with client.subscribe("orders", buffer=10) as messages:
        summary = await client.publish_many(
            Outgoing(topic="orders", payload=b"%d" % number) for number in range(200)
        )
        assert summary.accepted == 200
        assert await payloads(messages, 200) == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize(
    "more", [{"response_topic": "r"}, {"message_id": "m"}, {"properties": (("a", "b"),)}], ids=str
)
async def test_what_the_daemon_cannot_carry_is_refused_and_not_left_out(
    connect: Connect, daemon: Daemon, more: dict[str, Any]
) -> None:
    client = await connect()
    async with client.subscribe("orders") as messages:
        with pytest.raises(InvalidRequest):
            await client.publish("orders", b"x", **more)
        await client.publish("orders", b"y")
        assert await payloads(messages, 1) == [b"y"]


async def test_what_only_penstock_knows_cannot_be_asked(connect: Connect) -> None:
    client = await connect()
    with pytest.raises(UnknownService):
        await client.why("orders", 1)
    with pytest.raises(InvalidRequest):
        async with client.subscribe("orders", last=5):
            pass
    with pytest.raises(InvalidCursor):
        async with client.subscribe("orders", after="AQID"):
            pass


async def test_topics_and_peers_are_the_daemons(connect: Connect, daemon: Daemon) -> None:
    daemon.peers = [nexusd.PeerInfo(instance_uuid="n2", endpoint="10.0.0.2:1", status="alive")]
    client = await connect()
    async with client.subscribe("orders"), client.subscribe("orders", "stock"):
        assert await client.topics() == {"orders": 2, "stock": 1}
    [peer] = await client.peers()
    assert (peer.node_id, peer.address, peer.status) == ("n2", "10.0.0.2:1", "alive")


async def test_filters_come_and_go_on_the_fly(connect: Connect, daemon: Daemon) -> None:
    client = await connect()
    async with client.subscribe("orders", "stock") as messages:
        await messages.add("prices")
        await messages.remove("stock")
        for topic in ("stock", "orders", "prices"):
            daemon.publish(topic, topic.encode())
        assert sorted(await payloads(messages, 2)) == [b"orders", b"prices"]
        await messages.remove("prices")
        assert daemon.live_topics == [["orders", "stock"]]
        assert messages.filters == ("orders",)


async def test_retained_values_come_if_they_are_asked_for(connect: Connect) -> None:
    client = await connect()
    await client.publish("orders", b"kept", retain=True)
    async with client.subscribe("orders", retained=True) as messages:
        message = await messages.receive(TIMEOUT_S)
        assert (message.payload, message.is_retained) == (b"kept", True)


async def test_a_stream_that_is_cut_goes_on_and_the_gap_is_told(connect: Connect, daemon: Daemon) -> None:
    gaps: list[GapNotice] = []
    client = await connect(on_gap=gaps.append)
    async with client.subscribe("orders") as messages:
        await client.publish("orders", b"1")
        assert await payloads(messages, 1) == [b"1"]
        daemon.cut()
        daemon.publish("orders", b"2")
        await until(lambda: daemon.live_topics, "no subscription reached the daemon")
        daemon.publish("orders", b"3")
        assert await payloads(messages, 1) == [b"3"]
    assert [(gap.filters, gap.count) for gap in gaps] == [(("orders",), None)]


async def test_a_process_that_starts_again_goes_on_where_it_was(
    connect: Connect, daemon: Daemon, tmp_path: Path
) -> None:
    """Its subscription was paused when it ended well; what the ring has lost is told by number."""
    gaps: list[GapNotice] = []
    client = await connect(on_gap=gaps.append)
    place = CursorFile(tmp_path / "cursor")
    async with client.subscribe("orders", "stock", after=place) as messages:
        daemon.publish("orders", b"1")
        assert await payloads(messages, 1) == [b"1"]
        messages.confirm()
    for number in range(2, 11):
        daemon.publish("orders", b"%d" % number)
    async with client.subscribe("orders", "stock", after=place) as messages:
        assert await payloads(messages, 5) == [b"6", b"7", b"8", b"9", b"10"]
        await until(lambda: gaps, "no gap was reported")
    [gap] = gaps
    assert gap.count == 4
    assert gap.statement is not None
    assert [(each.topic, each.first, each.last) for each in gap.statement.missing] == [("orders", 2, 5)]


async def test_a_message_that_was_not_confirmed_comes_again(
    connect: Connect, daemon: Daemon, tmp_path: Path
) -> None:
    client = await connect()
    place = CursorFile(tmp_path / "cursor")
    async with client.subscribe("orders", after=place) as messages:
        for payload in (b"1", b"2"):
            daemon.publish("orders", payload)
        assert await payloads(messages, 2) == [b"1", b"2"]  # the second was never dealt with
    async with client.subscribe("orders", after=place) as messages:
        assert await payloads(messages, 1) == [b"2"]


async def test_a_cursor_that_the_daemon_has_forgotten_is_a_gap_of_unknown_size(
    connect: Connect, daemon: Daemon, tmp_path: Path
) -> None:
    gaps: list[GapNotice] = []
    client = await connect(on_gap=gaps.append)
    place = CursorFile(tmp_path / "cursor")
    async with client.subscribe("orders", after=place) as messages:
        daemon.publish("orders", b"1")
        await payloads(messages, 1)
    await asyncio.to_thread(daemon.stop)
    daemon.start()
    async with client.subscribe("orders", after=place) as messages:
        daemon.publish("orders", b"new")
        assert await payloads(messages, 1) == [b"new"]
    assert [gap.count for gap in gaps] == [None]


async def test_an_application_that_does_not_read_keeps_the_rest_at_the_daemon(
    connect: Connect, daemon: Daemon
) -> None:
    client = await connect()
    async with client.subscribe("orders", buffer=3) as messages:
        for number in range(50):
            daemon.publish("orders", b"%d" % number)
        await asyncio.sleep(0.2)
        assert len(messages) <= 3
        assert await payloads(messages, 50) == [b"%d" % number for number in range(50)]


async def test_a_count_that_begins_anew_is_told(connect: Connect, daemon: Daemon) -> None:
    gaps: list[GapNotice] = []
    client = await connect(on_gap=gaps.append)
    async with client.subscribe("orders") as messages:
        daemon.publish("orders", b"1")
        await payloads(messages, 1)
        daemon.forget_topic("orders")
        await asyncio.sleep(0.005)
        daemon.publish("orders", b"2")
        assert await payloads(messages, 1) == [b"2"]
    assert [gap.count for gap in gaps] == [None]


async def test_a_daemon_that_hangs_is_left_soon(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object) -> None:
        await asyncio.sleep(TIMEOUT_S * 10)

    monkeypatch.setattr(NexusdDialect, "_unsubscribe", hang)
    monkeypatch.setattr(feed, "_CLOSE_TIMEOUT_S", 0.1)
    client = await connect()
    messages = client.subscribe("a")
    await messages.open()
    async with asyncio.timeout(TIMEOUT_S):
        await messages.close()
