"""Recovery of subscriptions: retries, gap reports and callbacks, shared by both clients.

Without I/O: a client opens the stream that `Recovery` requests, passes its events, and waits the delay that
`Recovery` returns after a failure.
"""

import logging
from collections.abc import Callable
from typing import Any

import grpc

from penstock.client.grpc.nexusd.resume import UNKNOWN, Arrival, Gap, ResumeState, Started
from penstock.client.grpc.nexusd.stub import Request
from penstock.compat.nexusd_client.types import (
    RETRIED,
    ConnectionError,
    Message,
    ReconnectionPolicy,
    ReconnectionState,
    SubscribeError,
    SubscriptionInfo,
    error_from_call,
    message_from_wire,
)
from penstock.wire.sidecar.messages import nexusd

StateCallback = Callable[[ReconnectionState, BaseException | None], object]
GapCallback = Callable[[int, int, str], object]

logger = logging.getLogger("penstock.compat.nexusd_client")


class Listeners:
    """Registered callbacks; their errors are logged."""

    def __init__(self) -> None:
        self.state = ReconnectionState.DISCONNECTED
        self._on_state: list[StateCallback] = []
        self._on_gap: list[GapCallback] = []

    def add_state(self, callback: StateCallback) -> None:
        """Register a callback for state changes."""
        self._on_state.append(callback)

    def add_gap(self, callback: GapCallback) -> None:
        """Register a callback for gaps."""
        self._on_gap.append(callback)

    def notify_state(self, state: ReconnectionState, error: BaseException | None = None) -> None:
        """Report a state, unless it is unchanged."""
        if state is self.state:
            return
        self.state = state
        logger.info("connection is %s", state.value)
        for callback in self._on_state:
            call_safely(callback, state, error)

    def notify_gap(self, gap: Gap, subscription_id: str) -> None:
        """Report missing messages."""
        fields = {"subscription_id": subscription_id, "topics": [gap.topic], "gap": gap.missed}
        logger.warning("gap in %s: expected %d, got %d", gap.topic, gap.expected, gap.actual, extra=fields)
        for callback in self._on_gap:
            call_safely(callback, gap.expected, gap.actual, gap.topic)


def call_safely(callback: Callable[..., object], *values: Any) -> None:
    """Call a callback of the application; log its errors."""
    try:
        callback(*values)
    except Exception:
        logger.exception("a callback failed")


InfoCallback = Callable[[SubscriptionInfo], object]


class Recovery:
    """Recovery of one subscription: its progress, its retries and its callbacks."""

    def __init__(
        self,
        resume: ResumeState,
        policy: ReconnectionPolicy,
        listeners: Listeners,
        on_gap: InfoCallback | None = None,
    ) -> None:
        self.resume = resume
        self.is_started = False
        """Return whether the daemon has accepted the current stream."""
        self._policy = policy
        self._listeners = listeners
        self._on_gap = on_gap
        self._attempt = 0

    @property
    def info(self) -> SubscriptionInfo:
        """The subscription and its progress."""
        return self._info(0, replay_started=False)

    def next_request(self) -> Request:
        """The first request of the next stream."""
        self.is_started = False
        return self.resume.next_request()

    def handle(self, event: nexusd.MessageEvent) -> Message | None:
        """Process an event; returns its message, if it is a new one."""
        outcome = self.resume.handle(event)
        if isinstance(outcome, Arrival):
            if outcome.gap is not None:
                self._listeners.notify_gap(outcome.gap, self.resume.subscription_id)
            return message_from_wire(
                outcome.message, is_retained=outcome.is_retained, is_replay=outcome.is_replay
            )
        if isinstance(outcome, Started):
            self._on_started(outcome, event.subscription_info.replay_started)
        elif isinstance(outcome, nexusd.BackpressureWarning):
            self._on_warning(outcome)
        return None

    def retry_delay_s(self, error: grpc.RpcError) -> float | None:
        """Delay before the next stream; None if the stream was cancelled.

        Raises:
            SubscribeError: the daemon refused the subscription.
            ConnectionError: no attempts are left.
        """
        code = error.code()
        if code is grpc.StatusCode.CANCELLED:
            return None
        if code is grpc.StatusCode.NOT_FOUND and self.resume.subscription_id:
            logger.warning("the daemon has lost the subscription", extra=self._fields())
            self.resume.reset()
            return 0.0
        if code in RETRIED and self._policy.allows(self._attempt):
            return self._schedule_retry(error)
        kind = ConnectionError if code in RETRIED else SubscribeError
        failure = error_from_call(error, kind, "subscribe")
        self._listeners.notify_state(ReconnectionState.FAILED, failure)
        logger.error("subscription failed: %s", failure, extra=self._fields())
        raise failure from error

    def _schedule_retry(self, error: grpc.RpcError) -> float:
        delay_ms = self._policy.delay_ms(self._attempt)
        fields = {**self._fields(), "attempt": self._attempt + 1, "delay_ms": round(delay_ms)}
        logger.warning("stream lost (%s), retrying", error.code().name, extra=fields)
        if not self._attempt:
            self._listeners.notify_state(ReconnectionState.DISCONNECTED, error)
        self._attempt += 1
        self._listeners.notify_state(ReconnectionState.RECONNECTING, error)
        return delay_ms / 1000

    def _on_started(self, started: Started, replay_started: bool) -> None:
        self.is_started = True
        self._attempt = 0
        self._listeners.notify_state(ReconnectionState.CONNECTED)
        logger.info("resumed" if started.is_resumed else "subscribed", extra=self._fields())
        for gap in started.gaps:
            self._listeners.notify_gap(gap, self.resume.subscription_id)
        if started.missed:
            info = self._info(started.missed, replay_started=replay_started)
            logger.warning("messages are missing", extra={**self._fields(), "gap": started.missed})
            if self._on_gap is not None:
                call_safely(self._on_gap, info)

    def _on_warning(self, warning: nexusd.BackpressureWarning) -> None:
        missing = warning.messages_dropped + warning.messages_expired
        logger.warning(
            "the daemon has dropped messages (%s)", warning.reason, extra={**self._fields(), "gap": missing}
        )

    def _info(self, missed: int, *, replay_started: bool) -> SubscriptionInfo:
        resume = self.resume
        return SubscriptionInfo(
            resume.subscription_id,
            list(resume.topics),
            missed > 0 or missed == UNKNOWN,
            missed,
            replay_started,
            resume.last_sequence,
            resume.last_sequences,
        )

    def _fields(self) -> dict[str, object]:
        return {
            "subscription_id": self.resume.subscription_id,
            "topics": list(self.resume.topics),
            "last_sequence_number": self.resume.last_sequence,
        }
