"""Subscribers that do not keep up: others do not notice, and they themselves are told what they lost."""

import asyncio

import grpc
import pytest

from penstock.core.diagnostics.slow_consumers import LossReport
from penstock.core.settings import OutboxSettings, SlowSettings, TopicRule
from penstock.doors.sidecar.nexusd.loss_warnings import reason_of, warning_of
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.model import Policy
from penstock.wire.sidecar.messages import nexusd
from tests.doors.serving import Start
from tests.doors.sidecar.calling import Client, Events, sequences
from tests.doors.sidecar.serving import MovableClock
from tests.doors.sidecar.stalling import stall, stream_of
from tests.support.waiting import until


async def warning(events: Events) -> nexusd.BackpressureWarning:
    """The next event, which is a warning."""
    ((kind, event),) = await events.take(1)
    assert kind == "backpressure_warning"
    return event.backpressure_warning


async def test_what_was_dropped_is_told_before_what_is_left(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=3))
    async with Client(server) as client:
        events = await client.subscribe("a")
        with stall(server, events.id):
            for _ in range(10):
                await client.publish("a")
        told = await warning(events)
        assert (told.messages_dropped, told.messages_expired) == (7, 0)
        assert (told.queue_depth, told.queue_limit) == (3, 3)
        assert told.reason == "burst"
        assert sequences(await events.messages(3)) == [8, 9, 10]
        assert server.broker.slow_consumers.dropped_by(events.id) == 7


async def test_messages_that_grew_old_while_they_waited_are_told(start: Start) -> None:
    clock = MovableClock()
    server = await start(clock=clock)
    async with Client(server) as client:
        events = await client.subscribe("a")
        with stall(server, events.id):
            await client.publish("a", b"brief", ttl_ms=1_000)
            await client.publish("a", b"lasting")
            clock.advance(5)
            server.broker.reap()
        told = await warning(events)
        assert (told.messages_dropped, told.messages_expired, told.reason) == (0, 1, "ttl_expired")
        assert told.queue_depth == 1
        assert 5_000 <= told.oldest_message_age_ms < 60_000
        assert await events.payloads(1) == [b"lasting"]


async def test_who_is_slow_for_long_is_called_that(start: Start) -> None:
    clock = MovableClock()
    server = await start(outbox=OutboxSettings(messages=1), slow=SlowSettings(after_ms=1_000), clock=clock)
    async with Client(server) as client:
        events = await client.subscribe("a")
        with stall(server, events.id):
            for _ in range(2):
                await client.publish("a")
            clock.advance(3)
        told = await warning(events)
        assert (told.reason, told.messages_dropped) == ("slow_consumer", 1)
        assert told.oldest_message_age_ms >= 3_000


async def test_a_second_warning_waits_for_its_time_and_loses_nothing(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=1))
    async with Client(server) as client:
        events = await client.subscribe("a")
        for _ in range(3):
            with stall(server, events.id):
                for _ in range(3):
                    await client.publish("a")
        began = asyncio.get_running_loop().time()
        assert (await warning(events)).messages_dropped == 2
        assert sequences(await events.messages(3)) == [3, 6, 9]
        told = await warning(events)
        assert told.messages_dropped == 4
        assert asyncio.get_running_loop().time() - began > 0.5


async def test_a_buffer_size_of_the_client_counts_if_it_is_smaller(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=5))
    async with Client(server) as client:
        small, large = (
            await client.subscribe("a", max_buffer_size=2),
            await client.subscribe("a", max_buffer_size=1_000),
        )
        with stall(server, small.id), stall(server, large.id):
            for _ in range(6):
                await client.publish("a")
        assert ((await warning(small)).queue_limit, (await warning(large)).queue_limit) == (2, 5)
        assert sequences(await small.messages(2)) == [5, 6]
        assert sequences(await large.messages(5)) == [2, 3, 4, 5, 6]


async def test_a_buffer_size_outlives_a_pause(start: Start) -> None:
    server = await start()
    async with Client(server) as client:
        events = await client.subscribe("a", max_buffer_size=1)
        await client.unsubscribe(events.id, pause=True)
        again, _ = await client.resume(events.id, nexusd.GAP_RECOVERY_NONE)
        with stall(server, again.id):
            for _ in range(3):
                await client.publish("a")
        assert (await warning(again)).queue_limit == 1


