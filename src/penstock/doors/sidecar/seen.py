"""What a client says that it has seen: the last sequence of topics, as far as that means something now.

A server that crashes has sent messages that it had not stored. Their sequences are given again afterwards, to
others; a client that has read nothing since then still names them. So when somebody comes back to a later
epoch, it is noted which of its sequences are of an earlier one, and they are not taken for those of others
later. What it says of topics that it has not asked for counts for nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

from penstock.core.broker import Broker
from penstock.core.records import PausedRecord
from penstock.core.topics import FilterSet, is_wildcard

MOST_STALE = 1_000
"""How many sequences of earlier epochs are kept with a subscription: far more than a crash takes."""


class Seen(Mapping[str, int]):
    """The last sequences of a client, looked at one by one: there may be very many."""

    __slots__ = ("_broker", "_filters", "_is_of_now", "_stale", "_told", "older")

    def __init__(self, broker: Broker, record: PausedRecord, told: Mapping[str, int]) -> None:
        self._broker = broker
        self._told = told
        self._stale = record.stale
        self._filters = FilterSet(record.filters)
        self._is_of_now = record.epoch == broker.log.epoch
        self.older = _unchanged(record, told)
        """Topics of which it names what it had in an earlier epoch than its stream, with that epoch."""

    def __getitem__(self, topic: str) -> int:
        """The last one that the client has; 0 if it may have none of those that are there now."""
        last = self._told[topic]
        if self._stale is None and last > (base := base_of(self._broker, topic)):
            return base if self._is_of_now else 0
        known = self._broker.topics.get(topic)
        is_of_now = self._is_of_now and topic not in self.older
        return min(last, known.sequence) if known is not None and is_of_now else last

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    @property
    def is_something(self) -> bool:
        """The client names at least one message."""
        return any(last > 0 and self._filters.match(topic) for topic, last in self._told.items())


def stale_of(
    broker: Broker, record: PausedRecord, told: Mapping[str, int]
) -> dict[str, tuple[int, int]] | None:
    """The sequences that may mean nothing in this epoch, of a client that comes back with a record.

    None if they are too many: then none says anything that goes beyond the last epoch.
    """
    if record.epoch == broker.log.epoch:
        return record.stale
    filters, older = FilterSet(record.filters), _unchanged(record, told)
    is_next = record.epoch == broker.log.epoch - 1  # then it is known what the epoch before has left
    stale: dict[str, tuple[int, int]] = {}
    for topic, last in told.items():
        is_safe = is_next and topic not in older and last <= base_of(broker, topic)
        if last > 0 and not is_safe and filters.match(topic):
            if len(stale) == MOST_STALE:
                return None
            stale[topic] = last, older.get(topic, record.epoch)
    return stale


def _unchanged(record: PausedRecord, told: Mapping[str, int]) -> dict[str, int]:
    """The topics of which a client names what it had when its stream began, with the epoch of that."""
    stale = (record.stale or {}).items()
    return {topic: epoch for topic, (last, epoch) in stale if told.get(topic) == last}


def newest_of(broker: Broker, filters: Iterable[str]) -> dict[str, int]:
    """The last sequence of each topic that is asked for by name."""
    return {filter: broker.history.newest(filter) for filter in filters if not is_wildcard(filter)}


def base_of(broker: Broker, topic: str) -> int:
    """The last sequence of a topic before this epoch."""
    known = broker.topics.get(topic)
    return broker.history.newest(topic) if known is None else known.start
