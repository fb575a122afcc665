"""One stream of a subscription at a NexusD daemon: what its events say to who reads it.

A daemon knows no cursor and makes no statement. What it says instead (how many messages it has not any more,
numbers that were jumped over, warnings) is told here in the words of `dialect`, and each message that is
missing is told once.
"""

from collections.abc import Sequence

from penstock.client.answers import Missing, Statement
from penstock.client.dialect import Dropped, FeedEvent, Forgotten, Replayed
from penstock.client.nexusd_following import UNKNOWN, Arrival, Begun, Following, Gap
from penstock.client.values import ReceivedRun
from penstock.core.topics import matches
from penstock.model import Reason
from penstock.wire.sidecar import nexusd

SLOW = "slow_consumer"
"""Why a daemon leaves out messages of a stream that is open, if it does not say."""


class Line:
    """The filters that were asked for together, and what is known of their messages."""

    def __init__(self, following: Following) -> None:
        self.following = following
        self.filters = following.topics
        """Those that are still wanted."""
        self.is_agreed = False
        """Whether the daemon had agreed before: if it comes to nothing, that has to be told."""
        self._untold = 0  # messages that the daemon says are missing, and whose numbers are not known yet
        self._warned = 0  # that it has warned of
        self._reason = SLOW
        # Of one replay:
        self._replays_left = 0
        self._served = 0
        self._missing: list[Missing] = []

    def remove(self, filters: Sequence[str]) -> None:
        """Want less; a stream cannot be made smaller, so what comes too much is left out."""
        self.filters = tuple(filter for filter in self.filters if filter not in filters)

    def take(self, event: nexusd.MessageEvent) -> tuple[list[FeedEvent], Arrival | None]:
        """What an event says: first what is missing, then the message, if there is one that is wanted."""
        match self.following.take(event):
            case Begun() as begun:
                return self._on_begun(begun), None
            case Arrival() as arrival:
                told = self._on_arrival(arrival)
                return told, arrival if self._is_wanted(arrival.message.topic) else None
            case nexusd.ReplayComplete():
                self._replays_left -= 1
                return ([] if self._replays_left else self._replay_ended()), None
            case nexusd.BackpressureWarning() as warning:
                return self._on_warning(warning), None
        return [], None

    def _is_wanted(self, topic: str) -> bool:
        if len(self.filters) == len(self.following.topics):
            return True
        return any(matches(filter, topic) for filter in self.filters)

    def _on_begun(self, begun: Begun) -> list[FeedEvent]:
        self._warned = 0
        self._served = 0
        self._missing = []
        self._replays_left = len(self.following.topics) if begun.is_resumed else 0
        self._untold = max(begun.missed, 0)
        if begun.missed == UNKNOWN:
            return [Forgotten(self.filters, Reason.EPOCH_CHANGED.value)]
        return []

    def _on_arrival(self, arrival: Arrival) -> list[FeedEvent]:
        if arrival.is_retained:
            return []
        told = [] if arrival.is_replay or self._replays_left <= 0 else self._replay_ended()
        self._served += arrival.is_replay
        if arrival.gap is None:
            return told
        return told + (self._on_replay_gap(arrival.gap) if arrival.is_replay else self._on_gap(arrival.gap))

    def _on_replay_gap(self, gap: Gap) -> list[FeedEvent]:
        """It is told at the end of the replay."""
        if gap.missed == UNKNOWN:
            return [Forgotten(self.filters, Reason.EPOCH_CHANGED.value)]
        self._untold = max(0, self._untold - gap.missed)
        self._missing.append(Missing(gap.topic, gap.expected, gap.actual - 1, Reason.EVICTED.value))
        return []

    def _on_gap(self, gap: Gap) -> list[FeedEvent]:
        """A live message jumped over others: they were dropped, which may have been told."""
        if gap.missed == UNKNOWN:
            return [Forgotten(self.filters, Reason.EPOCH_CHANGED.value)]
        more = gap.missed - self._warned
        self._warned = max(0, -more)
        return [Dropped(more, self._reason)] if more > 0 else []

    def _on_warning(self, warning: nexusd.BackpressureWarning) -> list[FeedEvent]:
        count = warning.messages_dropped + warning.messages_expired
        self._reason = warning.reason or SLOW
        self._warned += count
        return [Dropped(count, self._reason)] if count else []

    def _replay_ended(self) -> list[FeedEvent]:
        self._replays_left = 0
        missing = tuple(self._missing)
        if self._untold:  # of topics of which nothing had come before
            missing += (Missing(", ".join(self.filters), None, 0, Reason.EVICTED.value),)
            self._untold = 0
        statement = Statement(
            next="", served=self._served, is_complete=not missing, is_at_head=True, missing=missing
        )
        return [Replayed(self.filters, statement)]


def run_of(arrival: Arrival) -> ReceivedRun:
    """A message as a value."""
    message = arrival.message
    return ReceivedRun(
        message.topic,
        (message.payload,),
        message.sequence_number,
        0,
        message.timestamp_ms * 1_000,
        message.content_type or None,
        message.correlation_id.encode() or None,
        None,
        message.message_id or None,
        (),
        arrival.is_retained,
        arrival.is_replay,
        message.source_node_id or None,
    )
