"""The client that blocks. Several threads may use it; each subscription is for one."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import grpc

from penstock.client.nexusd_stub import Stub
from penstock.compat.nexusd_client.base import CHANNEL_OPTIONS, ClientBase, publish_request, published
from penstock.compat.nexusd_client.errors import (
    NexusdError,
    PublishError,
    UnsubscribeError,
    error_of,
)
from penstock.compat.nexusd_client.listeners import logger
from penstock.compat.nexusd_client.recovery import InfoCallback, Recovery
from penstock.compat.nexusd_client.values import (
    GapRecoveryMode,
    Message,
    PeerInfo,
    PublishResult,
    ReconnectionState,
    SubscriptionInfo,
    TopicInfo,
    peers_of,
    topics_of,
)
from penstock.wire.sidecar import nexusd


class Subscription:
    """The messages of one subscription; iterate over it.

    It begins with the first message that is asked for, or with `start`, and ends with `close`, with the
    client's own close, and when somebody unsubscribes it.
    """

    def __init__(self, recovery: Recovery, open_stream: Callable[[Any], Any]) -> None:
        self._recovery = recovery
        self._open_stream = open_stream
        self._call: Any = None
        self._over = threading.Event()

    def __del__(self) -> None:
        self.close()  # one that nobody reads is nobody's

    @property
    def info(self) -> SubscriptionInfo:
        """Its id, and how far it is."""
        return self._recovery.info

    @property
    def is_over(self) -> bool:
        """Whether no more messages come."""
        return self._over.is_set()

    def start(self) -> SubscriptionInfo:
        """Wait until the daemon has accepted it, without taking a message."""
        while not self._recovery.is_begun and (event := self._next_event()) is not None:
            self._recovery.take(event)  # the first event of a stream is never a message
        return self.info

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        while (event := self._next_event()) is not None:
            message = self._recovery.take(event)
            if message is not None:
                return message
        raise StopIteration

    def close(self) -> None:
        """End it here. The server keeps its place for a while, as after a lost connection."""
        self._over.set()
        if self._call is not None:
            self._call.cancel()

    def _next_event(self) -> nexusd.MessageEvent | None:
        """The next event of this stream, or of the one after it; None when all is over."""
        while not self._over.is_set():
            try:
                if self._call is None:
                    self._call = self._open_stream(self._recovery.next_request())
                event: nexusd.MessageEvent | None = next(self._call, None)
            except grpc.RpcError as error:
                self._lost(error)
            except ValueError:  # the channel was closed a moment ago, by another thread
                if not self._over.is_set():
                    raise
            else:
                if event is None:
                    self._over.set()
                return event
        return None

    def _lost(self, error: grpc.RpcError) -> None:
        self._call = None
        delay_s = None if self._over.is_set() else self._recovery.after(error)
        if delay_s is None:
            self._over.set()
        else:
            self._over.wait(delay_s)


class NexusdClient(ClientBase):
    """A client of a NexusD daemon, or of a Penstock server.

    >>> with NexusdClient("localhost:5672") as client:
    ...     client.publish("sensors/temperature", b"23.5")
    ...     for message in client.subscribe(["sensors/temperature"]):
    ...         print(message.topic, message.payload_as_string())
    """

    def _prepare(self) -> None:
        credentials = self._channel_credentials()
        if credentials is None:
            self._channel = grpc.insecure_channel(self.address, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(self.address, credentials, CHANNEL_OPTIONS)
        self._stub = Stub(self._channel)
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    def connect(self, timeout_ms: int | None = None) -> None:
        """Wait until the daemon can be reached.

        Raises:
            ConnectionError: it cannot, within that time.
        """
        self._ask(
            self._stub.get_topics, nexusd.GetTopicsRequest(), "connect", timeout_ms=timeout_ms, wait=True
        )

    def publish(
        self,
        topic: str,
        payload: bytes,
        content_type: str = "",
        retain: bool = False,
        correlation_id: str = "",
        ttl_ms: int = 0,
    ) -> PublishResult:
        """Publish a message; it is never published twice, because it is never tried twice.

        Raises:
            PublishError: it was refused, or there was no answer in time.
        """
        request = publish_request(topic, payload, content_type, retain, correlation_id, ttl_ms)
        return published(self._ask(self._stub.publish, request, "publish", PublishError))

    def subscribe(
        self,
        topics: Sequence[str],
        receive_retained: bool = True,
        max_buffer_size: int = 0,
        gap_recovery_mode: GapRecoveryMode | None = None,
        on_gap_detected: InfoCallback | None = None,
        *,
        subscription_id: str = "",
        last_sequence_per_topic: Mapping[str, int] | None = None,
    ) -> Subscription:
        """Iterate over the messages of topics, across interruptions.

        Args:
            on_gap_detected: called with a `SubscriptionInfo` when messages are missing after an interruption.
            subscription_id: go on with a subscription that was paused, perhaps by another process.
            last_sequence_per_topic: how far that one was, if it knows better than the daemon.
        """
        subscription = Subscription(
            self._recovery(
                topics,
                receive_retained,
                max_buffer_size,
                gap_recovery_mode,
                on_gap_detected,
                subscription_id,
                last_sequence_per_topic,
            ),
            lambda request: self._stub.events(request, metadata=self._metadata),
        )
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription_id: str, pause: bool = False) -> bool:
        """End a subscription, or pause it so that it can go on later; False if the daemon does not know it.

        Raises:
            UnsubscribeError: the daemon could not be asked.
        """
        request = nexusd.UnsubscribeRequest(subscription_id=subscription_id, pause=pause)
        answer: nexusd.UnsubscribeResponse = self._ask(
            self._stub.unsubscribe, request, "unsubscribe", UnsubscribeError
        )
        for subscription in list(self._subscriptions):
            if subscription.info.subscription_id == subscription_id:
                subscription.close()
        return answer.success

    def get_topics(self) -> list[TopicInfo]:
        """Topics that have subscribers."""
        request = nexusd.GetTopicsRequest(include_counts=True)
        return topics_of(self._ask(self._stub.get_topics, request, "get topics"))

    def get_peers(self) -> list[PeerInfo]:
        """Other nodes of the mesh."""
        request = nexusd.GetPeersRequest(include_state=True)
        return peers_of(self._ask(self._stub.get_peers, request, "get peers"))

    def active_subscriptions(self) -> list[SubscriptionInfo]:
        """Subscriptions that the daemon has accepted and nobody has ended."""
        active = [one.info for one in list(self._subscriptions) if not one.is_over]
        return [info for info in active if info.subscription_id]

    def close(self) -> None:
        """Pause every subscription, so that it can go on later, and hang up."""
        if self._is_closed:
            return
        for info in self.active_subscriptions():
            try:
                self.unsubscribe(info.subscription_id, pause=True)
            except NexusdError as error:
                logger.warning("subscriptions were not paused: %s", error)
                break  # the others would wait as long, and in vain
        self._is_closed = True
        for subscription in list(self._subscriptions):
            subscription.close()
        self._channel.close()
        self._listeners.tell_state(ReconnectionState.DISCONNECTED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self,
        call: Any,
        request: Any,
        doing: str,
        kind: type[NexusdError] | None = None,
        *,
        timeout_ms: int | None = None,
        wait: bool = False,
    ) -> Any:
        self._check_open()
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        try:
            return call(request, timeout=timeout_s, metadata=self._metadata, wait_for_ready=wait)
        except grpc.RpcError as error:
            raise error_of(error, kind, doing) from error
