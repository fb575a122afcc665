"""Metrics of the server as a whole."""

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.settings import CoreSettings, OutboxSettings, TopicRule
from penstock.model import Door, Policy
from penstock.telemetry.overview import CLIENT_DOORS, DoorPart, StreamPart, survey
from penstock.telemetry.samples import STEP_S, WINDOW_S
from tests.telemetry.scenes import Scene

MIB = 1024 * 1024


def crowd(scene: Scene, topic: str) -> None:
    """A subscriber at each door that has such, all with forms of their own."""
    for qos, door in enumerate((Door.MQTT, Door.SIDECAR, Door.WEB)):
        reader = scene.client(f"at {door}")
        reader.session.door = door
        reader.subscribe(topic, qos)


async def test_each_door_has_what_came_in_and_what_went_out() -> None:
    scene = Scene()
    crowd(scene, "a")
    scene.publish("a", "a", "b")
    doors = (await survey(scene.metrics)).doors
    assert doors == {
        "mqtt": DoorPart(3, 2),
        "sidecar": DoorPart(0, 2),
        "web": DoorPart(0, 2),
        "streams": DoorPart(0, 0),
    }


async def test_the_servers_own_messages_count_for_no_door() -> None:
    scene = Scene()
    scene.client("reader").subscribe("$SYS/#")
    scene.broker.publish_server("$SYS/x", b"1")
    scene.settle()
    doors = (await survey(scene.metrics)).doors
    assert set(doors) == set(CLIENT_DOORS)
    assert doors["mqtt"] == DoorPart(0, 0)
    assert scene.broker.counters.delivered == 1


async def test_no_counter_falls_when_a_topic_is_deleted() -> None:
    rules = (TopicRule(filter="#", ring_messages=0),)
    scene = Scene(CoreSettings(topic=TopicLimits(max_topics=2), topics=rules))
    reader = scene.client("reader")
    reader.subscribe("a")
    scene.publish("a", "b")
    reader.unsubscribe("a")
    scene.broker._node.router.find_audience("a")
    scene.broker.reap()
    assert "a" not in scene.broker.topics
    assert (await survey(scene.metrics)).doors["mqtt"] == DoorPart(2, 1)


async def test_queued_messages_are_reported_with_their_limit() -> None:
    scene = Scene(CoreSettings(outbox=OutboxSettings(messages=4)))
    readers = [scene.client(name) for name in ("one", "two")]
    for reader in readers:
        reader.subscribe("a")
        reader.pause()
    scene.publish("a")
    readers[1].unpause()
    scene.publish(*["a"] * 5)
    told = await survey(scene.metrics)
    boxes = told.outboxes
    assert (boxes.lagging_subscribers, boxes.slow_subscribers) == (1, 1)
    assert (boxes.messages, boxes.largest_messages, boxes.limit_messages) == (4, 4, 4)
    assert boxes.bytes > 0
    assert boxes.borrowed_bytes == 0
    assert told.not_delivered == {"outbox-full": 2}


async def test_borrowed_bytes_of_outboxes_are_reported_until_they_are_returned() -> None:
    scene = Scene()
    reader, sender = scene.client("reader"), scene.client("sender")
    reader.subscribe("a")
    reader.pause()
    for _ in range(10):
        sender.publish("a", bytes(MIB))
    scene.settle()
    assert MIB <= (await survey(scene.metrics)).outboxes.borrowed_bytes <= 4 * MIB
    reader.unpause()
    scene.settle()
    assert (await survey(scene.metrics)).outboxes.borrowed_bytes == 0


async def test_a_blocked_publisher_is_reported() -> None:
    scene = Scene(CoreSettings(outbox=OutboxSettings(messages=1, block_wildcards=True)))
    reader = scene.client("reader")
    reader.subscribe("a", policy=Policy.BLOCK)
    reader.pause()
    scene.publish("a", "a")
    boxes = (await survey(scene.metrics)).outboxes
    assert (boxes.publishers_held, boxes.publisher_holds) == (1, 1)


async def test_latency_covers_all_topics_recently() -> None:
    scene = Scene()
    scene.client("reader").subscribe("#")
    lag = scene.metrics.lag
    assert lag is not None
    lag.on_sample()
    for topic, seconds in (("a", 0.004), ("b", 0.008)):
        scene.sender.publish(topic, b"x")
        scene.clock.advance(seconds)
        scene.settle()
    times = (await survey(scene.metrics)).latency_ms
    assert (times.avg, times.entries) == (6.0, 2)
    assert 3.3 <= times.p50 <= 4.8
    assert 6.7 <= times.p95 <= times.p99 <= 9.6
    for _ in range(int(WINDOW_S / STEP_S) + 1):
        scene.clock.advance(STEP_S)
        lag.on_sample()
    times = (await survey(scene.metrics)).latency_ms
    assert (times.avg, times.p99, times.entries) == (0.0, 0.0, 0)


async def test_loop_lag_is_reported() -> None:
    scene = Scene()
    lag = scene.metrics.lag
    assert lag is not None
    for seconds in (0.0, 0.5):
        lag.seconds.add(60 if seconds else 0, seconds)
    told = (await survey(scene.metrics)).loop_lag_ms
    assert told.avg == 250.0
    assert told.p99 > 0


async def test_doors_process_rings_streams_and_log_are_reported() -> None:
    scene = Scene()
    scene.publish("a", "b")
    told = await survey(scene.metrics)
    assert told.connections == {"http": 2}
    assert told.process.cpu_seconds > 0
    assert told.process.memory_bytes is None or told.process.memory_bytes > 1_000_000
    assert told.rings.topics == 2
    assert 0 < told.rings.bytes < told.rings.limit_bytes
    assert told.streams == StreamPart(0, 0, 0, 0)
    log = scene.broker.log
    assert (told.log.durable, told.log.failing, told.log.stored_bytes) == (False, False, None)
    assert (told.log.epoch, told.log.last_offset) == (log.epoch, log.last_offset)
    assert (told.version, told.node_id) == ("1.2", scene.broker.node_id)


@pytest.mark.parametrize("is_measured", [True, False])
async def test_bytes_are_reported_with_or_without_loop_lag(is_measured: bool) -> None:
    scene = Scene()
    if not is_measured:
        scene.metrics.loop_lag = None
    scene.broker.counters.bytes_received, scene.broker.counters.bytes_sent = 7, 9
    told = await survey(scene.metrics)
    assert (told.bytes.received, told.bytes.sent, told.loop_lag_ms.avg) == (7, 9, 0.0)
