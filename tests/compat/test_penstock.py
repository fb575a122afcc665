"""NexusD's client with a Penstock server, as NexusD's documentation promises."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.app import Server
from penstock.compat.nexusd_client import (
    GapRecoveryMode,
    Message,
    PublishError,
    ReconnectionState,
    SubscribeError,
    SubscriptionInfo,
)
from penstock.core.settings import RingSettings
from penstock.doors.sidecar.settings import SidecarSettings
from tests.client.grpc.cable import Cable, cable_to
from tests.compat.twins import TIMEOUT_S, Reader, Twin
from tests.doors.serving import EVERYTHING, Start, port_of
from tests.doors.sidecar.serving import address_of
from tests.support.waiting import until

NewTwin = Callable[..., Twin]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers; all are stopped after the test."""
    start = Start()
    yield start
    await start.stop_all()


@pytest.fixture
async def server(start: Start) -> Server:
    return await start()


@pytest.fixture
async def cable(server: Server) -> AsyncIterator[Cable]:
    """What a client of the server can be cut off with."""
    async with cable_to(port_of(server, "grpc")) as cable:
        yield cable


async def next_of(reader: Reader) -> Message:
    message = await reader.next()
    assert message is not None
    return message


async def test_a_message_arrives_with_all_that_it_was_given(server: Server, twin: NewTwin) -> None:
    one = twin(address_of(server))
    reader = one.subscribe(["orders"])
    await reader.start()
    result = await one.call("publish", "orders", b"caf\xc3\xa9", "text/plain", False, "c-1", 60_000)
    message = await next_of(reader)
    assert (result.success, result.subscriber_count, result.subscribers_dropped) == (True, 1, 0)
    assert message.message_id == result.message_id != ""
    assert message.payload_as_string() == "café"
    assert (message.content_type, message.correlation_id) == ("text/plain", "c-1")
    assert (message.sequence_number, message.is_retained, message.is_replay) == (1, False, False)
    assert message.source_node_id
    assert message.timestamp_ms > 1_600_000_000_000


async def test_a_retained_value_comes_first_unless_it_is_not_wanted(server: Server, twin: NewTwin) -> None:
    one = twin(address_of(server))
    await one.publish("orders", b"kept", retain=True)
    wanted, unwanted = one.subscribe(["orders"]), one.subscribe(["orders"], receive_retained=False)
    await unwanted.start()
    message = await next_of(wanted)
    assert (message.payload, message.is_retained) == (b"kept", True)
    await one.publish("orders", b"new")
    assert await unwanted.payloads(1) == [b"new"]


async def test_wildcards_are_understood(server: Server, twin: NewTwin) -> None:
    one = twin(address_of(server))
    reader = one.subscribe(["sensors/#"])
    await reader.start()
    await one.publish("sensors/kitchen/heat", b"21")
    assert (await next_of(reader)).topic == "sensors/kitchen/heat"


async def test_a_connection_that_breaks_costs_no_message_and_gives_none_twice(
    server: Server, cable: Cable, twin: NewTwin
) -> None:
    one, other = twin(cable.address), twin(address_of(server))
    gaps: list[tuple[int, int, str]] = []
    states: list[ReconnectionState] = []
    one.client.on_gap_detected(lambda *gap: gaps.append(gap))
    one.client.on_connection_state_change(lambda state, error: states.append(state))
    reader = one.subscribe(["orders", "stock"])
    info = await reader.start()
    await other.publish("orders", b"1", b"2")
    assert await reader.payloads(2) == [b"1", b"2"]
    cable.unplug()
    await other.publish("orders", b"3", b"4")
    await other.publish("stock", b"5")
    cable.plug()
    messages = [await next_of(reader) for _ in range(3)]
    await other.publish("orders", b"6")
    messages.append(await next_of(reader))
    assert sorted(message.payload for message in messages) == [b"3", b"4", b"5", b"6"]
    assert [message.is_replay for message in messages] == [True, True, True, False]
    assert all("-" in message.message_id for message in messages)
    assert reader.subscription.info.subscription_id == info.subscription_id
    assert gaps == []
    assert states[0] is states[-1] is ReconnectionState.CONNECTED
    assert ReconnectionState.RECONNECTING in states


async def test_what_the_ring_has_lost_is_told_with_its_size(start: Start, twin: NewTwin) -> None:
    server = await start(ring=RingSettings(messages=3))
    async with cable_to(port_of(server, "grpc")) as cable:
        one, other = twin(cable.address), twin(address_of(server))
        infos: list[SubscriptionInfo] = []
        gaps: list[tuple[int, int, str]] = []
        one.client.on_gap_detected(lambda *gap: gaps.append(gap))
        reader = one.subscribe(["orders"], on_gap_detected=infos.append)
        await reader.start()
        numbers = [b"%d" % number for number in range(1, 11)]
        await other.publish("orders", *numbers[:5])
        assert await reader.payloads(5) == numbers[:5]
        cable.unplug()
        await other.publish("orders", *numbers[5:])
        cable.plug()
        assert await reader.payloads(3) == [b"8", b"9", b"10"]
        assert [(info.gap_detected, info.missed_message_count) for info in infos] == [(True, 2)]
        assert gaps == [(6, 8, "orders")]


