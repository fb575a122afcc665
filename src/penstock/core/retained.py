"""The last value of each topic that was published with retain.

Values stand in a tree by level, so a wildcard finds its matches without looking at the rest. A leaf is
the topic itself; a level that has both a value and deeper ones keeps its own under None.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from penstock.core.registry import Topic
from penstock.model import NEVER, Run

Branch: TypeAlias = "dict[str | None, Topic | Branch]"
_SUPERSEDED_AT_MOST = 1_000


class Retained:
    """Retained values, found by topic (in the topic itself) or by filter (here)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._root: Branch = {}
        self._count = 0
        self._expiries: list[tuple[float, int, Topic]] = []
        self._number = 0  # so that equal times need not compare topics

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """No topic that has none can get a value."""
        return self._count >= self._limit

    def put(self, topic: Topic, run: Run) -> None:
        """Keep the last message of a run as the topic's value."""
        if topic.retained is None:
            self._plant(topic)
            self._count += 1
        topic.retained = run if run.count == 1 else run.part(run.count - 1, 1)
        if run.expires_at != NEVER:
            self._expect(topic, run.expires_at)

    def delete(self, topic: Topic) -> None:
        """Forget the topic's value."""
        if topic.retained is not None:
            topic.retained = None
            self._count -= 1
            self._uproot(topic)

    def reap(self, now: float) -> int:
        """Forget values that have expired; answer how many."""
        reaped = 0
        while self._expiries and self._expiries[0][0] <= now:
            _, _, topic = heappop(self._expiries)
            if topic.retained is not None and NEVER < topic.retained.expires_at <= now:
                self.delete(topic)
                reaped += 1
        return reaped

    def _expect(self, topic: Topic, when: float) -> None:
        self._number += 1
        heappush(self._expiries, (when, self._number, topic))
        if len(self._expiries) > 2 * self._count + _SUPERSEDED_AT_MOST:
            self._forget_superseded()

    def _forget_superseded(self) -> None:
        """Keep one time for each value: a topic may get a new value a thousand times before one expires."""
        due = {topic: topic.retained.expires_at for *_, topic in self._expiries if topic.retained is not None}
        times = [(when, topic) for topic, when in due.items() if when != NEVER]
        self._expiries = [(when, number, topic) for number, (when, topic) in enumerate(times)]
        heapify(self._expiries)

    def match(self, filter: str) -> Iterator[Topic]:
        """Topics with a value that match a filter. Lazily: values may come and go meanwhile."""
        waiting: list[tuple[Topic | Branch, int]] = [(self._root, 0)]
        levels = filter.split("/")
        while waiting:
            node, depth = waiting.pop()
            if isinstance(node, Topic):
                if depth >= len(levels) or levels[depth:] == ["#"]:
                    yield node
            elif depth == len(levels):
                own = node.get(None)
                if isinstance(own, Topic):
                    yield own
            elif levels[depth] == "#":  # swallows every level below, so the depth stays
                waiting += [(child, depth) for child in self._children(node, own=True)]
            elif levels[depth] == "+":
                waiting += [(child, depth + 1) for child in self._children(node, own=False)]
            elif (child := node.get(levels[depth])) is not None:
                waiting.append((child, depth + 1))

    def _children(self, node: Branch, *, own: bool) -> list["Topic | Branch"]:
        if node is self._root:  # MQTT-4.7.2-1: wildcards do not match a leading `$`
            return [child for key, child in node.items() if key is not None and not key.startswith("$")]
        return [child for key, child in node.items() if own or key is not None]

    def _plant(self, topic: Topic) -> None:
        *path, last = topic.name.split("/")
        node = self._root
        for level in path:
            child = node.get(level)
            if not isinstance(child, dict):
                child = node[level] = {} if child is None else {None: child}
            node = child
        child = node.get(last)
        if isinstance(child, dict):
            child[None] = topic
        else:
            node[last] = topic

    def _uproot(self, topic: Topic) -> None:
        levels: list[str | None] = list(topic.name.split("/"))
        path = [self._root]
        for level in levels[:-1]:
            child = path[-1][level]
            assert isinstance(child, dict)
            path.append(child)
        last = path[-1][levels[-1]]
        if isinstance(last, dict):
            path.append(last)
            levels.append(None)
        while levels:
            del path[-1][levels.pop()]
            if path.pop():
                break
