"""The topics that are known, and what the settings say of each.

A topic is made on first use and costs one object until its first message makes a ring. Its sequence
is never given twice.
"""

from collections.abc import Callable, Container, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from penstock.core.audience import NOBODY, Audience
from penstock.core.latency import Recent
from penstock.core.recency import Recency
from penstock.core.ring import Ring, Rings
from penstock.core.settings import CoreSettings, TopicRule
from penstock.core.topics import covers, matches
from penstock.core.value import Value
from penstock.errors import QuotaExceeded
from penstock.model import NEVER, Policy, Reason, Run, is_public

if TYPE_CHECKING:
    from penstock.core.streams.stream import Stream

T = TypeVar("T")
STALE = -1
DELETED = -2
"""Stand for the version of an audience: that of the topic is to be found, or the topic is there no more."""
DELETED_LOOKED_AT = 1_000
"""How many deleted topics are looked at for one reader; of more it is assumed that it wanted some."""
Loss = tuple[Reason, Policy | None]
"""Why something was lost, and by which policy."""


class Traits(Struct, frozen=True):
    """What the settings say of a topic; topics with the same rules share one object."""

    ring_messages: int
    ring_bytes: int
    ttl: float
    policy: Policy | None
    batch_size: int
    batch_timeout: float
    is_kept: bool
    is_plain: bool
    """A message that carries no wishes of its own needs nothing but ring, log and audience."""

    @property
    def has_ring(self) -> bool:
        """The last messages are kept at all."""
        return bool(self.ring_messages and self.ring_bytes)


class Gone(Struct, frozen=True, gc=False):
    """How far a topic had come when it was deleted."""

    sequence: int
    offset: int = 0
    """Of its last message, if that had been in memory."""


class Topic:
    """One topic of the topic space."""

    __slots__ = (
        "audience",
        "delivered",
        "era",
        "gone_offset",
        "lost",
        "name",
        "recent",
        "retained",
        "ring",
        "sequence",
        "start",
        "stream",
        "traits",
        "version",
    )

    def __init__(self, name: str, traits: Traits) -> None:
        self.name = name
        self.traits = traits
        self.sequence = 0
        self.ring: Ring | None = None
        self.retained: Value | None = None
        self.audience: Audience = NOBODY
        self.version = STALE  # of the router, when `audience` was found
        self.era = 0  # of its last message, for `recency.py`
        self.gone_offset = 0  # of a value that stood for the ring until it expired
        self.stream: Stream | None = None  # what receivers compete for
        # Since the server started, for `tallies.py`:
        self.start = 0  # the sequence at that time
        self.delivered = 0  # messages, once for each session that got them
        self.lost: dict[Loss, int] | None = None
        self.recent: Recent | None = None

    @property
    def published(self) -> int:
        """How many messages it got since the server started, or since the topic was made after that."""
        return self.sequence - self.start

    def begin_after(self, sequence: int) -> None:
        """Go on behind a sequence that was given before the server started."""
        self.sequence = self.start = max(self.sequence, sequence)

    @property
    def runs(self) -> list[Run]:
        """The last messages. A retained value that is the only one so far stands for a ring."""
        if self.ring is not None:
            return self.ring.runs()
        is_kept = self.retained is not None and self.traits.has_ring
        return [self.retained.run(self.name)] if is_kept and self.retained is not None else []

    @property
    def last_offset(self) -> int:
        """Of its last message that is, or was, in memory; 0 if there was none."""
        if self.ring is not None:
            return max(self.ring.last_offset, self.ring.forgotten_offset)
        return self.gone_offset if self.retained is None else max(self.gone_offset, self.retained.offset)

    @property
    def is_deleted(self) -> bool:
        """It is there no more; whoever remembers it looks again."""
        return self.version == DELETED

    @property
    def is_unused(self) -> bool:
        """Nothing is left of it: no value, nothing in its ring, no stream, nobody who listens."""
        has_history = self.ring is not None and self.ring.messages > 0
        is_alone = self.audience is NOBODY and self.stream is None
        return self.retained is None and is_alone and not has_history