async def test_a_client_that_does_not_read_costs_others_nothing(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=100))
    tight = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
    async with Client(server, (), *tight) as lazy, Client(server) as client:
        slow, fast = await lazy.subscribe("a"), await client.subscribe("a")
        payload = bytes(1_024)
        count = 3_000
        for _ in range(count // 100):
            await asyncio.gather(*(client.publish("a", payload) for _ in range(100)))
            await fast.messages(100)
        await until(lambda: server.broker.slow_consumers.dropped_by(slow.id), "no message was dropped")
        taken: list[int] = []
        dropped = 0
        while not taken or taken[-1] < count:
            event = await slow.next()
            dropped += event.backpressure_warning.messages_dropped
            if event.WhichOneof("event") == "message":
                taken.append(event.message.sequence_number)
        assert taken == sorted(taken)
        assert len(taken) + server.broker.slow_consumers.dropped_by(slow.id) == count
        assert 0 < dropped <= server.broker.slow_consumers.dropped_by(slow.id)


async def test_under_disconnect_a_slow_stream_ends_and_can_be_resumed(start: Start) -> None:
    rule = TopicRule(filter="a", policy=Policy.DISCONNECT)
    server = await start(outbox=OutboxSettings(messages=1), topics=(rule,))
    async with Client(server) as client:
        events = await client.subscribe("a")
        stream_of(server, events.id).pause_writing()
        for _ in range(2):
            await client.publish("a")
        code, text = await events.end()
        assert (code, text.partition(":")[0]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota-exceeded")
        again, _ = await client.resume(events.id)
        assert sequences(await again.messages(2, "replay_message")) == [1, 2]


async def test_the_policy_of_this_door_is_a_setting(start: Start) -> None:
    mine = SidecarSettings(port=0, policy=Policy.DROP_NEWEST)
    server = await start(outbox=OutboxSettings(messages=2), sidecar=mine)
    async with Client(server) as client:
        events = await client.subscribe("a")
        with stall(server, events.id):
            for _ in range(4):
                await client.publish("a")
        await warning(events)
        assert sequences(await events.messages(2)) == [1, 2]


async def test_no_heartbeat_is_sent_to_who_does_not_read(start: Start) -> None:
    server = await start(sidecar=SidecarSettings(port=0, heartbeat_s=0.05))
    async with Client(server) as client:
        events = await client.subscribe("a")
        stream = stream_of(server, events.id)
        stream.pause_writing()
        sent_before = server.broker.counters.control_packets_sent
        await asyncio.sleep(0.3)
        assert server.broker.counters.control_packets_sent == sent_before
        stream.resume_writing()
        assert (await events.take(1))[0][0] == "heartbeat"


async def test_who_is_slow_shows_in_the_list_of_the_server(start: Start) -> None:
    server = await start(outbox=OutboxSettings(messages=1))
    async with Client(server) as client:
        events = await client.subscribe("a")
        with stall(server, events.id):
            for _ in range(2):
                await client.publish("a")
            (slow,) = server.broker.slow_consumers.clients()
            assert (slow.client_id, slow.door, slow.is_slow, slow.dropped) == (events.id, "sidecar", True, 1)
        await events.take(2)


@pytest.mark.parametrize(
    ("dropped", "age_ms", "reason"),
    [(0, 5_000, "ttl_expired"), (1, 999, "burst"), (1, 1_000, "slow_consumer")],
)
def test_reasons_follow_from_what_was_lost_and_how_old_the_oldest_is(
    dropped: int, age_ms: int, reason: str
) -> None:
    assert reason_of(LossReport(dropped, 1, 0, 10, age_ms / 1_000), 1_000) == reason


def test_a_warning_has_all_figures() -> None:
    told = warning_of(LossReport(3, 2, 5, 10, 1.5), 1_000)
    assert told == nexusd.BackpressureWarning(
        messages_dropped=3,
        messages_expired=2,
        queue_depth=5,
        queue_limit=10,
        reason="slow_consumer",
        oldest_message_age_ms=1_500,
    )
