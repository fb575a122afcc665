"""Topics by their last use: whoever may have got a message since is found, and few others."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.settings import CoreSettings
from penstock.core.topics import activity
from penstock.core.topics.activity import ERA_MESSAGES, FEW
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic
from tests.support.broker import Stage
from tests.support.disk import Disk


class Uses:
    """Topics, the offset of the last message of each, and what is published to them."""

    def __init__(self) -> None:
        self.topics = Registry(CoreSettings())
        self.last: dict[Topic, int] = {}
        self.head = 0

    def publish(self, name: str, *, count: int = 1) -> None:
        """What the broker does."""
        topic, era = self.topics.make(name), self.topics.recency.era_at(self.head + 1)
        if topic.era != era:
            self.topics.recency.note(topic)
        self.head += count
        self.last[topic] = self.head

    def since(self, offset: int) -> list[Topic]:
        return self.topics.recency.since(offset)


def test_a_moment_ago_only_few_topics_were_used() -> None:
    uses = Uses()
    for number in range(3 * FEW):
        uses.publish(f"t{number}")
    place = uses.head
    for number in range(ERA_MESSAGES):
        uses.publish(f"t{number}")
    found = uses.topics.recency.few_since(place)
    assert found is not None
    assert {f"t{number}" for number in range(ERA_MESSAGES)} <= {topic.name for topic in found}
    assert uses.since(place) == found
    assert uses.topics.recency.few_since(0) is None
    assert len(uses.since(0)) == 3 * FEW


class Watched(dict[Topic, None]):
    """Topics, and how many of them were looked at."""

    def __init__(self, topics: dict[Topic, None]) -> None:
        super().__init__(topics)
        self.looks = count()

    def __reversed__(self) -> Iterator[Topic]:
        return (topic for topic in super().__reversed__() if next(self.looks) >= 0)


def test_who_was_away_longer_costs_as_much_as_was_used_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "FEW", 10)
    uses = Uses()
    for number in range(10_000):
        uses.publish(f"t{number}")
    place, used = uses.head, 2 * ERA_MESSAGES
    for number in range(used):
        uses.publish(f"t{number}")
    watched = Watched(uses.topics.recency._topics)
    monkeypatch.setattr(uses.topics.recency, "_topics", watched)
    assert {f"t{number}" for number in range(used)} <= {topic.name for topic in uses.since(place)}
    assert next(watched.looks) < 2 * used


def test_a_topic_that_is_forgotten_is_found_no_more() -> None:
    uses = Uses()
    uses.publish("a")
    uses.topics.delete(uses.topics["a"], uses.head)
    assert uses.since(0) == []


def test_what_is_of_an_era_that_is_over_is_not_looked_at_again() -> None:
    uses = Uses()
    for name in ("a", "b"):
        uses.publish(name)
    uses.topics.recency.begin(uses.head + 1)
    assert uses.since(uses.head) == []
    assert len(uses.since(uses.head - 1)) == 2
    uses.publish("a")
    assert uses.since(uses.head - 1) == [uses.topics["a"]]


def test_what_was_there_before_the_server_started_was_not_used_since() -> None:
    disk = Disk()
    stage = Stage(disk=disk)
    stage.client("s").publish("a", b"x", qos=1, retain=True)
    stage.settle()
    disk.crash()
    stage = Stage(disk=disk)
    assert "a" in stage.broker.topics
    assert stage.broker.topics.recency.since(stage.broker.history.head) == []


def test_every_publish_is_a_use() -> None:
    stage = Stage()
    sender = stage.client("s")
    for name in ("a", "b"):
        sender.publish(name, b"x")
    sender.publish("c", *[b"x"] * ERA_MESSAGES)
    place = stage.broker.history.head
    sender.publish("a", b"y")
    assert stage.broker.topics.recency.since(place)[0].name == "a"


@given(
    steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 4)), max_size=60),
    back=st.integers(0, 60),
)
def test_nobody_who_got_a_message_is_overlooked(steps: list[tuple[str, int]], back: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activity, "ERA_MESSAGES", 3)
        patch.setattr(activity, "FEW", 2)
        uses = Uses()
        for name, count in steps:
            uses.publish(name, count=count)
        place = max(uses.head - back, 0)
        found = uses.since(place)
        assert len(set(found)) == len(found)
        assert {topic for topic, last in uses.last.items() if last > place} <= set(found)
