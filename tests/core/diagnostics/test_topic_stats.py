"""What topics know of themselves: published, delivered, lost, and how fast."""

from collections import Counter
from random import Random

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.diagnostics import topic_stats
from penstock.core.diagnostics.topic_stats import FEW_RUNS, TIMED_AT_ONCE
from penstock.core.settings import CoreSettings, LogSettings, OutboxSettings, TopicRule
from penstock.model import Door, Policy, Reason
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.samples import make_run

LARGE = b"-" * 60
SMALL = b"+"
DOORS = (Door.MQTT, Door.SIDECAR, Door.WEB)


def delivered(stage: Stage) -> dict[str, int]:
    return {topic.name: topic.delivered for topic in stage.broker.topics.values() if topic.delivered}


def got(*clients: Client) -> dict[str, int]:
    return dict(Counter(frame.topic for client in clients for frame in client.take()))


def crowd(stage: Stage) -> list[Client]:
    """Subscribers of every kind, all of whom want nearly everything."""
    kinds: list[tuple[str, dict[str, object]]] = [
        ("#", {}),
        ("#", {"qos": 1}),
        ("#", {"no_local": True}),
        ("#", {"no_local": True, "qos": 1}),
        ("#", {"limit_bytes": 40}),
        ("#", {"limit_bytes": 40, "qos": 1}),
        ("a/+", {"qos": 2}),
        ("$share/g/#", {}),
        ("$share/g/#", {"qos": 1}),
        ("$share/h/a/#", {"limit_bytes": 40}),
    ]
    clients = []
    for number, (filter, options) in enumerate(kinds):
        client = stage.client(f"c{number}", window=5 if number % 2 else 65_535)
        client.session.door = DOORS[number % len(DOORS)]
        client.subscribe(filter, **options)  # type: ignore[arg-type]
        clients.append(client)
    return clients


@pytest.mark.parametrize("seed", range(10))
def test_every_message_that_leaves_counts_for_its_topic_and_the_door_of_whoever_gets_it(seed: int) -> None:
    random, stage = Random(seed), Stage()
    clients = crowd(stage)
    seen: Counter[str] = Counter()
    by_door: Counter[Door] = Counter()
    for _ in range(60):
        action = random.random()
        client = random.choice(clients)
        if action < 0.6:
            runs = [
                make_run(f"a/{random.randrange(4)}", *[random.choice((SMALL, LARGE))] * random.randint(1, 3))
                for _ in range(random.randint(1, 12))
            ]
            qos = random.randrange(3)
            for run in runs:
                client.publish(run.topic, *[run.payload(0)] * run.count, qos=qos)
        elif action < 0.75:
            client.pause()
        elif action < 0.9:
            client.unpause()
        else:
            stage.settle()
        for each in clients:
            for frame in each.take():
                seen[frame.topic] += 1
                by_door[each.session.door] += 1
                if frame.number:
                    each.acknowledge(frame.number)
    stage.settle()
    for each in clients:
        frames = each.take()
        seen.update(frame.topic for frame in frames)
        by_door[each.session.door] += len(frames)
    assert delivered(stage) == dict(seen)
    assert sum(seen.values()) == stage.broker.counters.delivered
    assert {door: count for door, count in stage.broker.counters.delivered_at.items() if count} == by_door


def test_messages_published_since_the_start_are_counted() -> None:
    disk = Disk()
    settings = CoreSettings(log=LogSettings(capture=("kept",)))
    before = Stage(settings, disk=disk)
    sender = before.client("s")
    sender.publish("kept", b"1", b"2", qos=1)
    sender.publish("valued", b"3", qos=1, retain=True)
    before.settle()
    after = Stage(settings, disk=disk)
    sender = after.client("s")
    sender.publish("kept", b"4", qos=1)
    after.settle()
    topics = after.broker.topics
    assert (topics["kept"].sequence, topics["kept"].published) == (3, 1)
    assert (topics["valued"].sequence, topics["valued"].published) == (1, 0)


