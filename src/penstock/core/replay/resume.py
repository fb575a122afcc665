"""Resume after sequences: a client knows the last sequence of some topics.

For each of these topics the number of messages that are gone is known before the first message is sent.
All other topics of its wildcard filters share one position; what they lost since is known to be missing, but
not counted. Expired messages are not reported as missing.
"""

from asyncio import sleep
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from penstock.common.cursor import Cursor
from penstock.common.statement import Gap, Missing
from penstock.common.topics import FilterSet
from penstock.core.replay.history import History
from penstock.core.replay.reader import NEAR_MESSAGES, NEAR_TOPICS, Replay
from penstock.core.replay.sources import gone_offset, reason_of
from penstock.core.topics.topic import Topic
from penstock.errors import InvalidCursor
from penstock.model import Reason

TOPICS_A_SLICE = 20
"""Most topics that are looked up before other work gets its turn."""


class AfterSequences(Struct, frozen=True):
    """Start after the sequences that a client got in an epoch.

    Named topics: messages up to the sequence are seen, if they are not behind the end of that epoch, because
    after a crash the same sequences are given again. Other topics, and those that never had such a
    sequence: messages up to a cursor are seen.
    """

    sequences: Mapping[str, int]
    epoch: int
    otherwise: Cursor
    passed: Mapping[str, int] = {}
    """Of topics by name the last sequence up to the cursor, where it is known: to count what is missing."""
    older: Mapping[str, int] = {}
    """Topics whose sequence was given in an epoch before that one, with that epoch."""


class Foresight(Struct, frozen=True):
    """Missing messages that are known before a replay begins."""

    missed: int | None
    """Number of messages; None if it is unknown."""
    is_gap: bool
    """There are some, or there may be."""


class Place(Struct, frozen=True):
    """Position to resume from in a topic."""

    offset: int
    """Everything up to here is seen, or missing."""
    sequence: int | None
    """The last one up to there, if it is known."""
    missing: tuple[Missing, ...] = ()
    gap: Gap | None = None
    """Between these offsets there may have been messages."""


