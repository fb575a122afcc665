"""Activity: topics in the order of their last use.

A reader that was offline for a moment looks only at topics used since. The order is kept by eras of some
messages each, so most messages cost one comparison: a topic moves to the end with its first message of an
era, and the order within an era is undefined.
"""

from bisect import bisect_left, bisect_right
from itertools import islice

from penstock.core.topics.topic import Topic

ERA_MESSAGES = 512
FEW = 1_000


class Activity:
    """Topics by the era of their last message; one without a message has that in which it was made."""

    def __init__(self) -> None:
        self.era = 0  # the offset with which the present one began
        self.next_era = ERA_MESSAGES  # the offset with which the next one begins
        self._topics: dict[Topic, None] = {}  # the last used last

    def era_at(self, offset: int) -> int:
        """The era of a message that is about to be published; later ones may follow in the same."""
        if offset >= self.next_era:
            self.begin(offset)
        return self.era

    def begin(self, offset: int) -> None:
        """Begin a new era: everything before this offset belongs to an earlier one."""
        self.era, self.next_era = offset, offset + ERA_MESSAGES

    def note(self, topic: Topic) -> None:
        """A topic is used in the present era."""
        self._topics.pop(topic, None)
        self._topics[topic] = None
        topic.era = self.era

    def forget(self, topic: Topic) -> None:
        """A topic is there no more."""
        self._topics.pop(topic, None)

    def since(self, offset: int) -> list[Topic]:
        """All topics that may have got a message after an offset, the last used first; some have not."""
        newest = reversed(self._topics)
        topics: list[Topic] = []
        while some := list(islice(newest, FEW)):  # the many that were not used since are not touched
            topics += some
            if topics[-1].era <= offset and len(found := self._cut(topics, offset)) < len(topics):
                return found
        return topics

    def few_since(self, offset: int) -> list[Topic] | None:
        """The same if these are few; otherwise None, and no time is lost."""
        found = self._cut(list(islice(reversed(self._topics), FEW + 1)), offset)
        return found if len(found) <= FEW else None

    def _cut(self, topics: list[Topic], offset: int) -> list[Topic]:
        """Those of some topics, newest first, whose era had not ended before an offset."""
        start = bisect_left(topics, -offset, key=_age_of)  # those before it are of later eras
        if start == len(topics):
            return topics
        era, following = topics[start].era, topics[start - 1].era if start else self.era
        if era < following <= offset + 1:
            return topics[:start]
        return topics[: bisect_right(topics, -era, lo=start, key=_age_of)]


def _age_of(topic: Topic) -> int:
    return -topic.era
