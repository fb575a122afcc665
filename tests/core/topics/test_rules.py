"""Other settings for topics that are known: their rings, their rules, and nobody who waits for all."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.diagnostics.ledger import Ledger
from penstock.core.settings import (
    CoreSettings,
    LedgerSettings,
    OutboxSettings,
    RingSettings,
    SessionSettings,
    TopicRule,
)
from penstock.core.topics.registry import Registry
from penstock.core.topics.ring import Partition, Ring, Rings
from penstock.model import Reason
from penstock.runs import NEVER
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.samples import make_run, payloads_of

ROOMY = 1 << 30
KIB = 1024


def filled(limit: int, count: int, size: int = 10, *, partition: Partition | None = None) -> Ring:
    ring = Ring(limit, ROOMY, Partition(ROOMY) if partition is None else partition)
    for number in range(1, count + 1):
        ring.append(make_run("a", bytes([number % 256]) * size, sequence=number, offset=number))
    return ring


def sequences_in(ring: Ring) -> list[int]:
    return [run.sequence + index for run in ring.runs() for index in range(run.count)]


# Rings


def test_a_ring_that_shrinks_keeps_the_newest_and_says_what_is_gone() -> None:
    ring = filled(100, 50)
    ring.resize(3, ROOMY)
    assert sequences_in(ring) == [48, 49, 50]
    assert ring.evicted_offset == 47


def test_a_ring_that_grows_keeps_what_it_has_and_more_from_then_on() -> None:
    ring = filled(3, 10)
    ring.resize(6, ROOMY)
    kept = sequences_in(ring)
    for number in range(11, 21):
        ring.append(make_run("a", b"x", sequence=number, offset=number))
    assert kept[-3:] == [8, 9, 10]
    assert sequences_in(ring) == [15, 16, 17, 18, 19, 20]


def test_a_ring_with_fewer_bytes_gives_the_memory_back() -> None:
    partition = Partition(ROOMY)
    ring = filled(1_000, 500, 1_000, partition=partition)
    assert partition.reserved_bytes > 400 * KIB
    ring.resize(1_000, 8 * KIB)
    assert partition.reserved_bytes <= 8 * KIB
    for number in range(501, 601):
        ring.append(make_run("a", bytes(1_000), sequence=number, offset=number))
    assert partition.reserved_bytes <= 8 * KIB
    assert sum(map(len, (payload for run in ring.runs() for payload in payloads_of(run)))) <= 8 * KIB


def test_a_ring_without_bytes_is_empty_and_stays_so() -> None:
    partition = Partition(ROOMY)
    ring = filled(10, 5, partition=partition)
    ring.resize(10, 0)
    ring.append(make_run("a", b"x", sequence=6, offset=6))
    assert ring.runs() == []
    assert (partition.reserved_bytes, len(partition)) == (0, 0)
    assert ring.evicted_offset == 6


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from([100, 5_000, 20_000, ROOMY]), st.integers(0, 30)),
        max_size=8,
    )
)
def test_whatever_its_limits_become_a_ring_has_the_newest_and_names_the_rest(
    steps: list[tuple[int, int, int]],
) -> None:
    ring, number, limit = Ring(10, ROOMY, Partition(ROOMY)), 0, 10
    for limit, limit_bytes, count in steps:
        ring.resize(limit, limit_bytes)
        for _ in range(count):
            number += 1
            ring.append(make_run("a", bytes(50), sequence=number, offset=number))
        kept = sequences_in(ring)
        assert len(kept) <= limit
        assert kept == list(range(number - len(kept) + 1, number + 1))
        assert ring.evicted_offset == number - len(kept)


def test_messages_that_expire_follow_alike_ones_that_do_not() -> None:
    ring = filled(10, 2)
    ring.resize(10, ROOMY)
    for number, expires_at in ((3, 5.0), (4, NEVER)):
        ring.append(make_run("a", b"x", sequence=number, offset=number, expires_at=expires_at))
    assert [run.expires_at for run in ring.runs()] == [NEVER, NEVER, 5.0, NEVER]


def test_partitions_with_less_memory_evict_their_coldest_rings() -> None:
    rings = Rings(RingSettings(total_bytes=ROOMY, partitions=1))
    made = {name: rings.make(name, 10, ROOMY) for name in "abc"}
    for offset, ring in enumerate(made.values(), start=1):
        ring.append(make_run("a", bytes(3_000), sequence=1, offset=offset))
    rings.resize(8 * KIB)
    while rings.shed():
        pass
    assert [name for name, ring in made.items() if ring.messages] == ["b", "c"]
    assert rings.partitions[0].evictions == 1
    assert rings.make("d", 10, ROOMY)._limit_bytes == 8 * KIB


def test_many_rings_without_room_go_in_steps_and_what_comes_meanwhile_lets_few_of_them_go() -> None:
    rings = Rings(RingSettings(total_bytes=ROOMY, partitions=1))
    partition = rings.partitions[0]
    made = [rings.make(str(number), 10, ROOMY) for number in range(1_000)]
    for offset, ring in enumerate(made, start=1):
        ring.append(make_run("a", b"x", sequence=1, offset=offset))
    rings.resize(8 * KIB)
    assert partition.evictions == 0
    made[0].append(make_run("a", bytes(5_000), sequence=2, offset=1_001))  # its limit follows with its topic
    assert partition.evictions < 5
    evictions = [partition.evictions]
    while rings.shed():
        evictions.append(partition.evictions)
    assert max(after - before for before, after in pairwise(evictions)) <= 100
    assert partition.reserved_bytes <= 8 * KIB


def test_a_limit_that_rises_again_while_rings_go_spares_the_rest() -> None:
    rings = Rings(RingSettings(total_bytes=ROOMY, partitions=1))
    made = [rings.make(str(number), 10, ROOMY) for number in range(1_000)]
    for offset, ring in enumerate(made, start=1):
        ring.append(make_run("a", b"x", sequence=1, offset=offset))
    rings.resize(8 * KIB)
    rings.shed()
    rings.resize(ROOMY)
    evictions = rings.partitions[0].evictions
    assert not rings.shed()
    assert rings.partitions[0].evictions == evictions < 100


# Topics


@pytest.fixture
def topics() -> Registry:
    registry = Registry(CoreSettings())
    publish(registry, "a/b", 1, 2, 3)
    return registry


def publish(registry: Registry, name: str, *numbers: int) -> None:
    topic = registry.make(name)
    for number in numbers:
        topic.sequence = number
        run = make_run(name, b"x", sequence=number, offset=number)
        if topic.ring is None:
            registry.begin_ring(topic, run)
        else:
            topic.ring.append(run)


def renew(registry: Registry, settings: CoreSettings) -> None:
    registry.configure(settings)
    for topic in registry.values():
        registry.renew(topic)


def test_a_known_topic_gets_the_rules_that_match_it_now(topics: Registry) -> None:
    rules = (TopicRule(filter="a/#", ttl_ms=2_000, ring_messages=2),)
    renew(topics, CoreSettings(topics=rules))
    assert topics["a/b"].rules.ttl == 2.0
    assert [run.sequence for run in topics["a/b"].runs] == [2, 3]
    renew(topics, CoreSettings())
    assert topics["a/b"].rules.ttl == NEVER


def test_a_topic_that_keeps_no_messages_any_more_says_that_they_are_gone(topics: Registry) -> None:
    renew(topics, CoreSettings(ring=RingSettings(messages=0)))
    topic = topics["a/b"]
    assert topic.ring is None and topic.runs == []
    assert topic.last_offset == topic.gone_offset == 3


def test_a_topic_that_keeps_messages_again_says_that_it_had_others(topics: Registry) -> None:
    renew(topics, CoreSettings(ring=RingSettings(messages=0)))
    publish(topics, "a/b", 4)
    renew(topics, CoreSettings())
    publish(topics, "a/b", 5)
    topic = topics["a/b"]
    assert [run.sequence for run in topic.runs] == [5]
    assert topic.ring is not None and topic.ring.evicted_offset == 4


def test_new_topics_have_the_new_rules_before_the_others_are_renewed(topics: Registry) -> None:
    topics.configure(replace(CoreSettings(), default_ttl_ms=1_000))
    assert topics["a/b"].rules.ttl == NEVER
    assert topics.make("a/c").rules.ttl == 1.0


# All of a broker


def test_every_topic_follows_however_many_there_are() -> None:
    stage = Stage()
    for number in range(1_000):
        stage.client("publisher").publish(f"a/{number}", b"x")
    stage.settle()
    stage.broker.configure(CoreSettings(default_ttl_ms=5_000))
    stage.settle()
    names = [name for name in stage.broker.topics if name.startswith("a/")]
    assert len(names) == 1_000
    assert {stage.broker.topics[name].rules.ttl for name in names} == {5.0}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (CoreSettings(outbox=OutboxSettings(messages=5)), 5),
        (CoreSettings(outbox=OutboxSettings(bytes=5)), 3),
    ],
)
def test_a_queue_that_is_there_has_the_new_limits(settings: CoreSettings, kept: int) -> None:
    stage = Stage()
    slow, publisher = stage.client("slow", room_bytes=0), stage.client("publisher")
    slow.subscribe("a")
    for _ in range(4):
        publisher.publish("a", b"xx")
        stage.settle()
    assert len(slow.session.outbox or ()) == 3  # the first is on its way
    stage.broker.configure(settings)
    for _ in range(4):
        publisher.publish("a", b"xx")
        stage.settle()
    assert len(slow.session.outbox or ()) == kept


def test_an_absent_session_is_owed_no_more_than_the_settings_say_now() -> None:
    stage = Stage()
    absent, publisher = stage.client("absent", expiry=60), stage.client("publisher")
    absent.subscribe("a", qos=1)
    absent.disconnect()
    publisher.publish("a", b"x", qos=1)
    stage.settle()
    stage.broker.configure(CoreSettings(sessions=SessionSettings(owed_messages=2)))
    for _ in range(3):
        publisher.publish("a", b"x", qos=1)
    stage.settle()
    assert len(absent.session.offline_queue or ()) == 2
    assert stage.losses("absent") == [("a", 3, 4, "owed-full")]


def test_the_ledger_forgets_its_oldest_rows_when_it_may_have_fewer() -> None:
    stage = Stage()
    gone = stage.client("gone", expiry=60)
    gone.subscribe("#")
    gone.disconnect()
    for name in "abc":
        stage.client("publisher").publish(name, b"x")
    stage.settle()
    assert [row[0] for row in stage.losses()] == ["a", "b", "c"]
    stage.broker.configure(CoreSettings(ledger=LedgerSettings(rows=1)))
    assert [row[0] for row in stage.losses()] == ["c"]
    assert stage.broker.ledger.rows_forgotten == 2


def test_the_ledger_forgets_many_rows_in_steps() -> None:
    ledger = Ledger(ManualClock(), 10_000)
    for number in range(1, 5_001):
        ledger.add(make_run(f"a/{number}", b"x"), "gone", Reason.NOT_CONNECTED)
    ledger.resize(10)
    assert ledger.shed() and ledger.rows_forgotten < 1_000
    while ledger.shed():
        pass
    assert len(list(ledger.rows())) == 10
    assert ledger.rows_forgotten == 4_990


def test_a_subscriber_with_an_outbox_of_its_own_has_no_more_than_the_new_limits() -> None:
    stage = Stage()
    slow, publisher = stage.client("slow", room_bytes=0), stage.client("publisher")
    slow.session.outbox_messages = 8
    slow.subscribe("a")
    for _ in range(4):
        publisher.publish("a", b"x")
        stage.settle()
    for most, kept in ((6, 6), (100, 8)):
        stage.broker.configure(CoreSettings(outbox=OutboxSettings(messages=most)))
        for _ in range(10):
            publisher.publish("a", b"x")
            stage.settle()
        assert len(slow.session.outbox or ()) == kept