class Resumption:
    """Resumption: positions of topics, and the replay that begins there."""

    def __init__(self, history: History, filters: Sequence[str], start: AfterSequences) -> None:
        """Begin to look.

        Raises:
            InvalidCursor: the position is of another log, or does not exist yet.
        """
        self._history = history
        self._filters = filters
        self._offset, self._gaps = history.locate(start.otherwise)
        if start.epoch > history.log.epoch:
            raise InvalidCursor("these sequences are of an epoch that is not there yet")
        self._epoch = start.epoch
        self._older = start.older
        self._asked = start.sequences
        self._passed = start.passed
        self._wanted = FilterSet(filters)
        self._sequences: dict[str, int] = {}  # of those that were asked for, the ones that mean something
        self._places: dict[str, Place] = {}

    def _choose(self, asked: Iterable[tuple[str, int]]) -> None:
        """Keep the sequences that the client can have been given; unknown for an earlier epoch."""
        for name, sequence in asked:
            is_possible = sequence > 0 and (self._is_old(name) or sequence <= self._history.newest(name))
            if is_possible and self._wanted.match(name):
                self._sequences[name] = sequence

    def _epoch_of(self, name: str) -> int:
        """The epoch in which the sequence of a topic was given."""
        return self._older.get(name, self._epoch)

    def _is_old(self, name: str) -> bool:
        return self._epoch_of(name) < self._history.log.epoch

    @property
    def _has_others(self) -> bool:
        """Filters may bring topics whose last sequence is not known."""
        return bool(self._wanted.wildcards) or not self._wanted.names <= self._sequences.keys()

    def begin_now(self) -> tuple[Replay, Foresight] | None:
        """The replay, if it takes neither the disk nor a long look to find out where it begins."""
        if len(self._asked) > NEAR_TOPICS:
            return None
        self._choose(self._asked.items())
        self._note_gone()
        others = self._find_others_now()
        if others is None or self._is_much:
            return None
        for name, sequence in self._sequences.items():
            place = self._place_now(name, sequence)
            if place is None:
                return None
            self._places[name] = place
        return self._begin(self._count_others(others))

    async def begin(self) -> tuple[Replay, Foresight]:
        """The replay, whatever that takes."""
        asked = iter(self._asked.items())
        while some := list(islice(asked, NEAR_TOPICS)):
            self._choose(some)
            await sleep(0)
        for number, (name, sequence) in enumerate(self._sequences.items()):
            if number % TOPICS_A_SLICE == 0:
                await sleep(0)
            place = self._place_now(name, sequence)
            self._places[name] = await self._find_place(name, sequence) if place is None else place
        self._note_gone()
        others = self._find_others_now()
        return self._begin(await self._count_many() if others is None else self._count_others(others))

    @property
    def _is_much(self) -> bool:
        topics = (self._history.topics.get(name) for name in self._sequences)
        rings = (1 if topic is None or topic.ring is None else topic.ring.messages for topic in topics)
        return sum(rings) > NEAR_MESSAGES

    def _begin(self, missed_others: int | None) -> tuple[Replay, Foresight]:
        history, places = self._history, self._places
        floors = {name: place.offset for name, place in places.items()}
        gaps = [place.gap for place in places.values() if place.gap is not None]
        replay = Replay(
            history,
            self._filters,
            min((*floors.values(), *((self._offset,) if self._has_others else ()))),
            expected={
                name: (place.sequence + 1, history.newest(name))
                for name, place in places.items()
                if place.sequence is not None
            },
            gaps=(*(self._gaps if self._has_others else ()), *gaps),
            missing=[missing for place in places.values() for missing in place.missing],
            floors=floors,
            floor=self._offset,
        )
        return replay, self._foresee(None if gaps else missed_others)

    def _foresee(self, missed_others: int | None) -> Foresight:
        missed, is_unsure = missed_others or 0, missed_others is None or self._is_only_in_rings
        for place in self._places.values():
            for missing in place.missing:
                if missing.first is None or self._skips(missing.topic, missing.first, missing.last):
                    is_unsure = True
                elif missing.reason is not Reason.EXPIRED:
                    missed += missing.last - missing.first + 1
        return Foresight(None if is_unsure else missed, is_unsure or missed > 0)

    @property
    def _is_only_in_rings(self) -> bool:
        """Return whether retention removed the next messages of a topic."""
        first, keeps = self._history.log.first_offset, self._history.topics.keeps
        return any(place.offset + 1 < first and keeps(name) for name, place in self._places.items())

    def _skips(self, name: str, first: int, last: int) -> bool:
        """Return whether some sequences may never have been given: a dropped topic is back."""
        topic = self._history.topics.get(name)
        return (
            topic is not None and self._history.topics.forgotten_sequence > 0 and first <= topic.start <= last
        )

    # Topics whose last sequence is known

    def _place_now(self, name: str, sequence: int) -> Place | None:
        """Return the position in a topic, if memory knows it."""
        history, topic = self._history, self._history.topics.get(name)
        if self._is_old(name):
            return self._place_kept(name, sequence) if history.topics.keeps(name) else self._place_unkept()
        if topic is None:
            return None  # the log has it
        if sequence >= topic.sequence:
            return Place(history.head, topic.sequence)
        return self._place_in_ring(topic, sequence)

    def _place_unkept(self) -> Place:
        """Note that messages in memory were lost with the last process; their number is unknown."""
        start = self._history.start
        return Place(start, None, gap=Gap(min(self._offset + 1, start), start, Reason.NEVER_STORED))

    def _place_kept(self, name: str, sequence: int) -> Place | None:
        """The same after a restart, if the reader had all that the epoch before left of a topic."""
        history, topic = self._history, self._history.topics.get(name)
        is_last = self._epoch_of(name) == history.log.epoch - 1
        if not is_last or name in history.topics.gone or history.topics.forgotten_sequence:
            return None
        base = history.newest(name) if topic is None else topic.start
        if sequence < base:
            return None  # the log knows where it continues
        lost = (Missing(name, base + 1, sequence, Reason.LOST_UNCOMMITTED),) if sequence > base else ()
        if topic is None or topic.sequence == base:
            return Place(history.head, base, lost)
        place = self._place_in_ring(topic, base)
        return None if place is None else Place(place.offset, place.sequence, (*lost, *place.missing))

    def _place_in_ring(self, topic: Topic, sequence: int) -> Place | None:
        """The same from a topic's ring; None if the log may know more."""
        first = next((run for run in topic.runs if run.last_sequence > sequence), None)
        if first is not None and first.sequence <= sequence + 1:
            return Place(first.offset + sequence - first.sequence, sequence)
        if self._is_logged(topic, sequence):
            return None
        last = topic.sequence if first is None else first.sequence - 1
        lost = Missing(topic.name, sequence + 1, last, reason_of(topic))
        return Place(self._history.head if first is None else first.offset - 1, last, (lost,))

    def _is_logged(self, topic: Topic, sequence: int) -> bool:
        """Return whether the log may have messages of a topic after a sequence."""
        log = self._history.log
        return topic.rules.is_kept or (log.is_durable and log.last_sequence(topic.name) > sequence)

    async def _find_place(self, name: str, sequence: int) -> Place:
        """The same from the log: where the first message is that can still be served."""
        history = self._history
        chunk = await history.since_sequence(name, sequence, epoch=self._epoch_of(name), limit_bytes=1)
        missing = chunk.statement.missing
        if not chunk.runs:
            return Place(history.head, history.newest(name), missing)
        first = chunk.runs[0]
        return Place(
            first.offset - 1,
            first.sequence - 1,
            tuple(
                each
                for each in missing
                if each.last < first.sequence or each.reason is Reason.LOST_UNCOMMITTED
            ),
        )

    # All others

    def _note_gone(self) -> None:
        """Something behind the position may have gone with its topic."""
        filters = [filter for filter in self._filters if filter not in self._sequences]
        self._gaps += self._history.gone_since(self._offset, filters, besides=self._sequences)

    def _find_others_now(self) -> list[Topic] | None:
        """The topics that may have got something since the position; None if they are many."""
        topics = self._history.topics
        if not self._has_others:
            return []
        if self._wanted.wildcards:
            return topics.recency.few_since(self._offset)
        return [topic for topic in map(topics.get, self._filters) if topic is not None]

    def _count_others(self, topics: Iterable[Topic]) -> int | None:
        """Return how many messages after the position are gone; None if unknown."""
        if not self._has_others:
            return 0
        if self._gaps or self._is_before_log or self._is_before_start:
            return None
        missed = 0
        for topic in filter(self._has_lost, topics):
            count = self._count_lost(topic)
            if count is None:
                return None
            missed += count
        return missed

    async def _count_many(self) -> int | None:
        """The same of all topics that may have got something, a slice in each turn of the loop."""
        topics = self._history.topics.recency.since(self._offset)
        missed = 0
        for start in range(0, len(topics), NEAR_TOPICS):
            count = self._count_others(topics[start : start + NEAR_TOPICS])
            if count is None:
                return None
            missed += count
            await sleep(0)
        return missed

    @property
    def _is_before_log(self) -> bool:
        """Return whether retention removed messages behind the position, perhaps of these filters."""
        keeps = self._history.topics.keeps
        is_ours = bool(self._wanted.wildcards) or any(map(keeps, self._wanted.names))
        return is_ours and self._offset + 1 < self._history.log.first_offset

    @property
    def _is_before_start(self) -> bool:
        """Something behind the position may have been in memory alone when the server ended."""
        topics = self._history.topics
        named = (filter for filter in self._filters if filter not in self._sequences)
        return self._offset < self._history.start and not all(map(topics.keeps_all, named))

    def _has_lost(self, topic: Topic) -> bool:
        if topic.rules.is_kept or topic.name in self._sequences or gone_offset(topic) <= self._offset:
            return False
        return self._wanted.match(topic.name)

    def _count_lost(self, topic: Topic) -> int | None:
        """Return how many messages a topic lost after the position; None if unknown."""
        passed = self._passed.get(topic.name)
        runs = topic.runs
        last = runs[0].sequence - 1 if runs else topic.sequence
        if passed is None or self._skips(topic.name, passed + 1, last):
            return None
        return 0 if reason_of(topic) is Reason.EXPIRED else last - passed
