"""Where a subscription at a NexusD daemon, or at what speaks like one, stands.

It knows what to ask for next (a new subscription, or to go on with the old one behind the last message of
each topic) and what each event means: a message, one that came before, a gap. Nothing here waits or sends;
whoever has the stream gives in its events, and asks for the next request when it has ended.

A daemon counts messages by topic. Its count may begin anew: when it restarts, and when it had to forget a
topic. So a number that was seen before is the same message only if it was not published later.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from penstock.client.nexusd_stub import Request
from penstock.wire.sidecar import nexusd

UNKNOWN = -1
"""What the wire says for a number of missed messages that nobody can tell."""


class Gap(Struct, frozen=True):
    """Messages of a topic that did not come.

    `actual` is the number that came instead of `expected`. It is lower if the daemon has begun to count anew,
    and `UNKNOWN` if the daemon has forgotten where we were: then nobody knows how many are missing.
    """

    topic: str
    expected: int
    actual: int

    @property
    def missed(self) -> int:
        """How many are missing, or `UNKNOWN`."""
        return self.actual - self.expected if self.actual > self.expected else UNKNOWN


class Begun(Struct, frozen=True):
    """The daemon has accepted the subscription, or goes on with it."""

    is_resumed: bool
    missed: int
    """Messages that cannot be had any more; `UNKNOWN` if that is not known."""
    gaps: Sequence[Gap] = ()
    """What the daemon has forgotten, by topic; gaps that numbers show come with their messages."""


class Arrival(Struct, frozen=True):
    """A message that was not there before, and what is missing before it."""

    message: nexusd.Message
    is_retained: bool = False
    is_replay: bool = False
    gap: Gap | None = None


Happening: TypeAlias = Begun | Arrival | nexusd.BackpressureWarning | nexusd.ReplayComplete


class Mark(NamedTuple):
    """The last message of a topic."""

    sequence: int
    timestamp_ms: int


class Following:
    """One subscription, over as many streams as it takes."""

    def __init__(
        self,
        topics: Sequence[str],
        *,
        client_id: str,
        receive_retained: bool = True,
        max_buffer_size: int = 0,
        mode: int = nexusd.GAP_RECOVERY_REPLAY_BUFFER,
        subscription_id: str = "",
        last_sequences: Mapping[str, int] | None = None,
    ) -> None:
        self.topics = tuple(topics)
        self.subscription_id = subscription_id
        """What the daemon calls it; empty until it has answered, or when it has forgotten."""
        self._client_id = client_id
        self._receive_retained = receive_retained
        self._max_buffer_size = max_buffer_size
        self._mode = mode
        self._marks = {topic: Mark(last, 0) for topic, last in (last_sequences or {}).items()}
        self._last_message_id = ""
        self._is_forgotten = False

    @property
    def last_sequences(self) -> dict[str, int]:
        """The number of the last message of each topic."""
        return {topic: mark.sequence for topic, mark in self._marks.items()}

    @property
    def last_sequence(self) -> int:
        """The highest of these numbers, 0 if there is none."""
        return max(self.last_sequences.values(), default=0)

    def next_request(self) -> Request:
        """What a new stream begins with."""
        if not self.subscription_id:
            return nexusd.SubscribeRequest(
                topics=self.topics,
                client_id=self._client_id,
                receive_retained=self._receive_retained,
                max_buffer_size=self._max_buffer_size,
            )
        return nexusd.ResumeSubscribeRequest(
            subscription_id=self.subscription_id,
            topics=self.topics,
            last_message_id=self._last_message_id,
            last_sequence_per_topic=self.last_sequences,
            gap_recovery_mode=self._mode,  # type: ignore[arg-type]  # a number is as good
        )

    def forget(self) -> None:
        """The daemon does not know the subscription any more: the next request makes a new one."""
        self.subscription_id = ""
        self._is_forgotten = True

    def take(self, event: nexusd.MessageEvent) -> Happening | None:
        """What an event means; None if nobody has to know."""
        match event.WhichOneof("event"):
            case "message":
                return self._arrived(event.message)
            case "replay_message":
                return self._arrived(event.replay_message, is_replay=True)
            case "retained_message":  # an old value says nothing about what comes next
                return Arrival(event.retained_message, is_retained=True)
            case "subscription_info":
                return self._begun(event.subscription_info)
            case "replay_complete":
                return event.replay_complete
            case "backpressure_warning":
                return event.backpressure_warning
            case _:
                return None

    def _begun(self, info: nexusd.SubscriptionInfo) -> Begun:
        is_resumed = bool(self.subscription_id)
        self.subscription_id = info.subscription_id
        if not self._is_forgotten:
            return Begun(is_resumed, info.missed_message_count if info.gap_detected else 0)
        gaps = self._forgotten_gaps()
        self._is_forgotten = False
        self._marks.clear()  # of another count, for all we know
        return Begun(False, UNKNOWN, gaps)

    def _forgotten_gaps(self) -> list[Gap]:
        lasts = self.last_sequences or dict.fromkeys(self.topics, 0)
        return [Gap(topic, last + 1, UNKNOWN) for topic, last in lasts.items()]

    def _arrived(self, message: nexusd.Message, *, is_replay: bool = False) -> Arrival | None:
        topic, sequence = message.topic, message.sequence_number
        last = self._marks.get(topic)
        self._last_message_id = message.message_id
        if not sequence:  # the daemon keeps nothing of this topic, and does not count
            return Arrival(message, is_replay=is_replay)
        if last is not None and sequence <= last.sequence and message.timestamp_ms <= last.timestamp_ms:
            return None
        self._marks[topic] = Mark(sequence, message.timestamp_ms)
        if last is None or sequence == last.sequence + 1:
            return Arrival(message, is_replay=is_replay)
        return Arrival(message, is_replay=is_replay, gap=Gap(topic, last.sequence + 1, sequence))