class Registry(dict[str, Topic]):
    """All topics by name, in the order of their first use."""

    def __init__(self, settings: CoreSettings, last_sequence: Callable[[str], int] = lambda name: 0) -> None:
        super().__init__()
        self._settings = settings
        self._last_sequence = last_sequence  # that the log has ever had of a topic
        self._rings = Rings(settings.ring)
        self.recency = Recency()
        self.hidden = 0  # how many of them begin with $
        self._traits: dict[tuple[int, ...], Traits] = {}
        self._floor = 0  # no forgotten topic had a higher sequence
        self._forgotten_offset = 0  # none that the log does not keep had a message behind this
        self.on_forgotten: Callable[[Topic], None] = lambda topic: None
        self.on_deleted: Callable[[Topic], None] = lambda topic: None
        self.declared: set[str] = set()  # those that somebody made on purpose: they stay, used or not
        self.expected: dict[str, Topic] = {}  # those that somebody waits for, and nobody has used
        self.gone: dict[str, Gone] = {}  # those that somebody deleted and nobody has used since, oldest first
        # Of all that were deleted, oldest first: nothing up to this offset is among the last messages.
        self.floors: dict[str, int] = {}

    def configure(self, settings: CoreSettings) -> None:
        """Go by other settings for new topics; those that are known follow by `renew`."""
        self._settings = settings
        self._traits = {}
        self._rings.resize(settings.ring.total_bytes)

    def renew(self, topic: Topic) -> None:
        """Let a topic have what the settings say of it now."""
        had_ring, topic.traits = topic.traits.has_ring, self._find_traits(topic.name)
        traits = topic.traits
        if topic.ring is None:
            if traits.has_ring and not had_ring and topic.gone_offset:
                self.make_ring(topic, before=0)  # readers learn that what came before is not there
        elif traits.has_ring:
            self._rings.resize_ring(topic.name, topic.ring, traits.ring_messages, traits.ring_bytes)
        else:
            topic.gone_offset = topic.last_offset
            topic.ring.close()
            topic.ring = None

    @property
    def rings(self) -> Rings:
        """Where the rings live."""
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
        """Forget topics without value, history and audience; answer how many.

        A topic that comes back later goes on above every sequence that was forgotten, so that a sequence
        is not given twice.
        """
        unused = [topic for topic in self.values() if topic.is_unused and topic.name not in self.declared]
        for topic in unused:
            self._floor = max(self._floor, topic.sequence)
            if not topic.traits.is_kept:
                self._forgotten_offset = max(self._forgotten_offset, topic.last_offset)
            self._remove(topic)
        return len(unused)

    def _remove(self, topic: Topic) -> None:
        if topic.ring is not None:
            topic.ring.close()
        del self[topic.name]
        self.hidden -= not is_public(topic.name)
        self.recency.forget(topic)
        self.on_forgotten(topic)

    def delete(self, topic: Topic, head: int) -> Gone:
        """Forget a topic, used or not; if it comes back it goes on behind the sequence that it had."""
        self.floors.pop(topic.name, None)
        self.floors[topic.name] = head
        gone = self.gone[topic.name] = Gone(topic.sequence, topic.last_offset)
        self._remove(topic)
        topic.version = DELETED
        self.on_deleted(topic)
        return gone

    def forget_gone(self) -> str:
        """Remember the topic that was deleted first no longer by itself; answer which it was."""
        name = next(iter(self.floors))
        del self.floors[name]
        if (gone := self.gone.pop(name, None)) is not None:
            self._floor = max(self._floor, gone.sequence)
            self._forgotten_offset = max(self._forgotten_offset, gone.offset)
        return name

    def last_gone(self, offset: int, filters: Sequence[str], besides: Container[str] = ()) -> int:
        """The last offset of messages behind this one that went with their topics; this one if none did.

        What the log keeps is left out. Of topics that were forgotten nobody knows the names.

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
        """Whether a filter means a topic that was forgotten, perhaps; it may be back."""
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
        """Whether the log keeps a topic, used or not."""
        topic = self.get(name)
        return (self._find_traits(name) if topic is None else topic.traits).is_kept

    def keeps_all(self, filter: str) -> bool:
        """Whether the log keeps every topic that a filter can match."""
        return any(covers(rule, filter) for rule in self._settings.log.capture)

    def find(self, name: str) -> Topic | None:
        """The topic of this name, also if somebody only waits for it."""
        return self.get(name) or self.expected.get(name)

    def expect(self, name: str) -> Topic:
        """The topic of this name; a new one is none for others before somebody uses it."""
        topic = self.find(name)
        if topic is None:
            topic = self.expected[name] = Topic(name, self._find_traits(name))
        return topic

    def restore(self, name: str) -> Topic:
        """Make a topic that was there before, however many there are."""
        topic = self.expected.pop(name, None) or Topic(name, self._find_traits(name))
        topic.begin_after(max(self._floor, self._last_sequence(name)))  # the log may not be able to say
        self[name] = topic
        self.hidden += not is_public(name)
        self.recency.note(topic)
        if (gone := self.gone.pop(name, None)) is not None:
            self._begin_again(topic, gone)
        return topic

    def _begin_again(self, topic: Topic, gone: Gone) -> None:
        """A topic that was deleted is back: readers from before learn that its messages are not there."""
        topic.begin_after(gone.sequence)
        topic.gone_offset = gone.offset
        if gone.offset and topic.traits.has_ring:
            self.make_ring(topic, before=0)

    def begin_ring(self, topic: Topic, run: Run) -> None:
        """Keep a message of a topic that has no ring.

        Most topics with a retained value never get a second message, so only that one makes the ring.
        """
        if not topic.traits.has_ring:
            topic.gone_offset = run.offset + run.count - 1
        elif not (run.shape.retain and run.count == 1 and topic.retained is not None):
            self.make_ring(topic, before=run.sequence).append(run)

    def make_ring(self, topic: Topic, before: int) -> Ring:
        """A ring for a topic, with the message that its value has stood for until now."""
        traits = topic.traits
        ring = topic.ring = self._rings.make(topic.name, traits.ring_messages, traits.ring_bytes)
        ring.forgotten_offset = topic.gone_offset
        if topic.retained is not None and topic.retained.sequence < before:
            ring.append(topic.retained.run(topic.name))
        return ring

    def _find_traits(self, name: str) -> Traits:
        rules = self._settings.topics
        matching = tuple(number for number, rule in enumerate(rules) if matches(rule.filter, name))
        is_kept = any(matches(filter, name) for filter in self._settings.log.capture)
        key = (*matching, int(is_kept))
        traits = self._traits.get(key)
        if traits is None:
            traits = self._traits[key] = self._make_traits([rules[n] for n in matching], is_kept)
        return traits

    def _make_traits(self, rules: list[TopicRule], is_kept: bool) -> Traits:
        def first(field: str, default: T) -> T:
            values = (getattr(rule, field) for rule in rules)
            return next((value for value in values if value is not None), default)

        ring = self._settings.ring
        ttl = first("ttl_ms", self._settings.default_ttl_ms) / 1000 or NEVER
        batch_size = first("batch_size", 0)
        return Traits(
            first("ring_messages", ring.messages),
            first("ring_bytes", ring.topic_bytes),
            ttl,
            first("policy", None),
            batch_size,
            first("batch_timeout_ms", 0) / 1000,
            is_kept,
            not (ttl or batch_size),
        )
