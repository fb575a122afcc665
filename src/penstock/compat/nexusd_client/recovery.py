"""What a subscription does with events and failures, whoever waits for them.

Both clients have one of these for each subscription: they open the stream that it asks for, hand it what
comes, and wait as long as it says when the stream has failed.
"""

from collections.abc import Callable

import grpc

from penstock.client.nexusd_following import UNKNOWN, Arrival, Begun, Following
from penstock.client.nexusd_stub import Request
from penstock.compat.nexusd_client.errors import ConnectionError, SubscribeError, error_of
from penstock.compat.nexusd_client.listeners import Listeners, call_safely, logger
from penstock.compat.nexusd_client.policy import RETRIED, ReconnectionPolicy
from penstock.compat.nexusd_client.values import Message, ReconnectionState, SubscriptionInfo, message_of
from penstock.wire.sidecar import nexusd

InfoCallback = Callable[[SubscriptionInfo], object]


class Recovery:
    """One subscription: where it is, how often it was tried, and who hears of gaps."""

    def __init__(
        self,
        following: Following,
        policy: ReconnectionPolicy,
        listeners: Listeners,
        on_gap: InfoCallback | None = None,
    ) -> None:
        self.following = following
        self.is_begun = False
        """Whether the stream of now was accepted."""
        self._policy = policy
        self._listeners = listeners
        self._on_gap = on_gap
        self._attempt = 0

    @property
    def info(self) -> SubscriptionInfo:
        """The subscription as it stands."""
        return self._info(0, replay_started=False)

    def next_request(self) -> Request:
        """What the next stream begins with."""
        self.is_begun = False
        return self.following.next_request()

    def take(self, event: nexusd.MessageEvent) -> Message | None:
        """The message of an event, if it has one that is new."""
        happening = self.following.take(event)
        if isinstance(happening, Arrival):
            if happening.gap is not None:
                self._listeners.tell_gap(happening.gap, self.following.subscription_id)
            return message_of(
                happening.message, is_retained=happening.is_retained, is_replay=happening.is_replay
            )
        if isinstance(happening, Begun):
            self._on_begun(happening, event.subscription_info.replay_started)
        elif isinstance(happening, nexusd.BackpressureWarning):
            self._on_warning(happening)
        return None

    def after(self, error: grpc.RpcError) -> float | None:
        """How many seconds to wait before the next stream; None if there is to be none.

        Raises:
            SubscribeError: the daemon has said no.
            ConnectionError: it was tried often enough.
        """
        code = error.code()
        if code is grpc.StatusCode.CANCELLED:
            return None
        if code is grpc.StatusCode.NOT_FOUND and self.following.subscription_id:
            logger.warning("the daemon has forgotten the subscription", extra=self._fields())
            self.following.forget()
            return 0.0
        if code in RETRIED and self._policy.allows(self._attempt):
            return self._try_again(error)
        kind = ConnectionError if code in RETRIED else SubscribeError
        failure = error_of(error, kind, "subscribe")
        self._listeners.tell_state(ReconnectionState.FAILED, failure)
        logger.error("subscription has failed: %s", failure, extra=self._fields())
        raise failure from error

    def _try_again(self, error: grpc.RpcError) -> float:
        delay_ms = self._policy.delay_ms(self._attempt)
        fields = {**self._fields(), "attempt": self._attempt + 1, "delay_ms": round(delay_ms)}
        logger.warning("stream lost (%s), trying again", error.code().name, extra=fields)
        if not self._attempt:
            self._listeners.tell_state(ReconnectionState.DISCONNECTED, error)
        self._attempt += 1
        self._listeners.tell_state(ReconnectionState.RECONNECTING, error)
        return delay_ms / 1000

    def _on_begun(self, begun: Begun, replay_started: bool) -> None:
        self.is_begun = True
        self._attempt = 0
        self._listeners.tell_state(ReconnectionState.CONNECTED)
        logger.info("resumed" if begun.is_resumed else "subscribed", extra=self._fields())
        for gap in begun.gaps:
            self._listeners.tell_gap(gap, self.following.subscription_id)
        if begun.missed:
            info = self._info(begun.missed, replay_started=replay_started)
            logger.warning("messages are missing", extra={**self._fields(), "gap": begun.missed})
            if self._on_gap is not None:
                call_safely(self._on_gap, info)

    def _on_warning(self, warning: nexusd.BackpressureWarning) -> None:
        missing = warning.messages_dropped + warning.messages_expired
        logger.warning(
            "the daemon has dropped messages (%s)", warning.reason, extra={**self._fields(), "gap": missing}
        )

    def _info(self, missed: int, *, replay_started: bool) -> SubscriptionInfo:
        following = self.following
        return SubscriptionInfo(
            following.subscription_id,
            list(following.topics),
            missed > 0 or missed == UNKNOWN,
            missed,
            replay_started,
            following.last_sequence,
            following.last_sequences,
        )

    def _fields(self) -> dict[str, object]:
        return {
            "subscription_id": self.following.subscription_id,
            "topics": list(self.following.topics),
            "last_sequence_number": self.following.last_sequence,
        }
