"""Blocking gRPC client: a facade of `client.py`, whose event loop runs in a background thread.

All methods block. Several threads may share a client. Callbacks run in the background thread: they have to be
quick, and must not call the client.
"""

import asyncio
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from penstock.client.errors import ConnectionLost
from penstock.client.grpc.client import Client, connect
from penstock.client.grpc.connection import OnState, Reconnection
from penstock.client.grpc.cursors import CursorStore
from penstock.client.grpc.dialect import Acknowledgement, Entry
from penstock.client.grpc.publish import IN_FLIGHT, Publishable, SummaryBuilder, make_batches
from penstock.client.grpc.subscription import OnGap, Subscription
from penstock.client.messages import (
    ClientState,
    Explanation,
    Peer,
    PublishReceipt,
    PublishSummary,
    ReceivedMessage,
    Statement,
)
from penstock.client.payloads import PublishOptions
from penstock.client.tls import TlsOption

T = TypeVar("T")

_END_TIMEOUT_S = 1.0
_CONFIRM_EVERY_S = 0.1


class LoopThread:
    """Runs coroutines for other threads; ends with `stop`, or with the interpreter.

    Args:
        on_exit: called when the interpreter exits before `stop`.
    """

    def __init__(self, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.new_event_loop()
        self._on_exit = on_exit
        self._thread = threading.Thread(target=self._run, name="penstock-client", daemon=True)
        self._is_stopped = False
        self._process = os.getpid()
        self._thread.start()
        atexit.register(on_exit)

    @property
    def is_own_process(self) -> bool:
        """Return whether it runs in this process; a forked child inherits no threads."""
        return os.getpid() == self._process

    @property
    def is_current(self) -> bool:
        """Return whether it is the calling thread."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine without waiting for it."""
        if self._is_stopped:
            coroutine.close()
            raise ConnectionLost("the client was closed")
        if not self.is_own_process:
            coroutine.close()
            raise ConnectionLost("the client belongs to another process; open a new one after a fork")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result."""
        if self.is_current:
            coroutine.close()
            raise RuntimeError("a callback must not call the blocking client that runs it")
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the interrupted caller does not need it any more
            raise

    def call_soon(self, callback: Callable[..., object], *values: object) -> None:
        """Schedule a callback in the loop; ignored after `stop`."""
        if not self._is_stopped:
            self._loop.call_soon_threadsafe(callback, *values)

    def stop(self) -> None:
        """Stop the loop and its thread. Idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        atexit.unregister(self._on_exit)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._end_tasks()
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def _end_tasks(self) -> None:
        """Let tasks finish: gRPC still calls into a loop that it was used in."""
        tasks = asyncio.all_tasks(self._loop)
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_TIMEOUT_S))
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


def connect_sync(
    address: str = "localhost:5672",
    *,
    user: str | None = None,
    password: str | None = None,
    client_id: str | None = None,
    tls: TlsOption = None,
    reconnection: Reconnection = Reconnection(),  # noqa: B008 - frozen
    timeout_s: float = 30.0,
    connect_timeout_s: float | None = 10.0,
    on_state: OnState | None = None,
    on_gap: OnGap | None = None,
) -> "SyncClient":
    """Create a client, to be used with `with`; the arguments are those of `connect`.

    ```python
    with penstock.connect_sync("localhost:5672") as client:
        client.publish("greetings/world", "hello")
    ```
    """
    return SyncClient(
        connect(
            address,
            user=user,
            password=password,
            client_id=client_id,
            tls=tls,
            reconnection=reconnection,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            on_state=on_state,
            on_gap=on_gap,
        )
    )


