"""Retained values, in a tree by topic level.

A wildcard finds its matches without looking at the rest. A leaf is the topic itself; a level with both a
value and deeper levels holds its own value under None.
"""

from collections.abc import Iterator
from typing import TypeAlias

from penstock.core.runtime.deadlines import Deadlines
from penstock.core.topics.retained_value import RetainedValue
from penstock.core.topics.topic import Topic
from penstock.model import Door
from penstock.runs import NEVER, Run, bare_shape

Branch: TypeAlias = "dict[str | None, Topic | Branch]"
EXPIRIES_PER_SECOND = 50
"""Buckets of expiring values: one is removed at most 20 ms late."""
VALUES_A_STEP = 200
"""Expired values that one step removes."""
VAIN_NODES = 200
"""Non-matching nodes after which `match` yields None."""


class Retained:
    """Retained values, found by topic (in the topic itself) or by filter (here)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._root: Branch = {}
        self._count = 0
        self._own_count = 0  # of these, the server's own values, which the limit is not about
        self._expiries: Deadlines[Topic] = Deadlines(per_second=EXPIRIES_PER_SECOND)

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """No topic that has none can get a value of a client."""
        return self.of_clients >= self.limit

    @property
    def of_clients(self) -> int:
        """Number of values published by clients."""
        return self._count - self._own_count

    def put(self, topic: Topic, run: Run) -> RetainedValue:
        """Store the last message of a run as the topic's value; return the value."""
        shape = run.shape
        value = RetainedValue.of(run, bare_shape(shape.door, shape.qos, shape.retain))
        self.restore(topic, value)
        return value

    def restore(self, topic: Topic, value: RetainedValue) -> None:
        """Give a topic its value."""
        if topic.retained is None:
            self._plant(topic)
            self._count += 1
            self._own_count += value.shape.door is Door.SERVER
        topic.retained = value
        if value.expires_at != NEVER:
            self._expiries.add(topic, value.expires_at)

    def delete(self, topic: Topic) -> None:
        """Forget the topic's value."""
        if topic.retained is not None:
            self._own_count -= topic.retained.shape.door is Door.SERVER
            topic.retained = None
            self._expiries.discard(topic)
            self._count -= 1
            self._uproot(topic)

    def reap(self, now: float, most: int = VALUES_A_STEP) -> list[Topic]:
        """Remove some expired values; return their topics. None are left if it returns fewer than `most`."""
        reaped: list[Topic] = []
        while len(reaped) < most and (topic := self._expiries.take(now)) is not None:
            value = topic.retained
            if value is None or value.expires_at == NEVER:
                continue
            if value.is_expired(now):
                topic.gone_offset = value.offset
                self.delete(topic)
                reaped.append(topic)
            else:  # a later value than the one that was expected to expire
                self._expiries.add(topic, value.expires_at)
        return reaped

    def match(self, filter: str) -> Iterator[Topic | None]:
        """Iterate lazily over topics with a value that match a filter; values may change meanwhile.

        Yields None for every `VAIN_NODES` nodes that do not match, so that the caller can pause.
        """
        vain = 0
        for topic in self._walk(filter.split("/")):
            if topic is not None:
                yield topic
            else:
                vain += 1
                if vain == VAIN_NODES:
                    vain = 0
                    yield None

    def _walk(self, levels: list[str]) -> Iterator[Topic | None]:
        """Look at one node after the other: a topic that matches, or None."""
        waiting = [(self._root, self._names(self._root, levels, 0), 0)]
        while waiting:
            branch, names, depth = waiting.pop()
            level = levels[depth] if depth < len(levels) else None
            below = depth if level == "#" else depth + 1  # it swallows every level below, so the depth stays
            for name in names:
                child = None if self._is_hidden(branch, name, level) else branch.get(name)
                if isinstance(child, dict):
                    waiting += [(branch, names, depth), (child, self._names(child, levels, below), below)]
                    yield None
                    break
                is_end = below >= len(levels) or levels[below:] == ["#"]
                yield child if is_end else None

    def _names(self, branch: Branch, levels: list[str], depth: int) -> Iterator[str | None]:
        """The names below a branch that may match a level; copied, because they change during the walk."""
        if depth == len(levels):
            return iter((None,))
        return iter(list(branch) if levels[depth] in ("+", "#") else (levels[depth],))

    def _is_hidden(self, branch: Branch, name: str | None, level: str | None) -> bool:
        if name is None:
            return level == "+"  # a branch's own value is one level higher
        return branch is self._root and name != level and name.startswith("$")  # MQTT-4.7.2-1

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