def test_a_topic_that_was_forgotten_begins_anew() -> None:
    stage = Stage(
        CoreSettings(topic=TopicLimits(max_topics=2), topics=(TopicRule(filter="#", ring_messages=0),))
    )
    sender = stage.client("s")
    sender.publish("a", b"1", b"2")
    sender.publish("b", b"1")
    stage.settle()
    stage.broker.reap()
    assert "a" not in stage.broker.topics
    sender.publish("a", b"3")
    assert stage.broker.topics["a"].published == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_too_large_for_its_only_subscriber_is_not_delivered(qos: int) -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", qos, limit_bytes=40)
    sender.publish("a", LARGE, qos=qos)
    stage.settle()
    assert stage.why("a", 1, "r") == "packet-too-large"
    assert stage.broker.topics["a"].delivered == 0


def test_what_was_kept_for_a_slow_subscriber_counts_when_it_leaves() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    reader.pause()
    sender.publish("a", b"1")
    sender.publish("b", b"2")
    stage.settle()
    assert delivered(stage) == {}
    reader.unpause()
    assert delivered(stage) == {"a": 1, "b": 1}


def test_a_retained_value_counts_when_it_is_sent() -> None:
    stage = Stage()
    stage.client("s").publish("a", b"1", retain=True)
    stage.settle()
    reader = stage.client("r")
    reader.subscribe("a")
    stage.settle()
    assert got(reader) == delivered(stage) == {"a": 1}


def test_what_is_lost_counts_by_topic_reason_and_policy() -> None:
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=2)))
    sender = stage.client("s")
    for name, policy in (("oldest", Policy.DROP_OLDEST), ("newest", Policy.DROP_NEWEST)):
        reader = stage.client(name)
        reader.subscribe(name, policy=policy)
        reader.pause()
    for topic, count in (("oldest", 5), ("newest", 3)):
        for _ in range(count):
            sender.publish(topic, b"x")
    stage.settle()
    topics = stage.broker.topics
    assert topics["oldest"].lost == {(Reason.OUTBOX_FULL, Policy.DROP_OLDEST): 3}
    assert topics["newest"].lost == {(Reason.OUTBOX_FULL, Policy.DROP_NEWEST): 1}
    assert stage.broker.topic_stats.lost == {**topics["oldest"].lost, **topics["newest"].lost}


def test_what_expires_is_counted_and_everyday_life_is_not() -> None:
    stage = Stage()
    sender, reader, away = stage.client("s"), stage.client("r"), stage.client("w", expiry=60.0)
    reader.subscribe("a")
    away.subscribe("a")
    away.drop()
    reader.pause()
    sender.publish("a", b"1", ttl=1.0)
    sender.publish("a", b"2")
    stage.settle()
    stage.advance(2.0)
    assert stage.why("a", 1, "w") == "not-connected"
    assert stage.broker.topics["a"].lost == {(Reason.EXPIRED, None): 1}


# How fast


def test_a_stretch_is_timed_from_the_first_byte_read_to_the_last_write() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    tick = stage.node.tick
    assert not tick.open_alone(0.0)
    stage.clock.advance(0.25)
    sender.publish("a", b"1", b"2")
    stage.clock.advance(0.5)
    stage.settle()
    latency, recent = stage.broker.topic_stats.latency, stage.broker.topics["a"].recent
    assert latency.count == 1
    assert latency.seconds == pytest.approx(0.75)
    assert recent is not None
    assert (recent.count, recent.mean_messages) == (1, 2)
    assert recent.mean_s == pytest.approx(0.75)


def test_a_chunk_without_messages_is_no_part_of_the_next_turn() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    tick = stage.node.tick
    tick.open_alone(0.0)
    tick.forget_read()
    stage.clock.advance(5.0)
    sender.publish("a", b"1")
    stage.settle()
    assert stage.broker.topic_stats.latency.seconds == 0.0