class SyncClient:
    """Blocking client of one server; see `connect_sync`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread: LoopThread | None = None
        self._closing = threading.Lock()
        self.client_id = client.client_id

    # Lifecycle

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; `with` does it. Raises the errors of `Client.open`."""
        if self._thread is not None:
            return
        self._thread = LoopThread(on_exit=self.close)
        try:
            self._thread.run(self._client.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all subscriptions, close the connection, and stop the thread."""
        if self._thread is not None and self._thread.is_current:
            raise RuntimeError("a callback must not call the blocking client that runs it")
        with self._closing:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_own_process:
            try:
                thread.run(self._client.close())
            finally:
                thread.stop()

    @property
    def state(self) -> ClientState:
        """State of the connection."""
        return self._client.state

    # Publishing

    def publish(
        self,
        topic: str,
        payload: bytes | str,
        *,
        content_type: str | None = None,
        retain: bool = False,
        ttl_s: float | None = None,
        correlation_id: bytes | str | None = None,
        response_topic: str | None = None,
        message_id: str | None = None,
        properties: Sequence[tuple[str, str]] = (),
    ) -> PublishReceipt:
        """Publish one message and wait for the receipt; see `Client.publish`."""
        return self._running().run(
            self._client.publish(
                topic,
                payload,
                content_type=content_type,
                retain=retain,
                ttl_s=ttl_s,
                correlation_id=correlation_id,
                response_topic=response_topic,
                message_id=message_id,
                properties=properties,
            )
        )

    def publish_json(self, topic: str, value: Any, **options: Unpack[PublishOptions]) -> PublishReceipt:
        """Publish a value as JSON; see `Client.publish_json`."""
        return self._running().run(self._client.publish_json(topic, value, **options))

    def publish_many(self, messages: Iterable[Publishable]) -> PublishSummary:
        """Publish many messages in order, in batches; see `Client.publish_many`."""
        thread, summary = self._running(), SummaryBuilder()
        sent: deque[tuple[list[Entry], Future[Acknowledgement]]] = deque()
        try:
            for batch in make_batches(messages):
                sent.append((batch, thread.start(self._client.publish_entries(batch))))
                if len(sent) >= IN_FLIGHT:
                    _add_first(sent, summary)
            while sent:
                _add_first(sent, summary)
        finally:
            for _, future in sent:
                future.cancel()
        return summary.build()

    # Subscribing

    def subscribe(
        self,
        *filters: str,
        after: str | CursorStore | None = None,
        last: int | None = None,
        retained: bool = False,
        buffer: int = 1_000,
        policy: str | None = None,
        on_gap: OnGap | None = None,
    ) -> "SyncSubscription":
        """Create a subscription, to be used with `with`; the arguments are those of `Client.subscribe`."""
        thread = self._running()
        subscription = self._client.subscribe(
            *filters, after=after, last=last, retained=retained, buffer=buffer, policy=policy, on_gap=on_gap
        )
        return SyncSubscription(thread, subscription, max_taken=max(1, buffer // 2))

    # Requests and reports

    def request(
        self, topic: str, payload: bytes | str, *, timeout_s: float = 5.0, content_type: str | None = None
    ) -> ReceivedMessage:
        """Publish a request and wait for its response; see `Client.request`."""
        return self._running().run(
            self._client.request(topic, payload, timeout_s=timeout_s, content_type=content_type)
        )

    def respond(
        self, request: ReceivedMessage, payload: bytes | str, *, content_type: str | None = None
    ) -> PublishReceipt:
        """Publish the response to a request."""
        return self._running().run(self._client.respond(request, payload, content_type=content_type))

    def topics(self) -> dict[str, int]:
        """Topics, and the number of subscribers of each."""
        return self._running().run(self._client.topics())

    def peers(self) -> list[Peer]:
        """Other nodes, as the server sees them."""
        return self._running().run(self._client.peers())

    def why(self, topic: str, sequence: int, client_id: str | None = None) -> Explanation:
        """Why a client did or did not get a message; without a client id, for all clients."""
        return self._running().run(self._client.why(topic, sequence, client_id))

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise ConnectionLost("the client is not open")
        return self._thread


class SyncSubscription:
    """Messages of a set of filters, in order; iterate over it in one thread.

    ```python
    with client.subscribe("sensors/#", last=10) as messages:
        for message in messages:
            print(message.topic, message.payload)
            messages.add("alarms/#")
    ```
    """

    def __init__(self, thread: LoopThread, subscription: Subscription, max_taken: int) -> None:
        self._thread = thread
        self._subscription = subscription
        self._max_taken = max_taken
        self._taken: deque[ReceivedMessage] = deque()
        self._current: ReceivedMessage | None = None  # handed out, not yet confirmed
        self._confirmed: ReceivedMessage | None = None  # the last one
        self._unreported = 0  # confirmed, not yet reported to the loop
        self._reported_at = time.monotonic()

    # Lifecycle

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Subscribe; `with` does it."""
        self._thread.run(self._subscription.open())

    def close(self) -> None:
        """Unsubscribe. Called from another thread, it ends the iteration."""
        try:
            self._thread.run(self._close())
        except ConnectionLost:
            return  # already closed together with the client

    # Messages

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        message = self._next(None)
        if message is None:
            raise StopIteration
        return message

    def receive(self, timeout_s: float | None = None) -> ReceivedMessage:
        """The next message; raises the errors of `Subscription.receive`."""
        message = self._next(timeout_s)
        if message is None:
            raise ConnectionLost("the subscription was closed")
        return message

    def confirm(self) -> None:
        """Mark the last message as processed; taking the next one does so too."""
        if self._current is None:
            return
        self._confirmed, self._current = self._current, None
        self._unreported += 1
        if time.monotonic() - self._reported_at >= _CONFIRM_EVERY_S:
            self._report_confirmed()

    def __len__(self) -> int:
        """Number of waiting messages."""
        return len(self._taken) + len(self._subscription)

    @property
    def cursor(self) -> str | None:
        """Cursor after all processed messages: pass it as `after` to resume from here, at any door."""
        return self._confirmed.cursor if self._unreported and self._confirmed else self._subscription.cursor

    @property
    def statement(self) -> Statement | None:
        """The server's statement about the last replay."""
        return self._subscription.statement

    @property
    def dropped(self) -> int:
        """Messages that the server dropped because the application was too slow."""
        return self._subscription.dropped

    # Filters

    @property
    def filters(self) -> tuple[str, ...]:
        """The subscribed filters."""
        return self._subscription.filters

    def add(
        self, *filters: str, after: str | None = None, last: int | None = None, retained: bool = False
    ) -> None:
        """Add filters."""
        self._thread.run(self._subscription.add(*filters, after=after, last=last, retained=retained))

    def remove(self, *filters: str) -> None:
        """Remove filters; messages in flight may still be delivered."""
        self._thread.run(self._subscription.remove(*filters))

    def _next(self, timeout_s: float | None) -> ReceivedMessage | None:
        self.confirm()
        if not self._taken:
            self._report_confirmed()
            try:
                self._thread.run(self._fill(timeout_s))
            except StopAsyncIteration:
                return None
        self._current = message = self._taken.popleft()
        return message

    async def _fill(self, timeout_s: float | None) -> None:
        """Take messages in the loop's thread, so that an interrupted call loses none of them."""
        self._taken.extend(await self._subscription.take_many(self._max_taken, timeout_s))

    def _report_confirmed(self) -> None:
        count, self._unreported = self._unreported, 0
        self._reported_at = time.monotonic()
        if count:
            self._thread.call_soon(self._subscription.confirm_many, self._confirmed, count)

    async def _close(self) -> None:
        if self._unreported and self._confirmed is not None:
            self._subscription.confirm_many(self._confirmed, self._unreported)
            self._unreported = 0
        await self._subscription.close()


def _add_first(sent: "deque[tuple[list[Entry], Future[Acknowledgement]]]", summary: SummaryBuilder) -> None:
    batch, future = sent[0]
    acknowledgement = future.result()
    sent.popleft()
    summary.add(batch, acknowledgement)
