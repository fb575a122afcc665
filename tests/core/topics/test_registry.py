"""Topics by name, and what the settings say of each."""

from collections.abc import Iterator

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.settings import CoreSettings, LogSettings, RingSettings, TopicRule
from penstock.core.subscriptions.audience import NOBODY
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import STALE
from penstock.errors import QuotaExceeded, StorageUnavailable
from penstock.model import Policy
from penstock.runs import NEVER
from tests.support.broker import Stage
from tests.support.samples import make_run


def registry_of(*rules: TopicRule, **settings: object) -> Registry:
    return Registry(CoreSettings(topics=rules, **settings))  # type: ignore[arg-type]


def test_a_topic_is_made_once_and_found_by_its_name() -> None:
    topics = registry_of()
    topic = topics.make("a/b")
    assert topics.make("a/b") is topic is topics["a/b"]
    assert (topic.name, topic.sequence, topic.ring, topic.retained) == ("a/b", 0, None, None)


def test_a_new_topic_has_to_look_for_its_audience() -> None:
    topic = registry_of().make("a")
    assert topic.version == STALE
    assert topic.audience is NOBODY


def test_one_topic_too_many_is_refused_and_those_there_are_stay() -> None:
    topics = registry_of(topic=TopicLimits(max_topics=2))
    first = topics.make("a")
    topics.make("b")
    with pytest.raises(QuotaExceeded):
        topics.make("c")
    assert topics.make("a") is first
    assert list(topics) == ["a", "b"]


def test_without_rules_the_general_settings_count() -> None:
    topics = registry_of(ring=RingSettings(messages=7, topic_bytes=700), default_ttl_ms=1_500)
    rules = topics.make("a").rules
    assert (rules.ring_messages, rules.ring_bytes, rules.ttl) == (7, 700, 1.5)
    assert (rules.policy, rules.batch_size, rules.batch_timeout) == (None, 0, 0.0)
    assert not rules.is_kept


def test_the_first_rule_that_matches_and_sets_a_value_wins() -> None:
    topics = registry_of(
        TopicRule(filter="a/#", ttl_ms=2_000),
        TopicRule(filter="a/b", ttl_ms=9_000, ring_messages=3, policy=Policy.BLOCK),
        TopicRule(filter="#", ring_messages=50, batch_size=10, batch_timeout_ms=20, ring_bytes=99),
    )
    both, one, rest = (topics.make(name).rules for name in ("a/b", "a/c", "z"))
    assert (both.ttl, both.ring_messages, both.policy) == (2.0, 3, Policy.BLOCK)
    assert (one.ttl, one.ring_messages, one.policy) == (2.0, 50, None)
    assert (rest.ttl, rest.batch_size, rest.batch_timeout, rest.ring_bytes) == (NEVER, 10, 0.02, 99)


def test_a_rule_can_take_the_general_lifetime_away() -> None:
    topics = registry_of(TopicRule(filter="a", ttl_ms=0), default_ttl_ms=1_000)
    assert topics.make("a").rules.ttl == NEVER
    assert topics.make("b").rules.ttl == 1.0


def test_topics_under_the_same_rules_share_their_traits() -> None:
    topics = registry_of(TopicRule(filter="a/+", ttl_ms=5), log=LogSettings(capture=("a/k", "x")))
    assert topics.make("a/1").rules is topics.make("a/2").rules
    assert topics.make("a/1").rules is not topics.make("a/k").rules
    assert topics.make("b").rules is not topics.make("x").rules


def test_topics_that_the_log_captures_are_kept() -> None:
    topics = registry_of(log=LogSettings(capture=("a/#", "b")))
    kept = [name for name in ("a", "a/b", "b", "c", "$a") if topics.make(name).rules.is_kept]
    assert kept == ["a", "a/b", "b"]


@pytest.mark.parametrize(
    ("rule", "is_plain"),
    [
        (TopicRule(filter="#", ring_messages=1, policy=Policy.BLOCK), True),
        (TopicRule(filter="#", ttl_ms=1), False),
        (TopicRule(filter="#", batch_size=2), False),
    ],
)
def test_a_topic_is_plain_while_its_messages_need_nothing_but_ring_and_audience(
    rule: TopicRule, is_plain: bool
) -> None:
    assert registry_of(rule).make("a").rules.is_plain == is_plain