@pytest.mark.parametrize(
    ("mode", "payload"), [(GapRecoveryMode.NONE, b"live"), (GapRecoveryMode.RETAINED_ONLY, b"kept")]
)
async def test_other_modes_do_what_they_say(
    server: Server, twin: NewTwin, mode: GapRecoveryMode, payload: bytes
) -> None:
    one = twin(address_of(server), gap_recovery_mode=mode)
    reader = one.subscribe(["orders"])
    info = await reader.start()
    assert await one.call("unsubscribe", info.subscription_id, pause=True)
    assert await reader.next() is None
    await one.publish("orders", b"kept", retain=True)
    await one.publish("orders", b"missed")
    again = one.subscribe(["orders"], subscription_id=info.subscription_id)
    await again.start()
    await one.publish("orders", b"live")
    assert (await next_of(again)).payload == payload


async def test_a_closed_client_has_paused_and_the_next_process_goes_on(
    server: Server, kind: str, twin: NewTwin
) -> None:
    async with Twin(kind, address_of(server)) as one:
        reader = one.subscribe(["orders"])
        await reader.start()
        await one.publish("orders", b"1")
        await reader.payloads(1)
        [info] = one.client.active_subscriptions()
    other = twin(address_of(server))
    await other.publish("orders", b"2")
    again = other.subscribe(
        info.topics,
        subscription_id=info.subscription_id,
        last_sequence_per_topic=info.last_sequence_per_topic,
    )
    message = await next_of(again)
    assert (message.payload, message.is_replay) == (b"2", True)


async def test_a_server_with_a_log_that_restarts_costs_nothing(
    start: Start, twin: NewTwin, tmp_path: Path
) -> None:
    stored: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "log": EVERYTHING}
    server = await start(**stored)
    async with cable_to(port_of(server, "grpc")) as cable:
        one = twin(cable.address)
        gaps: list[tuple[int, int, str]] = []
        one.client.on_gap_detected(lambda *gap: gaps.append(gap))
        reader = one.subscribe(["orders"])
        await reader.start()
        await one.publish("orders", b"1")
        await reader.payloads(1)
        await start.stop(server)
        server = await start(**stored)
        other = twin(address_of(server))
        await other.publish("orders", b"2")
        cable.far_port = port_of(server, "grpc")
        assert await reader.payloads(1) == [b"2"]
        assert gaps == []


async def test_a_server_without_a_log_that_restarts_is_a_gap_of_unknown_size(
    start: Start, twin: NewTwin
) -> None:
    server = await start()
    async with cable_to(port_of(server, "grpc")) as cable:
        one = twin(cable.address)
        gaps: list[tuple[int, int, str]] = []
        one.client.on_gap_detected(lambda *gap: gaps.append(gap))
        reader = one.subscribe(["orders"])
        await reader.start()
        await one.publish("orders", b"1")
        await reader.payloads(1)
        await start.stop(server)
        server = await start()
        cable.far_port = port_of(server, "grpc")
        waiting = asyncio.create_task(reader.next())
        await until(lambda: gaps, "no gap was reported", timeout_s=TIMEOUT_S)
        await twin(address_of(server)).publish("orders", b"new")
        message = await waiting
        assert message is not None
        assert (message.payload, message.sequence_number) == (b"new", 1)
        assert gaps == [(2, -1, "orders")]


async def test_unsubscribing_ends_the_iteration_and_leaves_nothing_to_resume(
    server: Server, twin: NewTwin
) -> None:
    one = twin(address_of(server))
    reader = one.subscribe(["orders"])
    info = await reader.start()
    assert await one.call("unsubscribe", info.subscription_id)
    assert await reader.next() is None
    assert not await one.call("unsubscribe", info.subscription_id)
    infos: list[SubscriptionInfo] = []
    again = one.subscribe(["orders"], subscription_id=info.subscription_id, on_gap_detected=infos.append)
    assert (await again.start()).subscription_id != info.subscription_id
    assert [one.missed_message_count for one in infos] == [-1]


async def test_topics_and_peers_are_listed(server: Server, twin: NewTwin) -> None:
    one = twin(address_of(server))
    reader = one.subscribe(["orders"])
    await reader.start()
    await one.publish("orders", b"1")
    topics = await one.call("get_topics")
    assert [(topic.topic, topic.subscriber_count) for topic in topics] == [("orders", 1)]
    assert await one.call("get_peers") == []


async def test_bad_requests_are_errors_of_their_own_call(server: Server, twin: NewTwin) -> None:
    one = twin(address_of(server))
    with pytest.raises(PublishError, match="INVALID_ARGUMENT"):
        await one.call("publish", "", b"1")
    with pytest.raises(PublishError, match="INVALID_ARGUMENT"):
        await one.call("publish", "a/#", b"1")
    with pytest.raises(PublishError, match="RESOURCE_EXHAUSTED"):
        await one.call("publish", "orders", bytes(5_000_000))
    with pytest.raises(SubscribeError, match="INVALID_ARGUMENT"):
        await one.subscribe([]).start()
    with pytest.raises(SubscribeError, match="INVALID_ARGUMENT"):
        await one.subscribe(["orders"], max_buffer_size=-1).start()
    assert (await one.call("publish", "orders", b"fine")).success


async def test_a_heartbeat_is_no_message(start: Start, twin: NewTwin) -> None:
    server = await start(sidecar=SidecarSettings(port=0, heartbeat_s=0.05))
    one = twin(address_of(server))
    reader = one.subscribe(["orders"])
    await reader.start()
    await asyncio.sleep(0.3)
    await one.publish("orders", b"1")
    assert await reader.payloads(1) == [b"1"]
