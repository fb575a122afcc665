"""Which topics have a label of their own in Prometheus' format, and what all others have together.

A label that was given stays: a topic that moved from its own label to the others and back would make numbers
fall that may only rise. So the first to have messages get the labels, those with most messages where not all
of them can, and a topic that is forgotten and comes back goes on where it was.
"""

from collections import Counter
from typing import TypeAlias

from penstock.core.registry import Loss, Registry, Topic
from penstock.telemetry.ranking import rank

OTHER_TOPICS = "other_topics"
"""The label of all topics that have none."""
PUBLISHED = "published"
DELIVERED = "delivered"

Sums: TypeAlias = Counter[str | Loss]
"""What happened to a topic, or to several: messages published, delivered, and lost by reason and policy."""


def sums_of(topic: Topic) -> Sums:
    """What happened to a topic since the server started."""
    sums: Sums = Counter(topic.lost or {})
    sums[PUBLISHED] = topic.published
    sums[DELIVERED] = topic.delivered
    return sums


class _Label:
    """One topic, and what else counts for it."""

    __slots__ = ("_topic", "more")

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.more: Sums = Counter()
        """What an earlier topic of this name had, less what was told of it among the others."""

    def sums(self, topics: Registry) -> Sums:
        present = topics.get(self._topic.name, self._topic)
        if present is not self._topic:
            self.more.update(sums_of(self._topic))
            self._topic = present
        sums = sums_of(self._topic)
        sums.update(self.more)
        return sums


class Labels:
    """The topics that have a label."""

    def __init__(self, topics: Registry, limit: int) -> None:
        self._topics = topics
        self.limit = limit
        self._labels: dict[str, _Label] = {}
        self._new: list[str] = []  # have a label since the numbers were last told
        self._told: Sums = Counter()  # of the others

    async def give(self) -> None:
        """Give labels to topics that have had messages meanwhile, as long as there are any left."""
        room = self.limit - len(self._labels)
        if room <= 0:
            return
        topics = await rank(self._topics, room, least=1, without=self._labels)
        for topic in topics:
            is_told_apart = topic.name not in self._labels and topic.name != OTHER_TOPICS
            if len(self._labels) < self.limit and is_told_apart:
                self._labels[topic.name] = _Label(topic)
                self._new.append(topic.name)

    def sums(self, total: Sums) -> dict[str, Sums]:
        """The numbers by label; together they are the total."""
        found = {name: label.sums(self._topics) for name, label in self._labels.items()}
        others = total.copy()
        for sums in found.values():
            others.subtract(sums)
        new, self._new = self._new, []
        for name in new:
            self._leave_to(others, self._labels[name], found[name])
        self._told = others.copy()
        return {**found, OTHER_TOPICS: others}

    def _leave_to(self, others: Sums, label: _Label, sums: Sums) -> None:
        """What was told of a topic among the others before it had a label stays there."""
        for key, told in self._told.items():
            stays = min(told - others[key], sums[key])
            if stays > 0:
                label.more[key] -= stays
                sums[key] -= stays
                others[key] += stays
