"""Topic labels in Prometheus' format: a bounded set, and one label for all other topics.

A label stays assigned: counters would fall if a topic moved to the others and back. The first topics with
messages get the labels, the busiest first if there are too few. A topic that is deleted and created again
continues its counters.
"""

from asyncio import sleep
from collections import Counter
from collections.abc import Container
from heapq import heappop, heappush, heappushpop
from typing import TypeAlias

from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import LossKind, Topic
from penstock.model import is_public

TOPICS_A_SLICE = 1_000
"""Topics visited in one turn of the event loop."""
OTHER_TOPICS = "other_topics"
"""Label of all topics without one of their own."""
PUBLISHED = "published"
DELIVERED = "delivered"
Sums: TypeAlias = Counter[str | LossKind]
"""Messages published, delivered, and lost by reason and policy, of one or several topics."""


async def rank_topics(
    topics: Registry, limit: int, *, least: int = 0, without: Container[str] = frozenset()
) -> list[Topic]:
    """Up to `limit` public topics with at least `least` messages since the start, the busiest first.

    Visits a slice per turn of the event loop, so that others are not delayed.
    """
    best: list[tuple[int, str]] = []
    everything = list(topics.values())
    for start in range(0, len(everything), TOPICS_A_SLICE):
        for topic in everything[start : start + TOPICS_A_SLICE]:
            published, name = topic.published, topic.name
            if published < least or not is_public(name) or name in without:
                continue
            if len(best) < limit:
                heappush(best, (published, name))
            elif best and published > best[0][0]:
                heappushpop(best, (published, name))
        await sleep(0)
    return await _from_most(topics, best)


async def _from_most(topics: Registry, best: list[tuple[int, str]]) -> list[Topic]:
    """Topics of a heap in descending order; sorting very many at once would block the loop."""
    found: list[Topic] = []
    while best:
        names = [heappop(best)[1] for _ in range(min(TOPICS_A_SLICE, len(best)))]
        found += [topics[name] for name in names if name in topics]
        await sleep(0)
    return found[::-1]


def sums_of(topic: Topic) -> Sums:
    """Sums of a topic since the server started."""
    sums: Sums = Counter(topic.lost or {})
    sums[PUBLISHED] = topic.published
    sums[DELIVERED] = topic.delivered
    return sums


class _Label:
    """Labelled topic, and corrections of its sums."""

    __slots__ = ("_topic", "more")

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.more: Sums = Counter()
        """Sums of earlier topics of this name, less what was exported under `OTHER_TOPICS`."""

    def sums(self, topics: Registry) -> Sums:
        present = topics.get(self._topic.name, self._topic)
        if present is not self._topic:
            self.more.update(sums_of(self._topic))
            self._topic = present
        sums = sums_of(self._topic)
        sums.update(self.more)
        return sums


class Labels:
    """Topics with a label."""

    def __init__(self, topics: Registry, limit: int) -> None:
        self._topics = topics
        self.limit = limit
        self._labels: dict[str, _Label] = {}
        self._new: list[str] = []  # labelled since the last export
        self._exported: Sums = Counter()  # exported sums of OTHER_TOPICS

    async def assign(self) -> None:
        """Assign free labels to topics that got messages."""
        room = self.limit - len(self._labels)
        if room <= 0:
            return
        topics = await rank_topics(self._topics, room, least=1, without=self._labels)
        for topic in topics:
            is_new = topic.name not in self._labels and topic.name != OTHER_TOPICS
            if len(self._labels) < self.limit and is_new:
                self._labels[topic.name] = _Label(topic)
                self._new.append(topic.name)

    def sums(self, total: Sums) -> dict[str, Sums]:
        """Sums by label; together they are the total."""
        found = {name: label.sums(self._topics) for name, label in self._labels.items()}
        others = total.copy()
        for sums in found.values():
            others.subtract(sums)
        new, self._new = self._new, []
        for name in new:
            self._leave_to(others, self._labels[name], found[name])
        self._exported = others.copy()
        return {**found, OTHER_TOPICS: others}

    def _leave_to(self, others: Sums, label: _Label, sums: Sums) -> None:
        """Keep what was exported of a new label under `OTHER_TOPICS` there, so that no counter falls."""
        for key, exported in self._exported.items():
            stays = min(exported - others[key], sums[key])
            if stays > 0:
                label.more[key] -= stays
                sums[key] -= stays
                others[key] += stays
