"""Topic labels: bounded, assigned once, and counters that never fall; ranking of topics in slices."""

import asyncio
from random import Random

from penstock.common.topics import TopicLimits
from penstock.core.settings import CoreSettings, OutboxSettings, TopicRule
from penstock.model import Reason
from penstock.telemetry import labels
from penstock.telemetry.labels import OTHER_TOPICS, TOPICS_A_SLICE, rank_topics
from tests.telemetry.scenes import Samples, Scene, many


async def test_the_topics_with_most_messages_come_first() -> None:
    scene = Scene()
    scene.publish("a", "b", "b", "c", "c", "c")
    found = await rank_topics(scene.broker.topics, 2)
    assert [topic.name for topic in found] == ["c", "b"]


async def test_topics_without_messages_are_found_on_request() -> None:
    scene = Scene()
    scene.publish("a")
    scene.broker.topics.make("silent")
    assert [topic.name for topic in await rank_topics(scene.broker.topics, 9)] == ["a", "silent"]
    assert [topic.name for topic in await rank_topics(scene.broker.topics, 9, least=1)] == ["a"]


async def test_topics_can_be_excluded_and_the_servers_own_always_are() -> None:
    scene = Scene()
    scene.publish("a", "b")
    scene.broker.publish_server("$SYS/x", b"1")
    found = await rank_topics(scene.broker.topics, 9, without={"a"})
    assert [topic.name for topic in found] == ["b"]


async def test_a_limit_of_zero_finds_nothing() -> None:
    scene = Scene()
    scene.publish("a")
    assert await rank_topics(scene.broker.topics, 0) == []


async def test_one_slice_per_turn_of_the_loop() -> None:
    scene = Scene()
    for name in many("t", 10 * TOPICS_A_SLICE):
        scene.broker.topics.make(name)
    turns = 0
    ranked = asyncio.ensure_future(rank_topics(scene.broker.topics, 3 * TOPICS_A_SLICE))
    while not ranked.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10 + 3
    assert len(ranked.result()) == 3 * labels.TOPICS_A_SLICE


async def test_topics_may_be_added_and_deleted_meanwhile() -> None:
    scene = Scene()
    for name in many("t", 2 * TOPICS_A_SLICE):
        scene.broker.topics.make(name)
    ranked = asyncio.ensure_future(rank_topics(scene.broker.topics, 10 * TOPICS_A_SLICE))
    await asyncio.sleep(0)
    scene.publish("new")
    scene.broker.topics.forget_unused()
    assert [topic.name for topic in await ranked] == []
    assert "new" in scene.broker.topics


PUBLISHED = "penstock_messages_published_total"
DELIVERED = "penstock_messages_delivered_total"


async def test_the_topics_with_most_messages_have_labels_and_the_others_one_together() -> None:
    scene = Scene(topics=2)
    scene.publish("a", "b", "b", "c", "c", "c", "d")
    assert await scene.by_topic(PUBLISHED) == {"c": 3, "b": 2, OTHER_TOPICS: 2}


async def test_without_labels_there_are_only_the_others() -> None:
    scene = Scene(topics=0)
    scene.publish("a", "b")
    assert await scene.by_topic(PUBLISHED) == {OTHER_TOPICS: 2}


async def test_a_topic_gets_its_label_when_it_has_messages() -> None:
    scene = Scene(topics=2)
    scene.broker.topics.make("silent")
    scene.publish("a")
    assert await scene.by_topic(PUBLISHED) == {"a": 1, OTHER_TOPICS: 0}
    scene.publish("b", "b")
    assert await scene.by_topic(PUBLISHED) == {"a": 1, "b": 2, OTHER_TOPICS: 0}


async def test_an_assigned_label_stays() -> None:
    scene = Scene(topics=1)
    scene.publish("a")
    await scene.read()
    scene.publish("b", "b", "b")
    assert await scene.by_topic(PUBLISHED) == {"a": 1, OTHER_TOPICS: 3}


async def test_a_topic_with_the_name_of_the_others_is_one_of_them() -> None:
    scene = Scene()
    scene.publish("a", OTHER_TOPICS, OTHER_TOPICS)
    assert await scene.by_topic(PUBLISHED) == {"a": 1, OTHER_TOPICS: 2}


async def test_the_servers_own_topics_are_among_the_others() -> None:
    scene = Scene()
    reader = scene.client("reader")
    reader.subscribe("$SYS/#")
    reader.subscribe("a")
    scene.publish("a")
    scene.broker.publish_server("$SYS/x", b"1")
    scene.settle()
    assert await scene.by_topic(DELIVERED) == {"a": 1, OTHER_TOPICS: 1}
    assert await scene.by_topic(PUBLISHED) == {"a": 1, OTHER_TOPICS: 0}


async def test_a_topic_that_is_created_again_continues_its_counters() -> None:
    settings = CoreSettings(topic=TopicLimits(max_topics=2), topics=(TopicRule(filter="#", ring_messages=0),))
    scene = Scene(settings)
    scene.publish("a", "a", "b")
    await scene.read()
    scene.broker.reap()
    assert not scene.broker.topics
    assert await scene.by_topic(PUBLISHED) == {"a": 2, "b": 1, OTHER_TOPICS: 0}
    scene.publish("a")
    for _ in range(2):
        assert await scene.by_topic(PUBLISHED) == {"a": 3, "b": 1, OTHER_TOPICS: 0}


async def test_counts_exported_under_other_topics_stay_there_after_a_label_is_assigned() -> None:
    scene = Scene(topics=2)
    labels = scene.metrics.labels
    scene.publish("a")
    await labels.assign()
    scene.publish("late", "late")  # its slice was visited before the message arrived
    first = labels.sums(scene.metrics.total())
    assert first[OTHER_TOPICS]["published"] == 2
    scene.publish("late")
    assert await scene.by_topic(PUBLISHED) == {"a": 1, "late": 1, OTHER_TOPICS: 2}


async def test_no_number_ever_falls_and_the_sum_is_the_total() -> None:
    random = Random(3)
    settings = CoreSettings(
        topic=TopicLimits(max_topics=6),
        topics=(TopicRule(filter="#", ring_messages=0),),
        outbox=OutboxSettings(messages=2),
    )
    scene = Scene(settings, topics=3)
    reader = scene.client("reader")
    reader.subscribe("a/#")
    last: Samples = {}
    for _ in range(40):
        scene.publish(*[f"{random.choice('ab')}/{random.randrange(3)}" for _ in range(random.randrange(6))])
        if random.random() < 0.3:
            random.choice((reader.pause, reader.unpause))()
        scene.broker.reap()
        now = {key: value for key, value in (await scene.read()).items() if key[0].endswith("_total")}
        assert not [key for key, value in last.items() if now.get(key, -1) < value]
        last = {**now}
        assert sum((await scene.by_topic(PUBLISHED)).values()) == scene.broker.counters.published
        assert sum((await scene.by_topic(DELIVERED)).values()) == scene.broker.counters.delivered
        lost = sum(value for key, value in now.items() if key[0] == "penstock_messages_dropped_total")
        assert lost == scene.broker.ledger.counts.get(Reason.OUTBOX_FULL, 0)