def test_the_second_chunk_of_a_turn_is_timed_from_the_first() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    sender.publish("a", b"1")
    stage.clock.advance(1.0)
    stage.node.tick.open_alone(1.0)
    sender.publish("a", b"2")
    stage.node.tick.forget_read()
    stage.settle()
    latency = stage.broker.topic_stats.latency
    assert latency.count == 1
    assert latency.seconds == pytest.approx(1.0)


def test_a_batch_is_timed_from_its_first_message() -> None:
    rule = TopicRule(filter="a", batch_size=10, batch_timeout_ms=500)
    stage = Stage(CoreSettings(topics=(rule,)))
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    sender.publish("a", b"1")
    stage.settle()
    stage.scheduler.advance(0.2)
    sender.publish("a", b"2")
    sender.publish("b", b"3")
    stage.settle()
    stage.scheduler.advance(1.0)
    recent = stage.broker.topics["a"].recent
    assert recent is not None
    assert recent.mean_s == pytest.approx(0.5)
    assert recent.mean_messages == 2
    assert stage.broker.topic_stats.latency.seconds == pytest.approx(0.5), "b did not wait"


def test_what_nobody_gets_is_not_timed() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a")
    reader.pause()
    sender.publish("a", b"1")
    stage.settle()
    assert stage.broker.topic_stats.latency.count == 0
    assert stage.broker.topics["a"].recent is None


def test_what_leaves_through_a_shared_group_is_timed() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("$share/g/a")
    sender.publish("a", b"1")
    stage.settle()
    assert stage.broker.topic_stats.latency.count == 1
    assert stage.broker.topics["a"].recent is not None


def test_every_topic_of_a_short_stretch_gets_its_first_entry() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    names = [f"t{number}" for number in range(FEW_RUNS)]
    for name in names:
        sender.publish(name, b"1")
    stage.settle()
    assert all(stage.broker.topics[name].recent is not None for name in names)


def test_every_topic_of_long_stretches_has_its_turn() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    names = [f"t{number}" for number in range(FEW_RUNS * 3)]
    for _ in range(2 * len(names)):
        for name in names:
            sender.publish(name, b"1")
            sender.publish(name, b"2")
        stage.settle()
    assert stage.broker.topic_stats.latency.count == 2 * len(names)
    recents = [stage.broker.topics[name].recent for name in names]
    assert [recent.mean_messages for recent in recents if recent is not None] == [2] * len(names)


def test_every_topic_has_its_turn_where_each_has_subscribers_of_its_own() -> None:
    stage = Stage()
    sender = stage.client("s")
    names = [f"t{number}" for number in range(TIMED_AT_ONCE * 3)]
    for name in names:
        stage.client(name).subscribe(name)
    for _ in range(30):
        for name in names:
            sender.publish(name, b"1")
        stage.settle()
    assert stage.broker.topic_stats.latency.count == 30 * len(names), "all of them are in the histogram"
    counts = [recent.count for name in names if (recent := stage.broker.topics[name].recent) is not None]
    assert len(counts) == len(names)
    assert sum(counts) == 30 * TIMED_AT_ONCE


def test_the_topics_beyond_the_limit_share_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_stats, "TOPICS_TIMED", 2)
    stage = Stage(
        CoreSettings(topic=TopicLimits(max_topics=5), topics=(TopicRule(filter="#", ring_messages=0),))
    )
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("#")
    for name in ("a", "b", "c", "d"):
        sender.publish(name, b"1")
        stage.settle()
    topics = stage.broker.topics
    records = [topics[name].recent for name in ("a", "b", "c", "d")]
    assert len({id(record) for record in records}) == 3
    assert records[2] is records[3]
    reader.unsubscribe("#")
    sender.publish("e", b"1")
    for name in ("a", "b", "c", "d"):
        stage.node.router.find_audience(name)
    stage.broker.reap()
    assert not topics
    reader.subscribe("#")
    for name in ("f", "g"):
        sender.publish(name, b"1")
        stage.settle()
    assert topics["f"].recent is not topics["g"].recent, "who is forgotten makes room"