def test_the_filters_of_the_log_say_which_topics_it_keeps() -> None:
    topics = registry_of(log=LogSettings(capture=("kept/#",)))
    assert topics.make("kept/a").rules.is_kept
    assert not topics.make("other").rules.is_kept


def test_a_topic_goes_on_after_the_last_sequence_that_the_log_ever_had() -> None:
    topics = Registry(CoreSettings(), lambda name: 7)
    assert topics.make("a").sequence == 7


def test_a_ring_is_made_within_the_limits_of_its_topic() -> None:
    topics = registry_of(TopicRule(filter="short", ring_messages=2))
    topic = topics.make("short")
    ring = topics.make_ring(topic, before=1)
    assert topic.ring is ring
    for sequence in range(1, 6):
        ring.append(make_run("short", b"x", sequence=sequence, offset=sequence))
    assert [run.sequence for run in ring.runs()] == [4, 5]
    assert sum(len(partition) for partition in topics.rings.partitions) == 1


def test_topics_of_which_nothing_is_left_make_room_and_never_repeat_a_sequence() -> None:
    registry = Registry(CoreSettings(topic=TopicLimits(max_topics=10)))
    for number in range(9):
        registry.make(f"junk/{number}").sequence = number
    kept = registry.make("kept")
    registry.make_ring(kept, before=1).append(make_run("kept", b"x", sequence=1, offset=1))
    assert registry.is_nearly_full
    with pytest.raises(QuotaExceeded):
        registry.make("new")
    assert registry.forget_unused() == 9
    assert list(registry) == ["kept"]
    assert registry.make("new").sequence == 8


def test_a_topic_whose_last_sequence_cannot_be_read_is_not_made_with_a_wrong_one() -> None:
    answers: Iterator[StorageUnavailable | int] = iter([StorageUnavailable("the disk is away"), 100])

    def last_sequence(name: str) -> int:
        answer = next(answers)
        if isinstance(answer, StorageUnavailable):
            raise answer
        return answer

    topics = Registry(CoreSettings(), last_sequence)
    with pytest.raises(StorageUnavailable):
        topics.make("a")
    assert topics.make("a").sequence == 100


def test_of_very_many_topics_that_were_deleted_some_are_taken_for_what_a_reader_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.core.topics.registry.DELETED_LOOKED_AT", 2)
    stage = Stage()
    sender = stage.client("s")
    for name in ("a", "b", "c"):
        sender.publish(name, b"x")
        stage.broker.delete_topic(name)
    topics = stage.broker.topics
    assert [topics.last_gone(offset, ("other",)) for offset in (0, 1, 2)] == [1, 1, 2]
    assert [topics.last_gone(offset, ("c", "#")) for offset in (0, 1, 2, 3)] == [3, 3, 3, 3]
    assert topics.last_gone(1, ("c",), besides={"c"}) == 1


def test_a_topic_knows_its_newest_message_and_its_rate() -> None:
    stage = Stage(CoreSettings(ring=RingSettings(messages=10)))
    sender, topics, clock = stage.client("s"), stage.broker.topics, stage.clock

    def rate() -> float:
        now_us = clock.wall_us()
        return topics["a"].rate_since(now_us - 10_000_000, now_us)

    sender.publish("a", b"kept", retain=True)
    stage.settle()
    newest = topics["a"].newest
    assert (topics["a"].ring, rate()) == (None, 0.1)
    assert newest is not None and newest.payload() == b"kept"
    for number in range(4):
        sender.publish("a", b"%d" % number)
        stage.settle()
    newest = topics["a"].newest
    assert newest is not None and (newest.payload(), newest.sequence) == (b"3", 5)
    assert rate() == 0.5
    clock.advance(5)
    for _ in range(20):  # of which ten are in memory, all of this moment
        sender.publish("a", b"x")
        stage.settle()
    clock.advance(2)
    assert rate() == 5
    clock.advance(9)
    assert rate() == 0
    assert topics.make("b").newest is None
