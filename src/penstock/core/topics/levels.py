"""Level index: the topics as a tree, for readers that open it level by level.

The tree is one sorted list of names, in blocks, with `/` below every other character: a level and everything
below it are neighbours. So the next level is one binary search away, and the number of topics below a level
is a difference of two positions.

Few servers have such a reader. The index is built in steps for the first one, then follows the registry, and
is dropped after a while without readers.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct

from penstock.common.topics import SEPARATOR
from penstock.core.runtime.clock import Clock
from penstock.core.topics.catalog import TopicCatalog
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic

LEAST, NEXT = "\0", "\1"
"""The separator in keys, which no topic contains, and the first character that follows it."""
BLOCK = 200
"""Names of a block before it is split."""
NAMES_AT_ONCE = 50
"""Names that are indexed between two looks at the clock."""
STEP_S = 0.002
"""Time of one step of building the index."""
IDLE_S = 600.0
"""Time without a reader after which the index is dropped."""


class Level(Struct, frozen=True):
    """One level of the tree below another."""

    name: str
    path: str
    """Its levels from the root on: the topic of this name, if there is one."""
    is_topic: bool
    topics: int
    """Topics at and below it."""


def key_of(name: str) -> str:
    """Sort key of a topic or level."""
    return name.replace(SEPARATOR, LEAST)


class SortedNames:
    """Sorted list of names in blocks, so that one more moves few others."""

    __slots__ = ("_blocks", "_lasts", "_starts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []  # of each block, the key of its last name
        self._starts: list[int] | None = None  # of each block, its position; None after a change

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def add(self, name: str) -> None:
        """Add a name. Idempotent."""
        key = key_of(name)
        at, index = self._find(key)
        if at == len(self._blocks):  # behind all others
            if not at:
                self._blocks.append([])
                self._lasts.append(key)
                at = 1
            at, index = at - 1, len(self._blocks[at - 1])
        block = self._blocks[at]
        if index < len(block) and block[index] == name:
            return
        block.insert(index, name)
        self._starts = None
        if len(block) > BLOCK:
            half = BLOCK // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._lasts[at : at + 1] = [key_of(block[half - 1]), key_of(block[-1])]
        elif index == len(block) - 1:
            self._lasts[at] = key

    def discard(self, name: str) -> None:
        """Remove a name. Idempotent."""
        at, index = self._find(key_of(name))
        if at == len(self._blocks) or self._blocks[at][index] != name:
            return
        block = self._blocks[at]
        del block[index]
        self._starts = None
        if not block:
            del self._blocks[at], self._lasts[at]
        elif index == len(block):
            self._lasts[at] = key_of(block[-1])

    def first_from(self, key: str) -> str | None:
        """Return the first name whose key is not below a key."""
        at, index = self._find(key)
        return None if at == len(self._blocks) else self._blocks[at][index]

    def some_from(self, key: str) -> list[str]:
        """Return some names from a key on, up to the end of a block; empty behind the last one."""
        at, index = self._find(key)
        return [] if at == len(self._blocks) else self._blocks[at][index:]

    def count(self, first: str, end: str) -> int:
        """Return the number of names from one key on up to another."""
        return self._position(end) - self._position(first)

    def _find(self, key: str) -> tuple[int, int]:
        """Return block and index of the first name whose key is not below a key."""
        at = bisect_left(self._lasts, key)
        return at, 0 if at == len(self._blocks) else bisect_left(self._blocks[at], key, key=key_of)

    def _position(self, key: str) -> int:
        if self._starts is None:
            self._starts = list(accumulate(map(len, self._blocks), initial=0))
        at, index = self._find(key)
        return self._starts[at] + index


class TopicLevels:
    """Levels of all topics: those in the registry, and those that only the log knows."""

    def __init__(self, topics: Registry, catalog: TopicCatalog, clock: Clock) -> None:
        self._topics = topics
        self._catalog = catalog
        self._clock = clock
        self._names: SortedNames | None = None  # while there are readers
        self._unindexed: list[str] = []
        self._stored_names = 0  # of the catalog, that are indexed or about to be
        self._read_at = 0.0
        topics.notify_made(self._on_made)
        topics.notify_forgotten(self._on_forgotten)

    @property
    def is_kept(self) -> bool:
        """There is an index at present."""
        return self._names is not None

    def build(self) -> bool:
        """Index names that are not indexed yet, for two milliseconds. Returns whether there are more."""
        self._read_at = self._clock.monotonic()
        if self._names is None:
            self._names, self._stored_names = SortedNames(), 0
            self._unindexed = list(self._topics)
        stored = self._catalog.stored
        if len(stored) != self._stored_names:  # read since
            self._stored_names = len(stored)
            self._unindexed += stored
        while self._unindexed:
            some = self._unindexed[-NAMES_AT_ONCE:]
            del self._unindexed[-NAMES_AT_ONCE:]
            for name in some:
                if name in self._topics or self._is_dormant(name):
                    self._names.add(name)
            if self._clock.monotonic() >= self._read_at + STEP_S:
                break
        return bool(self._unindexed)

    def reap(self) -> bool:
        """Drop the index if it was not read for a while. One step."""
        if self._names is not None and self._clock.monotonic() >= self._read_at + IDLE_S:
            self._names, self._unindexed = None, []
        return False

    # Reading, after `build`

    def below(self, path: str | None, after: str | None = None) -> Iterator[Level]:
        """Levels directly below a path, or the first ones, by name. The index may change between two.

        Args:
            after: name of the level to continue behind.
        """
        names = self._names or SortedNames()
        prefix = "" if path is None else key_of(path) + LEAST
        key = prefix if after is None else prefix + after + NEXT
        while (name := names.first_from(key)) is not None:
            found = key_of(name)
            if not found.startswith(prefix):
                return
            level = found[len(prefix) :].partition(LEAST)[0]
            first, key = prefix + level, prefix + level + NEXT
            yield Level(level, name[: len(first)], found == first, names.count(first, key))

    def count_below(self, path: str | None) -> int:
        """Number of topics below a path, or of all."""
        names = self._names or SortedNames()
        return len(names) if path is None else names.count(key_of(path) + LEAST, key_of(path) + NEXT)

    def topics_of(self, path: str) -> Iterator[list[str]]:
        """Topics at and below a path, some at a time. The index may change between two."""
        names, key, end = self._names or SortedNames(), key_of(path), key_of(path) + NEXT
        while some := names.some_from(key):
            key = key_of(some[-1])
            if key >= end:
                yield [name for name in some if key_of(name) < end]
                return
            yield some
            key += LEAST

    # Following the registry

    def _is_dormant(self, name: str) -> bool:
        return name in self._catalog.stored and name not in self._topics.gone

    def _on_made(self, topic: Topic) -> None:
        if self._names is not None:
            self._names.add(topic.name)

    def _on_forgotten(self, topic: Topic) -> None:
        if self._names is not None and not self._is_dormant(topic.name):
            self._names.discard(topic.name)
