"""Progress of a client: what it has certainly received, and the sequences that it reports.

Messages in transit when a connection breaks are lost, and their number is unknown. But a connection that is
still open after a while has delivered what was sent before: otherwise the break would have been noticed.

A client reports the last sequence it has seen of each topic. A server that crashes has sent messages that
it had not stored; their sequences are given to other messages afterwards, and a client that has read
nothing since still reports them. So when a client resumes in a later epoch, its sequences of earlier
epochs are recorded, and not mistaken for later ones. Sequences of topics that it has not subscribed to are
ignored.
"""

from asyncio import TimerHandle
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.common.topics import FilterSet, is_wildcard
from penstock.core.broker import Broker
from penstock.core.durability.records import PausedRecord
from penstock.core.sessions.session import Session

if TYPE_CHECKING:
    from penstock.doors.sidecar.nexusd.context import Sidecar


NOTICED_S = 60.0
"""Longest time, about, until a broken connection is noticed."""
MOST_STALE = 1_000
"""Sequences of earlier epochs stored with a subscription: far more than a crash needs."""


class CertainProgress:
    """Looks after one session.

    Args:
        position: where it begins.
    """

    __slots__ = ("_session", "_sidecar", "_timer", "_underway", "position")

    def __init__(self, sidecar: "Sidecar", session: Session, position: int) -> None:
        self._sidecar = sidecar
        self._session = session
        self.position = position
        """Everything up to this offset has arrived."""
        self._underway = position
        self._timer: TimerHandle = sidecar.loop.call_later(NOTICED_S, self._look)

    def stop(self) -> None:
        """The stream is over."""
        self._timer.cancel()

    def _look(self) -> None:
        self.position, self._underway = self._underway, self._sidecar.broker.position_of(self._session)
        self._timer = self._sidecar.loop.call_later(NOTICED_S, self._look)


class ReportedSequences(Mapping[str, int]):
    """Iterate over the last sequences of a client, which may be very many."""

    __slots__ = ("_broker", "_filters", "_is_of_now", "_reported", "_stale", "older")

    def __init__(self, broker: Broker, record: PausedRecord, reported: Mapping[str, int]) -> None:
        self._broker = broker
        self._reported = reported
        self._stale = record.stale
        self._filters = FilterSet(record.filters)
        self._is_of_now = record.epoch == broker.log.epoch
        self.older = _unchanged(record, reported)
        """Topics of which it names what it had in an earlier epoch than its stream, with that epoch."""

    def __getitem__(self, topic: str) -> int:
        """The last one that the client has; 0 if it may have none of those that are there now."""
        last = self._reported[topic]
        if self._stale is None and last > (base := base_of(self._broker, topic)):
            return base if self._is_of_now else 0
        known = self._broker.topics.get(topic)
        is_of_now = self._is_of_now and topic not in self.older
        return min(last, known.sequence) if known is not None and is_of_now else last

    def __iter__(self) -> Iterator[str]:
        return iter(self._reported)

    def __len__(self) -> int:
        return len(self._reported)

    @property
    def is_something(self) -> bool:
        """The client names at least one message."""
        return any(last > 0 and self._filters.match(topic) for topic, last in self._reported.items())


def stale_of(
    broker: Broker, record: PausedRecord, reported: Mapping[str, int]
) -> dict[str, tuple[int, int]] | None:
    """Return the sequences that may mean nothing in this epoch, of a client that resumes with a record.

    None if they are too many: then none of them counts beyond the last epoch.
    """
    if record.epoch == broker.log.epoch:
        return record.stale
    filters, older = FilterSet(record.filters), _unchanged(record, reported)
    is_next = record.epoch == broker.log.epoch - 1  # then it is known what the epoch before has left
    stale: dict[str, tuple[int, int]] = {}
    for topic, last in reported.items():
        is_safe = is_next and topic not in older and last <= base_of(broker, topic)
        if last > 0 and not is_safe and filters.match(topic):
            if len(stale) == MOST_STALE:
                return None
            stale[topic] = last, older.get(topic, record.epoch)
    return stale


def _unchanged(record: PausedRecord, reported: Mapping[str, int]) -> dict[str, int]:
    """The topics of which a client names what it had when its stream began, with the epoch of that."""
    stale = (record.stale or {}).items()
    return {topic: epoch for topic, (last, epoch) in stale if reported.get(topic) == last}


def newest_of(broker: Broker, filters: Iterable[str]) -> dict[str, int]:
    """Return the last sequence of each topic that is subscribed to by name."""
    return {filter: broker.history.newest(filter) for filter in filters if not is_wildcard(filter)}


def base_of(broker: Broker, topic: str) -> int:
    """Return the last sequence of each topic that is subscribed to by name."""
    known = broker.topics.get(topic)
    return broker.history.newest(topic) if known is None else known.start
