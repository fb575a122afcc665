"""Metrics as JSON, in the format of the In-memory Pub/Sub."""

import asyncio

import msgspec

from penstock.core.settings import CoreSettings, OutboxSettings, TopicRule
from penstock.telemetry.json_format import TOPICS_A_SLICE, Metrics, render
from tests.telemetry.scenes import Scene, many

TOPIC_KEYS = {
    "queue_depth",
    "queue_max_size",
    "batch_size_avg",
    "messages_published",
    "messages_delivered",
    "messages_dropped",
    "subscriber_count",
    "latency_ms",
}
GLOBAL_KEYS = {"active_topics", "active_subscribers", "total_published", "total_delivered", "total_dropped"}


async def read(scene: Scene, *names: str) -> Metrics:
    return msgspec.json.decode(await render(scene.metrics, names), type=Metrics, strict=True)


async def test_every_key_of_the_in_memory_pub_sub_is_there() -> None:
    scene = Scene()
    scene.publish("a")
    told = msgspec.json.decode(await render(scene.metrics))
    assert {"uptime_seconds", "topics", "global"} <= set(told)
    assert set(told["topics"]["a"]) >= TOPIC_KEYS
    assert set(told["topics"]["a"]["latency_ms"]) == {"avg", "p95", "p99"}
    assert set(told["global"]) >= GLOBAL_KEYS


async def test_messages_count_once_when_published_and_for_each_subscriber_when_delivered() -> None:
    scene = Scene()
    for name in ("one", "two", "three"):
        scene.client(name).subscribe("a")
    scene.publish("a", "a", "b")
    told = await read(scene)
    topic = told.topics["a"]
    assert (topic.messages_published, topic.messages_delivered, topic.subscriber_count) == (2, 6, 3)
    assert (told.total.total_published, told.total.total_delivered, told.total.active_topics) == (3, 6, 2)
    assert told.total.active_subscribers == 3


async def test_queued_and_dropped_messages_are_reported() -> None:
    scene = Scene(CoreSettings(outbox=OutboxSettings(messages=4)))
    readers = [scene.client(name) for name in ("one", "two")]
    for reader in readers:
        reader.subscribe("a")
    readers[0].pause()
    scene.publish(*["a"] * 7)
    told = await read(scene)
    assert (told.topics["a"].queue_depth, told.topics["a"].queue_max_size) == (4, 4)
    assert (told.topics["a"].messages_dropped, told.total.total_dropped) == (3, 3)
    assert told.total.slow_subscribers == 1
    readers[0].unpause()
    told = await read(scene)
    assert (told.topics["a"].queue_depth, told.total.slow_subscribers) == (0, 0)


async def test_the_fullest_outbox_counts_for_every_topic_of_its_subscriber() -> None:
    scene = Scene()
    reader = scene.client("reader")
    reader.subscribe("a/+")
    reader.subscribe("$share/g/b")
    reader.pause()
    scene.publish("a/1", "a/1", "a/2", "b", "c")
    depths = {name: topic.queue_depth for name, topic in (await read(scene)).topics.items()}
    assert depths == {"a/1": 3, "a/2": 3, "b": 3, "c": 0}


async def test_it_is_the_fullest_outbox_in_any_order() -> None:
    scene = Scene()
    for name, topics in (("one", ("a", "b")), ("two", ("a",)), ("three", ("a", "b"))):
        reader = scene.client(name)
        for topic in topics:
            reader.subscribe(topic)
        reader.pause()
        scene.publish(*topics)
    depths = {name: topic.queue_depth for name, topic in (await read(scene)).topics.items()}
    assert depths == {"a": 5, "b": 5}


async def test_an_outbox_may_be_full_by_bytes_too() -> None:
    scene = Scene(CoreSettings(outbox=OutboxSettings(messages=100, bytes=1_000)))
    readers = [scene.client(name) for name in ("one", "two")]
    for reader, topic in zip(readers, ("many", "large"), strict=True):
        reader.subscribe(topic)
        reader.pause()
    for _ in range(10):
        scene.sender.publish("many", b"x")
    scene.sender.publish("large", b"x" * 500)
    scene.settle()
    told = await read(scene)
    many, large = told.topics["many"], told.topics["large"]
    assert (many.queue_depth, many.queue_saturation) == (10, 0.1)
    assert (large.queue_depth, large.queue_saturation >= 0.5) == (1, True)
    assert told.outboxes.largest_saturation == large.queue_saturation < 1
    assert told.outboxes.largest_messages == 10


