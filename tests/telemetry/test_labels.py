"""Labels of topics: bounded, given once, and never a number that falls."""

from random import Random

from penstock.core.settings import CoreSettings, OutboxSettings, TopicLimits, TopicRule
from penstock.telemetry.labels import OTHER_TOPICS
from tests.telemetry.scenes import Scene

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


async def test_a_label_that_was_given_stays() -> None:
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


async def test_a_topic_that_was_forgotten_and_came_back_goes_on_where_it_was() -> None:
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


async def test_what_was_told_among_the_others_stays_there_when_a_label_is_given() -> None:
    scene = Scene(topics=2)
    labels = scene.figures.labels
    scene.publish("a")
    await labels.give()
    scene.publish("late", "late")  # its slice had been looked at when the message came
    first = labels.sums(scene.figures.total())
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
    last: dict[object, float] = {}
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
        assert lost == scene.broker.ledger.counts.get("outbox-full", 0)
