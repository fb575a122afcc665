"""NexusD's client with a NexusD daemon and its flaws: every loss is reported."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from penstock.compat.nexusd_client import (
    ConnectionError,
    GapRecoveryMode,
    PublishError,
    ReconnectionPolicy,
    ReconnectionState,
    SubscribeError,
    SubscriptionInfo,
    UnsubscribeError,
)
from penstock.wire.sidecar.messages import nexusd
from tests.client.grpc.nexusd.daemon import Daemon
from tests.compat.twins import SOON, Twin
from tests.support.waiting import until

NewTwin = Callable[..., Twin]
Gaps = list[tuple[int, int, str]]


def gaps_of(twin: Twin) -> Gaps:
    """What its callback is told, as it comes."""
    gaps: Gaps = []
    twin.client.on_gap_detected(lambda *gap: gaps.append(gap))
    return gaps


def states_of(twin: Twin) -> list[tuple[ReconnectionState, str | None]]:
    states: list[tuple[ReconnectionState, str | None]] = []
    twin.client.on_connection_state_change(
        lambda state, error: states.append((state, None if error is None else error.code().name))
    )
    return states


async def test_a_stream_that_is_cut_is_subscribed_anew_with_a_gap_of_unknown_size(
    daemon: Daemon, twin: NewTwin
) -> None:
    one = twin(daemon.address)
    gaps, states = gaps_of(one), states_of(one)
    infos: list[SubscriptionInfo] = []
    reader = one.subscribe(["orders"], on_gap_detected=infos.append)
    first = await reader.start()
    await one.publish("orders", b"1", b"2")
    assert await reader.payloads(2) == [b"1", b"2"]
    daemon.cut()
    daemon.publish("orders", b"while away")
    waiting = asyncio.create_task(reader.payloads(1))
    await until(lambda: daemon.live_topics, "no subscription reached the daemon")
    await one.publish("orders", b"4")
    assert await waiting == [b"4"]
    assert gaps == [(3, -1, "orders")]
    [info] = infos
    assert (info.gap_detected, info.missed_message_count) == (True, -1)
    assert info.subscription_id != first.subscription_id
    assert states == [
        (ReconnectionState.CONNECTED, None),
        (ReconnectionState.DISCONNECTED, "UNAVAILABLE"),
        (ReconnectionState.RECONNECTING, "UNAVAILABLE"),
        (ReconnectionState.CONNECTED, None),
    ]


async def test_a_daemon_that_restarts_is_found_again_although_it_counts_anew(
    daemon: Daemon, twin: NewTwin
) -> None:
    one = twin(daemon.address)
    gaps = gaps_of(one)
    reader = one.subscribe(["orders"])
    await reader.start()
    await one.publish("orders", *[b"%d" % number for number in range(5)])
    await reader.payloads(5)
    await asyncio.to_thread(daemon.stop)
    waiting = asyncio.create_task(reader.payloads(2))
    daemon.start()
    await until(lambda: daemon.live_topics, "no subscription reached the daemon")
    daemon.publish("orders", b"new 1")
    daemon.publish("orders", b"new 2")
    assert await waiting == [b"new 1", b"new 2"]
    assert gaps == [(6, -1, "orders")]


async def test_a_paused_subscription_goes_on_where_it_was(daemon: Daemon, twin: NewTwin) -> None:
    one = twin(daemon.address)
    reader = one.subscribe(["orders"])
    info = await reader.start()
    await one.publish("orders", b"1", b"2", content_type="text/plain")
    await reader.payloads(2)
    assert await one.call("unsubscribe", info.subscription_id, pause=True)
    assert await reader.next() is None
    await one.publish("orders", b"3", b"4")
    gaps = gaps_of(one)
    again = one.subscribe(
        ["orders"], subscription_id=info.subscription_id, last_sequence_per_topic={"orders": 2}
    )
    assert (await again.start()).subscription_id == info.subscription_id
    messages = [await again.next(), await again.next()]
    assert [(one.payload, one.is_replay, one.sequence_number) for one in messages if one] == [
        (b"3", True, 3),
        (b"4", True, 4),
    ]
    assert gaps == []


async def test_a_message_that_comes_twice_at_the_end_of_a_replay_is_given_once(
    daemon: Daemon, twin: NewTwin
) -> None:
    one = twin(daemon.address)
    reader = one.subscribe(["orders"])
    info = await reader.start()
    await one.publish("orders", b"1")
    await reader.payloads(1)
    await one.call("unsubscribe", info.subscription_id, pause=True)
    daemon.before_replay = lambda: daemon.publish("orders", b"2")
    again = one.subscribe(["orders"], subscription_id=info.subscription_id)
    waiting = asyncio.create_task(again.payloads(2))
    await until(lambda: daemon.live_topics, "no subscription reached the daemon")
    daemon.publish("orders", b"3")
    assert await waiting == [b"2", b"3"]


async def test_what_the_ring_has_lost_is_told_twice_over(daemon: Daemon, twin: NewTwin) -> None:
    """By the daemon when it goes on, and by the numbers when messages come."""
    one = twin(daemon.address)
    gaps = gaps_of(one)
    infos: list[SubscriptionInfo] = []
    reader = one.subscribe(["orders"])
    info = await reader.start()
    await one.publish("orders", b"1")
    await reader.payloads(1)
    await one.call("unsubscribe", info.subscription_id, pause=True)
    await one.publish("orders", *[b"%d" % number for number in range(2, 11)])
    again = one.subscribe(
        ["orders"],
        subscription_id=info.subscription_id,
        last_sequence_per_topic={"orders": 1},
        on_gap_detected=infos.append,
    )
    assert await again.payloads(5) == [b"6", b"7", b"8", b"9", b"10"]
    assert [one.missed_message_count for one in infos] == [4]
    assert gaps == [(2, 6, "orders")]


async def test_a_topic_whose_count_begins_anew_loses_no_message(daemon: Daemon, twin: NewTwin) -> None:
    one = twin(daemon.address)
    gaps = gaps_of(one)
    reader = one.subscribe(["orders"])
    await reader.start()
    await one.publish("orders", b"1", b"2")
    await reader.payloads(2)
    daemon.forget_topic("orders")
    await asyncio.sleep(0.005)  # the original's clock counts milliseconds
    await one.publish("orders", b"3", b"4")
    assert await reader.payloads(2) == [b"3", b"4"]
    assert gaps == [(3, 1, "orders")]


async def test_a_policy_with_few_retries_gives_up_and_says_so(daemon: Daemon, twin: NewTwin) -> None:
    policy = ReconnectionPolicy(max_retries=2, initial_delay_ms=10)
    one = twin(daemon.address, reconnection_policy=policy)
    states: list[ReconnectionState] = []
    one.client.on_connection_state_change(lambda state, error: states.append(state))
    reader = one.subscribe(["orders"])
    await reader.start()
    await asyncio.to_thread(daemon.stop)
    with pytest.raises(ConnectionError) as raised:
        await reader.next()
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE
    assert states == [
        ReconnectionState.CONNECTED,
        ReconnectionState.DISCONNECTED,
        ReconnectionState.RECONNECTING,
        ReconnectionState.FAILED,
    ]
    assert one.client.state is ReconnectionState.FAILED
    daemon.start()


async def test_without_reconnection_the_first_loss_is_the_last(daemon: Daemon, twin: NewTwin) -> None:
    one = twin(daemon.address, reconnection_policy=ReconnectionPolicy(enabled=False))
    reader = one.subscribe(["orders"])
    await reader.start()
    daemon.cut()
    with pytest.raises(ConnectionError):
        await reader.next()


async def test_calls_that_find_nobody_raise_what_programs_expect(kind: str, twin: NewTwin) -> None:
    one = twin("127.0.0.1:1", timeout_ms=2_000)
    with pytest.raises(PublishError):
        await one.call("publish", "orders", b"1")
    with pytest.raises(UnsubscribeError):
        await one.call("unsubscribe", "sub-1")
    with pytest.raises(ConnectionError):
        await one.call("get_topics")
    with pytest.raises(ConnectionError):
        await one.call("connect", timeout_ms=100)


async def test_a_daemon_that_comes_later_is_found(daemon: Daemon, twin: NewTwin) -> None:
    await asyncio.to_thread(daemon.stop)
    one = twin(daemon.address)
    reader = one.subscribe(["orders"])
    waiting = asyncio.create_task(reader.start())
    await asyncio.sleep(0.2)
    daemon.start()
    assert (await waiting).subscription_id
    await one.publish("orders", b"1")
    assert await reader.payloads(1) == [b"1"]


async def test_close_pauses_every_subscription_so_that_another_process_can_go_on(
    daemon: Daemon, kind: str, twin: NewTwin
) -> None:
    async with Twin(kind, daemon.address) as one:
        readers = [one.subscribe([topic]) for topic in ("orders", "stock")]
        infos = [await reader.start() for reader in readers]
        reading = asyncio.create_task(readers[0].next())
        await asyncio.sleep(0.05)
    assert await reading is None
    assert await readers[1].next() is None
    other = twin(daemon.address)
    for info in infos:
        again = other.subscribe(info.topics, subscription_id=info.subscription_id)
        assert (await again.start()).subscription_id == info.subscription_id


async def test_nothing_can_be_asked_of_a_closed_client(daemon: Daemon, kind: str) -> None:
    async with Twin(kind, daemon.address) as one:
        await one.call("connect")
    with pytest.raises(ConnectionError):
        await one.call("publish", "orders", b"1")
    with pytest.raises(ConnectionError):
        one.subscribe(["orders"])
    await one.call("close")


async def test_close_ends_a_subscription_that_waits_for_its_next_attempt(daemon: Daemon, kind: str) -> None:
    policy = ReconnectionPolicy(initial_delay_ms=60_000, max_delay_ms=60_000)
    async with Twin(kind, daemon.address, reconnection_policy=policy) as one:
        reader = one.subscribe(["orders"])
        await reader.start()
        reading = asyncio.create_task(reader.next())
        await asyncio.sleep(0.05)
        daemon.cut()
        await until(
            lambda: one.client.state is ReconnectionState.RECONNECTING, "state did not become RECONNECTING"
        )
    assert await reading is None


async def test_a_refusal_is_not_tried_again(daemon: Daemon, twin: NewTwin) -> None:
    def refuse() -> None:
        raise RuntimeError("out of order")

    one = twin(daemon.address)
    reader = one.subscribe(["orders"])
    info = await reader.start()
    await one.call("unsubscribe", info.subscription_id, pause=True)
    daemon.before_replay = refuse  # which becomes UNKNOWN on the wire
    with pytest.raises(SubscribeError) as raised:
        await one.subscribe(["orders"], subscription_id=info.subscription_id).next()
    assert raised.value.code is grpc.StatusCode.UNKNOWN


async def test_peers_are_read_by_the_names_of_the_wire(daemon: Daemon, twin: NewTwin) -> None:
    daemon.peers = [
        nexusd.PeerInfo(instance_uuid="n2", endpoint="10.0.0.2:5671", cluster_id="c", status="alive"),
        nexusd.PeerInfo(instance_uuid="n3", endpoint="10.0.0.3:5671", cluster_id="c", status="dead"),
    ]
    peers = await twin(daemon.address).call("get_peers")
    assert [(one.node_id, one.address, one.cluster_id, one.is_healthy) for one in peers] == [
        ("n2", "10.0.0.2:5671", "c", True),
        ("n3", "10.0.0.3:5671", "c", False),
    ]


async def test_what_happens_is_logged_with_the_fields_of_the_documents(
    daemon: Daemon, twin: NewTwin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock.compat.nexusd_client")
    one = twin(daemon.address, reconnection_policy=SOON)
    reader = one.subscribe(["orders"])
    await reader.start()
    await one.publish("orders", b"1")
    await reader.payloads(1)
    daemon.cut()
    waiting = asyncio.create_task(reader.payloads(1))
    await until(lambda: daemon.live_topics, "no subscription reached the daemon")
    daemon.publish("orders", b"2")
    await waiting

    def fields(text: str) -> dict[str, Any]:
        [record] = [record for record in caplog.records if text in record.getMessage()]
        return vars(record)

    lost = fields("stream lost")
    assert lost["topics"] == ["orders"]
    assert lost["last_sequence_number"] == 1
    assert lost["attempt"] == 1
    assert 20 <= lost["delay_ms"] <= 22
    assert lost["subscription_id"].startswith("sub-")
    assert fields("messages are missing")["gap"] == -1


async def test_a_callback_that_fails_stops_nothing(
    daemon: Daemon, twin: NewTwin, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("not today")

    one = twin(daemon.address)
    one.client.on_connection_state_change(fail)
    reader = one.subscribe(["orders"])
    await reader.start()
    await one.publish("orders", b"1")
    assert await reader.payloads(1) == [b"1"]
    assert "a callback failed" in caplog.text


async def test_a_reader_that_gives_up_waiting_loses_no_message(daemon: Daemon) -> None:
    async with Twin("async", daemon.address) as one:
        reader = one.subscribe(["orders"])
        await reader.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(reader.subscription)
        await one.publish("orders", b"1")
        assert await reader.payloads(1) == [b"1"]


async def test_a_subscription_that_nobody_holds_ends(daemon: Daemon, twin: NewTwin) -> None:
    one = twin(daemon.address)
    reader = one.subscribe(["orders"])
    await reader.start()
    await until(lambda: daemon.live_topics, "no subscription reached the daemon")
    del reader
    await until(lambda: not daemon.live_topics, "a subscription is still at the daemon")


async def test_a_mode_can_be_asked_for_once_or_for_all(daemon: Daemon, twin: NewTwin) -> None:
    one = twin(daemon.address, gap_recovery_mode=GapRecoveryMode.RETAINED_ONLY)
    reader = one.subscribe(["orders"])
    info = await reader.start()
    await one.call("unsubscribe", info.subscription_id, pause=True)
    await one.publish("orders", b"1", b"2")
    again = one.subscribe(["orders"], subscription_id=info.subscription_id)
    message = await again.next()
    assert message is not None
    assert (message.payload, message.is_retained) == (b"2", True)
    await one.call("unsubscribe", info.subscription_id, pause=True)
    await one.publish("orders", b"3")
    none = one.subscribe(
        ["orders"], subscription_id=info.subscription_id, gap_recovery_mode=GapRecoveryMode.NONE
    )
    await none.start()
    await one.publish("orders", b"4")
    assert await none.payloads(1) == [b"4"]