async def test_times_are_milliseconds_and_batches_are_rounded() -> None:
    scene = Scene()
    scene.client("reader").subscribe("a")
    for count in (1, 1, 2):
        scene.sender.publish("a", *[b"x"] * count)
        scene.clock.advance(0.004)
        scene.settle()
    topic = (await read(scene)).topics["a"]
    assert topic.batch_size_avg == 1.33
    assert topic.latency_ms.avg == 4.0
    assert 3.3 <= topic.latency_ms.p95 <= topic.latency_ms.p99 <= 4.8


async def test_expired_messages_are_reported() -> None:
    scene = Scene()
    reader = scene.client("reader")
    reader.subscribe("a")
    reader.pause()
    scene.sender.publish("a", b"x", ttl=1.0)
    scene.advance(2.0)
    told = await read(scene)
    assert (told.topics["a"].messages_expired, told.total.total_expired, told.total.total_dropped) == (
        1,
        1,
        0,
    )


async def test_the_servers_own_topics_are_left_out() -> None:
    scene = Scene()
    reader = scene.client("reader")
    reader.subscribe("$SYS/#")
    scene.broker.publish_server("$SYS/x", b"1")
    scene.settle()
    told = await read(scene)
    assert (told.topics, told.total.active_topics, told.total.total_delivered) == ({}, 0, 0)


async def test_only_requested_topics_are_listed() -> None:
    scene = Scene(json_topics=1)
    scene.publish("a", "b", "b", "c")
    scene.broker.publish_server("$SYS/x", b"1")
    told = await read(scene, "c", "nobody", "$SYS/x", "c")
    assert list(told.topics) == ["c", "$SYS/x"]
    assert (told.topics["c"].messages_published, told.topics["$SYS/x"].messages_published) == (1, 1)
    assert (told.total.active_topics, told.total.total_published, told.topics_left_out) == (3, 4, 2)


async def test_a_requested_topic_is_found_without_visiting_all_others() -> None:
    scene = Scene()
    for name in many("t", 100_000):
        scene.broker.topics.make(name)
    turns = 0
    rendered = asyncio.ensure_future(render(scene.metrics, ["t000007"]))
    while not rendered.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns < 10
    told = msgspec.json.decode(rendered.result(), type=Metrics)
    assert (list(told.topics), told.topics_left_out) == (["t000007"], 99_999)


async def test_no_sum_changes_when_one_of_the_servers_own_topics_is_deleted() -> None:
    rules = (TopicRule(filter="$SYS/#", ring_messages=0),)
    scene = Scene(CoreSettings(outbox=OutboxSettings(messages=1), topics=rules))
    reader = scene.client("reader")
    reader.subscribe("$SYS/#")
    scene.broker.publish_server("$SYS/x", b"1")
    scene.settle()
    reader.pause()
    for _ in range(3):
        scene.broker.publish_server("$SYS/x", b"1")
    scene.settle()
    before = (await read(scene)).total
    reader.unsubscribe("$SYS/#")
    scene.broker._node.router.find_audience("$SYS/x")
    scene.broker.topics.forget_unused()
    after = (await read(scene)).total
    assert "$SYS/x" not in scene.broker.topics
    assert (before.total_delivered, before.total_dropped, before.active_topics) == (0, 0, 0)
    assert (after.total_delivered, after.total_dropped, after.active_topics) == (0, 0, 0)


async def test_names_that_need_it_are_escaped() -> None:
    scene = Scene()
    scene.publish('a "b" \\ ü')
    assert list((await read(scene)).topics) == ['a "b" \\ ü']


async def test_there_is_a_limit_on_topics_and_those_left_out_are_counted() -> None:
    scene = Scene(json_topics=2)
    scene.publish("a", "b", "b", "c", "c", "c", "d")
    scene.broker.publish_server("$SYS/x", b"1")
    told = await read(scene)
    assert list(told.topics) == ["c", "b"]
    assert (told.topics_left_out, told.total.active_topics, told.total.total_published) == (2, 4, 7)


async def test_the_loop_turns_many_times_while_very_many_topics_are_listed() -> None:
    scene = Scene()
    count = 100_000
    for name in many("t", count):
        scene.broker.topics.make(name)
    turns = 0
    rendered = asyncio.ensure_future(render(scene.metrics))
    while not rendered.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= count // 1_000 + 10_000 // 1_000 + 10_000 // TOPICS_A_SLICE
    told = msgspec.json.decode(rendered.result(), type=Metrics)
    assert (len(told.topics), told.topics_left_out) == (10_000, 90_000)
