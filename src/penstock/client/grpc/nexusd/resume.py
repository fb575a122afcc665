"""Resumption of a subscription at a NexusD daemon: next request, duplicates, gaps.

State machine without I/O: the owner of the stream passes its events, and sends `next_request` when it ends.
That request is a new subscription, or resumes the old one after the last message of each topic.

A daemon numbers messages by topic, and starts again from 1 when it restarts or drops a topic. So a known
number is a duplicate only if the message was not published later.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from penstock.client.grpc.nexusd.stub import Request
from penstock.wire.sidecar.messages import nexusd

UNKNOWN = -1
"""Wire value for an unknown number of missed messages."""


class Gap(Struct, frozen=True):
    """Missing messages of a topic.

    `actual` is the number that arrived instead of `expected`: a lower one if the daemon has started to count
    again, `UNKNOWN` if the daemon has lost the subscription and the number of missing messages is unknown.
    """

    topic: str
    expected: int
    actual: int

    @property
    def missed(self) -> int:
        """Number of missing messages, or `UNKNOWN`."""
        return self.actual - self.expected if self.actual > self.expected else UNKNOWN


class Started(Struct, frozen=True):
    """The daemon has accepted or resumed the subscription."""

    is_resumed: bool
    missed: int
    """Number of messages that are no longer available; `UNKNOWN` if the daemon cannot tell."""
    gaps: Sequence[Gap] = ()
    """Gaps by topic after the daemon has lost the subscription; other gaps come with their messages."""


class Arrival(Struct, frozen=True):
    """New message, and the gap before it."""

    message: nexusd.Message
    is_retained: bool = False
    is_replay: bool = False
    gap: Gap | None = None


EventOutcome: TypeAlias = Started | Arrival | nexusd.BackpressureWarning | nexusd.ReplayComplete


class LastMessage(NamedTuple):
    """Last message of a topic."""

    sequence: int
    timestamp_ms: int


class ResumeState:
    """Progress of one subscription, across streams."""

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
        """The daemon's id; empty before its first response, and after it has lost the subscription."""
        self._client_id = client_id
        self._receive_retained = receive_retained
        self._max_buffer_size = max_buffer_size
        self._mode = mode
        self._last = {topic: LastMessage(last, 0) for topic, last in (last_sequences or {}).items()}
        self._last_message_id = ""
        self._is_lost = False

    @property
    def last_sequences(self) -> dict[str, int]:
        """Number of the last message of each topic."""
        return {topic: message.sequence for topic, message in self._last.items()}

    @property
    def last_sequence(self) -> int:
        """Highest of these numbers; 0 if there is none."""
        return max(self.last_sequences.values(), default=0)

    def next_request(self) -> Request:
        """The first request of the next stream."""
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
            gap_recovery_mode=self._mode,  # type: ignore[arg-type]  # an int is valid
        )

    def reset(self) -> None:
        """The daemon has lost the subscription: request a new one."""
        self.subscription_id = ""
        self._is_lost = True

    def handle(self, event: nexusd.MessageEvent) -> EventOutcome | None:
        """Process an event; None for duplicates and unknown events."""
        match event.WhichOneof("event"):
            case "message":
                return self._on_message(event.message)
            case "replay_message":
                return self._on_message(event.replay_message, is_replay=True)
            case "retained_message":  # does not affect the numbering
                return Arrival(event.retained_message, is_retained=True)
            case "subscription_info":
                return self._on_started(event.subscription_info)
            case "replay_complete":
                return event.replay_complete
            case "backpressure_warning":
                return event.backpressure_warning
            case _:
                return None

    def _on_started(self, info: nexusd.SubscriptionInfo) -> Started:
        is_resumed = bool(self.subscription_id)
        self.subscription_id = info.subscription_id
        if not self._is_lost:
            return Started(is_resumed, info.missed_message_count if info.gap_detected else 0)
        gaps = self._lost_gaps()
        self._is_lost = False
        self._last.clear()  # the new subscription may count differently
        return Started(False, UNKNOWN, gaps)

    def _lost_gaps(self) -> list[Gap]:
        lasts = self.last_sequences or dict.fromkeys(self.topics, 0)
        return [Gap(topic, last + 1, UNKNOWN) for topic, last in lasts.items()]

    def _on_message(self, message: nexusd.Message, *, is_replay: bool = False) -> Arrival | None:
        topic, sequence = message.topic, message.sequence_number
        last = self._last.get(topic)
        self._last_message_id = message.message_id
        if not sequence:  # the daemon does not number messages of topics that it does not store
            return Arrival(message, is_replay=is_replay)
        if last is not None and sequence <= last.sequence and message.timestamp_ms <= last.timestamp_ms:
            return None
        self._last[topic] = LastMessage(sequence, message.timestamp_ms)
        if last is None or sequence == last.sequence + 1:
            return Arrival(message, is_replay=is_replay)
        return Arrival(message, is_replay=is_replay, gap=Gap(topic, last.sequence + 1, sequence))
