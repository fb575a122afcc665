"""Registry of all known topics.

A topic is made on first use and costs one object until its first message makes a ring. A sequence is never
given twice.
"""

from collections.abc import Callable, Container, Sequence
from itertools import islice

from penstock.common.topics import covers, matches
from penstock.core.settings import CoreSettings
from penstock.core.topics.activity import Activity
from penstock.core.topics.ring import Ring, Rings
from penstock.core.topics.rules import RuleTable
from penstock.core.topics.topic import DELETED, Gone, Topic
from penstock.errors import QuotaExceeded
from penstock.model import is_public
from penstock.runs import Run

TOPICS_A_STEP = 200
"""Topics that get their rules anew in one step of a reload."""
EXAMINED_A_STEP = 500
"""Topics that are examined for use in one step."""
DELETED_LOOKED_AT = 1_000
"""Deleted topics that are examined for one reader; beyond that, losses are assumed."""


class Registry(dict[str, Topic]):
    """All topics by name, in the order of their first use."""

    def __init__(self, settings: CoreSettings, last_sequence: Callable[[str], int] = lambda name: 0) -> None:
        super().__init__()
        self._settings = settings
        self._last_sequence = last_sequence  # that the log has ever had of a topic
        self._rings = Rings(settings.ring)
        self.recency = Activity()
        self.hidden = 0  # how many of them begin with $
        self._rules = RuleTable(settings)
        self._floor = 0  # no forgotten topic had a higher sequence
        self._forgotten_offset = 0  # none that the log does not keep had a message behind this
        self._made_listeners: list[Callable[[Topic], None]] = []
        self._forgotten_listeners: list[Callable[[Topic], None]] = []
        self._deleted_listeners: list[Callable[[Topic], None]] = []
        self.declared: set[str] = set()  # created on request: they stay, used or not
        self.expected: dict[str, Topic] = {}  # waited for, and not used yet
        self.gone: dict[str, Gone] = {}  # deleted and not used since, oldest first
        # Of all that were deleted, oldest first: nothing up to this offset is among the last messages.
        self.floors: dict[str, int] = {}

    def notify_made(self, callback: Callable[[Topic], None]) -> None:
        """Register a callback for every topic that enters the registry."""
        self._made_listeners.append(callback)

    def notify_forgotten(self, callback: Callable[[Topic], None]) -> None:
        """Register a callback for every topic that leaves the registry."""
        self._forgotten_listeners.append(callback)

    def notify_deleted(self, callback: Callable[[Topic], None]) -> None:
        """Register a callback for every topic that is deleted on request."""
        self._deleted_listeners.append(callback)

    def configure(self, settings: CoreSettings) -> None:
        """Go by other settings for new topics; those that are known follow by `renew`."""
        self._settings = settings
        self._rules = RuleTable(settings)
        self._rings.resize(settings.ring.total_bytes)

    def renew(self, topic: Topic) -> None:
        """Let a topic have what the settings say of it now."""
        had_ring, topic.rules = topic.rules.has_ring, self._rules.find(topic.name)
        rules = topic.rules
        if topic.ring is None:
            if rules.has_ring and not had_ring and topic.gone_offset:
                self.make_ring(topic, before=0)  # readers learn that what came before is not there
        elif rules.has_ring:
            self._rings.resize_ring(topic.name, topic.ring, rules.ring_messages, rules.ring_bytes)
        else:
            topic.gone_offset = topic.last_offset
            topic.ring.close()
            topic.ring = None

    @property
    def rings(self) -> Rings:
        """All rings."""
        return self._rings

    @property
    def is_nearly_full(self) -> bool:
        """Soon no topic can be made."""
        return len(self) * 10 >= self._settings.topic.max_topics * 9

    @property
    def forgotten_sequence(self) -> int:
        """No topic that was forgotten had a higher sequence; 0 if none was."""
        return self._floor

    def forget_unused(self) -> int:
        """Drop topics without value, history and audience; return their number.

        A dropped topic that is used again continues above every dropped sequence, so that no sequence is
        given twice.
        """
        before, removal = len(self), UnusedRemoval(self)
        while removal.step():
            pass
        return before - len(self)

    def forget_if_unused(self, topic: Topic) -> None:
        """Drop a topic without value, history and audience. Cached references are looked up again."""
        if topic.is_unused and topic.name not in self.declared:
            self._floor = max(self._floor, topic.sequence)
            if not topic.rules.is_kept:
                self._forgotten_offset = max(self._forgotten_offset, topic.last_offset)
            self._remove(topic)
            topic.version = DELETED

    def _remove(self, topic: Topic) -> None:
        if topic.ring is not None:
            topic.ring.close()
        del self[topic.name]
        self.hidden -= not is_public(topic.name)
        self.recency.forget(topic)
        for notify in self._forgotten_listeners:
            notify(topic)

    def delete(self, topic: Topic, head: int) -> Gone:
        """Delete a topic; if it is used again, it continues behind its last sequence."""
        self.floors.pop(topic.name, None)
        self.floors[topic.name] = head
        gone = self.gone[topic.name] = Gone(topic.sequence, topic.last_offset)
        self._remove(topic)
        topic.version = DELETED
        for notify in self._deleted_listeners:
            notify(topic)
        return gone

    def forget_gone(self) -> str:
        """Forget the oldest deleted topic; return its name."""
        name = next(iter(self.floors))
        del self.floors[name]
        if (gone := self.gone.pop(name, None)) is not None:
            self._floor = max(self._floor, gone.sequence)
            self._forgotten_offset = max(self._forgotten_offset, gone.offset)
        return name

    def last_gone(self, offset: int, filters: Sequence[str], besides: Container[str] = ()) -> int:
        """Return the last offset after this one that went with a deleted topic; this one if there is none.

        Captured topics are left out. The names of dropped topics are unknown.

        Args:
            besides: deleted topics that do not count.
        """
        unkept = [filter for filter in filters if not self.keeps_all(filter)]
        last = max(offset, self._forgotten_offset) if any(map(self._may_be_forgotten, unkept)) else offset
        for number, (name, head) in enumerate(islice(reversed(self.floors.items()), DELETED_LOOKED_AT + 1)):
            if head <= offset or not unkept:
                break
            if number == DELETED_LOOKED_AT:
                return max(last, head)
            gone = self.gone.get(name)
            if gone is None or gone.offset <= last or name in besides or self.keeps(name):
                continue
            if any(matches(filter, name) for filter in unkept):
                last = gone.offset
        return last

    def _may_be_forgotten(self, filter: str) -> bool:
        """Return whether a filter may match a dropped topic, which may be back."""
        topic = self.get(filter)
        return topic is None or topic.start > 0

    def make(self, name: str) -> Topic:
        """The topic of this name, made if it is new."""
        topic = self.get(name)
        if topic is None:
            if len(self) >= self._settings.topic.max_topics:
                raise QuotaExceeded(f"there are {len(self)} topics already")
            topic = self.restore(name)
        return topic

    def keeps(self, name: str) -> bool:
        """Return whether the log captures a topic, used or not."""
        topic = self.get(name)
        return (self._rules.find(name) if topic is None else topic.rules).is_kept

    def keeps_all(self, filter: str) -> bool:
        """Return whether the log captures every topic that a filter can match."""
        return any(covers(rule, filter) for rule in self._settings.log.capture)

    def find(self, name: str) -> Topic | None:
        """Return a topic, also one that is only waited for."""
        return self.get(name) or self.expected.get(name)

    def expect(self, name: str) -> Topic:
        """Return a topic for a waiter; a new one stays invisible until it is used."""
        topic = self.find(name)
        if topic is None:
            topic = self.expected[name] = Topic(name, self._rules.find(name))
        return topic

    def restore(self, name: str, last_sequence: int | None = None) -> Topic:
        """Make a topic that was there before, however many there are.

        Args:
            last_sequence: that the log has ever had of it; the log is asked if it is not given.
        """
        topic = self.expected.pop(name, None) or Topic(name, self._rules.find(name))
        if last_sequence is None:
            last_sequence = self._last_sequence(name)  # the log may not be able to say
        topic.begin_after(max(self._floor, last_sequence))
        self[name] = topic
        self.hidden += not is_public(name)
        self.recency.note(topic)
        if (gone := self.gone.pop(name, None)) is not None:
            self._begin_again(topic, gone)
        for notify in self._made_listeners:
            notify(topic)
        return topic

    def _begin_again(self, topic: Topic, gone: Gone) -> None:
        """A topic that was deleted is back: readers from before learn that its messages are not there."""
        topic.begin_after(gone.sequence)
        topic.gone_offset = gone.offset
        if gone.offset and topic.rules.has_ring:
            self.make_ring(topic, before=0)

    def begin_ring(self, topic: Topic, run: Run) -> None:
        """Keep a message of a topic that has no ring.

        Most topics with a retained value never get a second message, so only that one makes the ring.
        """
        if not topic.rules.has_ring:
            topic.gone_offset = run.last_offset
        elif not (run.shape.retain and run.count == 1 and topic.retained is not None):
            self.make_ring(topic, before=run.sequence).append(run)

    def make_ring(self, topic: Topic, before: int) -> Ring:
        """A ring for a topic, with the message that its value has stood for until now."""
        rules = topic.rules
        ring = topic.ring = self._rings.make(topic.name, rules.ring_messages, rules.ring_bytes)
        ring.forgotten_offset = topic.gone_offset
        if topic.retained is not None and topic.retained.sequence < before:
            ring.append(topic.retained.run(topic.name))
        return ring


class RulesRefresh:
    """Goes through all topics once."""

    def __init__(self, topics: Registry) -> None:
        self._topics = topics
        self._left = [*topics.values(), *topics.expected.values()]

    def step(self) -> bool:
        """Refresh the rules of some topics; deleted ones are skipped."""
        some = self._left[-TOPICS_A_STEP:]
        del self._left[-TOPICS_A_STEP:]
        for topic in some:
            if topic is self._topics.find(topic.name):
                self._topics.renew(topic)
        return bool(self._left)


class UnusedRemoval:
    """Goes through all topics once, and drops those that are not used."""

    def __init__(self, topics: Registry) -> None:
        self._topics = topics
        self._left = list(topics.values())

    def step(self) -> bool:
        """Examine some topics. Returns whether there are more."""
        some = self._left[-EXAMINED_A_STEP:]
        del self._left[-EXAMINED_A_STEP:]
        for topic in some:
            if topic is self._topics.get(topic.name):
                self._topics.forget_if_unused(topic)
        return bool(self._left)
