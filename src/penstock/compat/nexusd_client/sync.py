"""Blocking client. Several threads may share it; a subscription belongs to one thread."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import grpc

from penstock.client.grpc.nexusd.stub import Stub
from penstock.compat.nexusd_client.base import CHANNEL_OPTIONS, ClientBase, publish_request, publish_result
from penstock.compat.nexusd_client.recovery import InfoCallback, Recovery, logger
from penstock.compat.nexusd_client.types import (
    GapRecoveryMode,
    Message,
    NexusdError,
    PeerInfo,
    PublishError,
    PublishResult,
    ReconnectionState,
    SubscriptionInfo,
    TopicInfo,
    UnsubscribeError,
    error_from_call,
    peers_from_wire,
    topics_from_wire,
)
from penstock.wire.sidecar.messages import nexusd


class Subscription:
    """Messages of one subscription; iterate over it.

    It starts with the first iteration, or with `start`. It ends with its own or the client's `close`, or with
    `unsubscribe`.
    """

    def __init__(self, recovery: Recovery, open_stream: Callable[[Any], Any]) -> None:
        self._recovery = recovery
        self._open_stream = open_stream
        self._call: Any = None
        self._ended = threading.Event()

    def __del__(self) -> None:
        self.close()  # an unreferenced subscription has no reader

    @property
    def info(self) -> SubscriptionInfo:
        """Its id and progress."""
        return self._recovery.info

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self._ended.is_set()

    def start(self) -> SubscriptionInfo:
        """Wait until the daemon has accepted it, without consuming a message."""
        while not self._recovery.is_started and (event := self._next_event()) is not None:
            self._recovery.handle(event)  # the first event of a stream is never a message
        return self.info

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        while (event := self._next_event()) is not None:
            message = self._recovery.handle(event)
            if message is not None:
                return message
        raise StopIteration

    def close(self) -> None:
        """End it on this side. The server keeps its position for a while, as after a lost connection."""
        self._ended.set()
        if self._call is not None:
            self._call.cancel()

    def _next_event(self) -> nexusd.MessageEvent | None:
        """The next event of this stream, or of the one after it; None at the end."""
        while not self._ended.is_set():
            try:
                if self._call is None:
                    self._call = self._open_stream(self._recovery.next_request())
                event: nexusd.MessageEvent | None = next(self._call, None)
            except grpc.RpcError as error:
                self._lost(error)
            except ValueError:  # another thread has just closed the channel
                if not self._ended.is_set():
                    raise
            else:
                if event is None:
                    self._ended.set()
                return event
        return None

    def _lost(self, error: grpc.RpcError) -> None:
        self._call = None
        delay_s = None if self._ended.is_set() else self._recovery.retry_delay_s(error)
        if delay_s is None:
            self._ended.set()
        else:
            self._ended.wait(delay_s)


class NexusdClient(ClientBase):
    """Client of a NexusD daemon or a Penstock server.

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
        """Wait until the daemon responds.

        Raises:
            ConnectionError: no response in time.
        """
        self._call_method(
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
        """Publish a message, at most once: a failed publish is not retried.

        Raises:
            PublishError: the daemon refused it, or did not respond in time.
        """
        request = publish_request(topic, payload, content_type, retain, correlation_id, ttl_ms)
        return publish_result(self._call_method(self._stub.publish, request, "publish", PublishError))

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
        """Subscribe to topics; the subscription resumes after interruptions.

        Args:
            on_gap_detected: called with a `SubscriptionInfo` when messages are missing after an interruption.
            subscription_id: resume a paused subscription, also of another process.
            last_sequence_per_topic: its progress; default: as recorded by the daemon.
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
        """End a subscription, or pause it for a later resume; False if the daemon does not know it.

        Raises:
            UnsubscribeError: the call failed.
        """
        request = nexusd.UnsubscribeRequest(subscription_id=subscription_id, pause=pause)
        response: nexusd.UnsubscribeResponse = self._call_method(
            self._stub.unsubscribe, request, "unsubscribe", UnsubscribeError
        )
        for subscription in list(self._subscriptions):
            if subscription.info.subscription_id == subscription_id:
                subscription.close()
        return response.success

    def get_topics(self) -> list[TopicInfo]:
        """Topics that have subscribers."""
        request = nexusd.GetTopicsRequest(include_counts=True)
        return topics_from_wire(self._call_method(self._stub.get_topics, request, "get topics"))

    def get_peers(self) -> list[PeerInfo]:
        """Other nodes of the mesh."""
        request = nexusd.GetPeersRequest(include_state=True)
        return peers_from_wire(self._call_method(self._stub.get_peers, request, "get peers"))

    def active_subscriptions(self) -> list[SubscriptionInfo]:
        """Accepted subscriptions that have not ended."""
        active = [one.info for one in list(self._subscriptions) if not one.is_over]
        return [info for info in active if info.subscription_id]

    def close(self) -> None:
        """Pause all subscriptions for a later resume, and close the connection."""
        if self._is_closed:
            return
        for info in self.active_subscriptions():
            try:
                self.unsubscribe(info.subscription_id, pause=True)
            except NexusdError as error:
                logger.warning("subscriptions were not paused: %s", error)
                break  # the others would time out as well
        self._is_closed = True
        for subscription in list(self._subscriptions):
            subscription.close()
        self._channel.close()
        self._listeners.notify_state(ReconnectionState.DISCONNECTED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call_method(
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
            raise error_from_call(error, kind, doing) from error
