"""Topics and filters from anyone: what passes the checks matches without surprises, the rest is refused."""

from random import Random

from penstock.common.topics import TopicLimits, check_filter, check_topic, covers, matches, split_share
from penstock.errors import InvalidFilter, InvalidTopic
from tests.fuzz.damage import damaged_text
from tests.fuzz.verdict import judge

LIMITS = TopicLimits(max_bytes=400, max_levels=40)
TOKENS = (
    *("/", "//", "+", "#", "/#", "+/", "$", "$share/", "$share/g/", "$SYS/", "\0", "..", " ", "\ud800"),
    *("é", "e\u0301", "\U0001f6b0", "\ufeff", "\uffff", "a", "%u", "x" * 50, "/" * 30, "+/" * 20),
)
SAMPLES = ("a", "a/b/c", "/", "a/+/c", "#", "a/#", "$SYS/x", "$share/g/a/#", "$share/g//", "é/ü/+", "+/+/+/#")


def text(dice: Random) -> str:
    return damaged_text(dice.choice(SAMPLES), dice, TOKENS)


def test_filters_are_refused_or_can_be_used(dice: Random, many: int) -> None:
    topics = [topic for topic in SAMPLES if not set(topic) & {"+", "#"}]

    def parse(filter: str) -> None:
        check_filter(filter, LIMITS)
        assert len(filter.encode()) <= LIMITS.max_bytes
        group, inner = split_share(filter)
        assert inner and group != "" and "\0" not in filter
        assert filter in (inner, f"$share/{group}/{inner}")
        *parents, last = inner.split("/")
        assert "#" not in "".join(parents) and last.count("#") in (0, len(last))
        assert len(parents) < LIMITS.max_levels
        assert covers(inner, inner)
        for topic in topics:
            matches(inner, topic)

    tally = judge(parse, text, dice, many, steps_per_unit=20, error=InvalidFilter)
    assert tally.taken > many // 10 and tally.refused > many // 10


def test_topics_are_refused_or_can_be_used(dice: Random, many: int) -> None:
    def parse(topic: str) -> None:
        check_topic(topic, LIMITS)
        assert 0 < len(topic.encode()) <= LIMITS.max_bytes
        assert not set(topic) & {"+", "#", "\0"}
        assert matches(topic, topic)
        assert matches("#", topic) == (topic[0] != "$")

    tally = judge(parse, text, dice, many, steps_per_unit=20, error=InvalidTopic)
    assert tally.taken > many // 10 and tally.refused > many // 10


def test_deep_filters_take_steps_in_proportion() -> None:
    depth = 30_000
    limits = TopicLimits(max_bytes=65535, max_levels=65535)

    def parse(filter: str) -> None:
        check_filter(filter, limits)
        assert matches(filter, "a/" * depth)
        assert covers(filter, "a/" * depth + "#")

    judge(parse, lambda dice: "+/" * depth + "#", Random(0), 1, steps_per_unit=5)
