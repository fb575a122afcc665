"""Client for asyncio, with the same methods as the blocking one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

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


class Stream:
    """Events of one subscription, across calls."""

    def __init__(self, recovery: Recovery, open_call: Callable[[Any], Any]) -> None:
        self.recovery = recovery
        self.is_over = False
        self._open_call = open_call
        self._call: Any = None
        self._reading: asyncio.Task[Any] | None = None
        self._ending = asyncio.Event()

    def close(self) -> None:
        """End it, and wake its reader."""
        self.is_over = True
        self._ending.set()
        if self._call is not None:
            self._call.cancel()
        if self._reading is not None:
            self._reading.cancel()

    async def next_event(self) -> nexusd.MessageEvent | None:
        """The next event of this call, or of the one after it; None at the end."""
        while not self.is_over:
            try:
                if self._call is None:
                    self._call = self._open_call(self.recovery.next_request())
                event = await self._read()
            except grpc.RpcError as error:
                await self._lost(error)
            else:
                self.is_over = event is None
                return event
        return None

    async def _read(self) -> nexusd.MessageEvent | None:
        """Read one event. Cancelling the caller does not cancel the read: the next caller gets the event."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._call.read())
        await asyncio.wait([self._reading])
        reading, self._reading = self._reading, None
        if reading.cancelled():  # by `close`
            return None
        event = reading.result()
        return None if event is grpc.aio.EOF else event

    async def _lost(self, error: grpc.RpcError) -> None:
        self._call = None
        delay_s = None if self.is_over else self.recovery.retry_delay_s(error)
        if delay_s is None:
            self.is_over = True
        elif delay_s:
            await asyncio.wait([ending := asyncio.ensure_future(self._ending.wait())], timeout=delay_s)
            ending.cancel()


class AsyncSubscription:
    """Messages of one subscription; iterate over it.

    It starts with the first iteration, or with `start`. It ends with its own or the client's `close`, or with
    `unsubscribe`.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __del__(self) -> None:
        self._stream.close()  # an unreferenced subscription has no reader

    @property
    def info(self) -> SubscriptionInfo:
        """Its id and progress."""
        return self._stream.recovery.info

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self._stream.is_over

    async def start(self) -> SubscriptionInfo:
        """Wait until the daemon has accepted it, without consuming a message."""
        recovery = self._stream.recovery
        while not recovery.is_started and (event := await self._stream.next_event()) is not None:
            recovery.handle(event)  # the first event of a stream is never a message
        return self.info

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while (event := await self._stream.next_event()) is not None:
            message = self._stream.recovery.handle(event)
            if message is not None:
                return message
        raise StopAsyncIteration

    async def close(self) -> None:
        """End it on this side. The server keeps its position for a while, as after a lost connection."""
        self._stream.close()


class AsyncNexusdClient(ClientBase):
    """Client of a NexusD daemon or a Penstock server.

    >>> async with AsyncNexusdClient("localhost:5672") as client:
    ...     await client.publish("sensors/temperature", b"23.5")
    ...     async for message in client.subscribe(["sensors/temperature"]):
    ...         print(message.topic, message.payload_as_string())
    """

    def _prepare(self) -> None:
        self._channel: grpc.aio.Channel | None = None  # created later: there may be no event loop yet
        self._made_stub: Stub | None = None
        self._streams: set[Stream] = set()

    @property
    def _stub(self) -> Stub:
        self._check_open()
        if self._made_stub is None:
            credentials = self._channel_credentials()
            if credentials is None:
                self._channel = grpc.aio.insecure_channel(self.address, CHANNEL_OPTIONS)
            else:
                self._channel = grpc.aio.secure_channel(self.address, credentials, CHANNEL_OPTIONS)
            self._made_stub = Stub(self._channel)
        return self._made_stub

    async def connect(self, timeout_ms: int | None = None) -> None:
        """Wait until the daemon responds.

        Raises:
            ConnectionError: no response in time.
        """
        request = nexusd.GetTopicsRequest()
        await self._call_method(self._stub.get_topics, request, "connect", timeout_ms=timeout_ms, wait=True)

    async def publish(
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
        return publish_result(await self._call_method(self._stub.publish, request, "publish", PublishError))

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
    ) -> AsyncSubscription:
        """Subscribe to topics; the subscription resumes after interruptions.

        Args:
            on_gap_detected: called with a `SubscriptionInfo` when messages are missing after an interruption.
            subscription_id: resume a paused subscription, also of another process.
            last_sequence_per_topic: its progress; default: as recorded by the daemon.
        """
        recovery = self._recovery(
            topics,
            receive_retained,
            max_buffer_size,
            gap_recovery_mode,
            on_gap_detected,
            subscription_id,
            last_sequence_per_topic,
        )
        stream = Stream(recovery, lambda request: self._stub.events(request, metadata=self._metadata))
        self._streams = {one for one in self._streams if not one.is_over} | {stream}
        return AsyncSubscription(stream)

    async def unsubscribe(self, subscription_id: str, pause: bool = False) -> bool:
        """End a subscription, or pause it for a later resume; False if the daemon does not know it.

        Raises:
            UnsubscribeError: the call failed.
        """
        request = nexusd.UnsubscribeRequest(subscription_id=subscription_id, pause=pause)
        response: nexusd.UnsubscribeResponse = await self._call_method(
            self._stub.unsubscribe, request, "unsubscribe", UnsubscribeError
        )
        for stream in self._streams:
            if stream.recovery.resume.subscription_id == subscription_id:
                stream.close()
        return response.success

    async def get_topics(self) -> list[TopicInfo]:
        """Topics that have subscribers."""
        request = nexusd.GetTopicsRequest(include_counts=True)
        return topics_from_wire(await self._call_method(self._stub.get_topics, request, "get topics"))

    async def get_peers(self) -> list[PeerInfo]:
        """Other nodes of the mesh."""
        request = nexusd.GetPeersRequest(include_state=True)
        return peers_from_wire(await self._call_method(self._stub.get_peers, request, "get peers"))

    def active_subscriptions(self) -> list[SubscriptionInfo]:
        """Accepted subscriptions that have not ended."""
        active = [one.recovery.info for one in self._streams if not one.is_over]
        return [info for info in active if info.subscription_id]

    async def close(self) -> None:
        """Pause all subscriptions for a later resume, and close the connection."""
        if self._is_closed:
            return
        for info in self.active_subscriptions():
            try:
                await self.unsubscribe(info.subscription_id, pause=True)
            except NexusdError as error:
                logger.warning("subscriptions were not paused: %s", error)
                break  # the others would time out as well
        self._is_closed = True
        for stream in self._streams:
            stream.close()
        if self._channel is not None:
            await self._channel.close()
        self._listeners.notify_state(ReconnectionState.DISCONNECTED)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call_method(
        self,
        call: Any,
        request: Any,
        doing: str,
        kind: type[NexusdError] | None = None,
        *,
        timeout_ms: int | None = None,
        wait: bool = False,
    ) -> Any:
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        try:
            return await call(request, timeout=timeout_s, metadata=self._metadata, wait_for_ready=wait)
        except grpc.RpcError as error:
            raise error_from_call(error, kind, doing) from error
