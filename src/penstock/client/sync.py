"""Penstock for programs without a loop: the twin of `aio.py`, which does the work, in a thread of its own.

Everything here waits for its answer. A client may be used by several threads at once. Callbacks are called in
the client's own thread: they must be quick, and must not wait for the client.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from penstock.client import aio
from penstock.client.answers import Statement
from penstock.client.batches import IN_FLIGHT, Publishable, Tally, batches
from penstock.client.channels import File, Tls
from penstock.client.connection import OnState
from penstock.client.cursors import CursorFile
from penstock.client.dialect import Acknowledgement, Entry
from penstock.client.errors import ConnectionLost
from penstock.client.loop_thread import LoopThread
from penstock.client.reconnection import Reconnection
from penstock.client.subscription import OnGap, Subscription
from penstock.client.values import (
    ClientState,
    Explanation,
    Peer,
    PublishReceipt,
    PublishSummary,
    ReceivedMessage,
)

_SEEN_EVERY_S = 0.1


def connect_sync(
    address: str = "localhost:5672",
    *,
    user: str | None = None,
    password: str | None = None,
    client_id: str | None = None,
    tls: Tls | File | bool | None = None,
    reconnection: Reconnection = Reconnection(),  # noqa: B008 - frozen
    timeout_s: float = 30.0,
    connect_timeout_s: float | None = 10.0,
    on_state: OnState | None = None,
    on_gap: OnGap | None = None,
) -> "SyncClient":
    """A client of a server, to be entered with `with`; the arguments are those of `connect`.

    ```python
    with penstock.connect_sync("localhost:5672") as client:
        client.publish("greetings/world", "hello")
    ```
    """
    return SyncClient(
        aio.connect(
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
    """A client of one server; see `connect_sync`."""

    def __init__(self, client: aio.Client) -> None:
        self._client = client
        self._thread: LoopThread | None = None
        self._closing = threading.Lock()
        self.client_id = client.client_id

    # Its life

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; `with` does it. It raises what `Client.open` raises."""
        if self._thread is not None:
            return
        self._thread = LoopThread(on_exit=self.close)
        try:
            self._thread.run(self._client.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all subscriptions, let go of the connection, and end the thread."""
        if self._thread is not None and self._thread.is_current:
            raise RuntimeError("a callback must not wait for the client that calls it")
        with self._closing:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_here:
            try:
                thread.run(self._client.close())
            finally:
                thread.stop()

    @property
    def state(self) -> ClientState:
        """How things stand with the server."""
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
        """Publish one message, and wait until the server has it; as `Client.publish`."""
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

    def publish_many(self, messages: Iterable[Publishable]) -> PublishSummary:
        """Publish many messages in order, a few batches at a time; as `Client.publish_many`."""
        thread, tally = self._running(), Tally()
        sent: deque[tuple[list[Entry], Future[Acknowledgement]]] = deque()
        try:
            for batch in batches(messages):
                sent.append((batch, thread.start(self._client.publish_entries(batch))))
                if len(sent) >= IN_FLIGHT:
                    _count_first(sent, tally)
            while sent:
                _count_first(sent, tally)
        finally:
            for _, future in sent:
                future.cancel()
        return tally.summary()

    # Subscribing

    def subscribe(
        self,
        *filters: str,
        after: str | CursorFile | None = None,
        last: int | None = None,
        retained: bool = False,
        buffer: int = 1_000,
        policy: str | None = None,
        on_gap: OnGap | None = None,
    ) -> "SyncSubscription":
        """A subscription, to be entered with `with`; the arguments are those of `Client.subscribe`."""
        thread = self._running()
        subscription = self._client.subscribe(
            *filters, after=after, last=last, retained=retained, buffer=buffer, policy=policy, on_gap=on_gap
        )
        return SyncSubscription(thread, subscription, most_taken=max(1, buffer // 2))

    # Asking

    def request(
        self, topic: str, payload: bytes | str, *, timeout_s: float = 5.0, content_type: str | None = None
    ) -> ReceivedMessage:
        """Publish a request, and wait for the answer to it; as `Client.request`."""
        return self._running().run(
            self._client.request(topic, payload, timeout_s=timeout_s, content_type=content_type)
        )

    def respond(
        self, request: ReceivedMessage, payload: bytes | str, *, content_type: str | None = None
    ) -> PublishReceipt:
        """Answer a request."""
        return self._running().run(self._client.respond(request, payload, content_type=content_type))

    def topics(self) -> dict[str, int]:
        """Topics, and how many subscribers each has."""
        return self._running().run(self._client.topics())

    def peers(self) -> list[Peer]:
        """Other nodes, as the server sees them."""
        return self._running().run(self._client.peers())

    def why(self, topic: str, sequence: int, client_id: str | None = None) -> Explanation:
        """Why somebody got a message, or did not; without a client, what became of the message."""
        return self._running().run(self._client.why(topic, sequence, client_id))

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise ConnectionLost("the client is not open")
        return self._thread


class SyncSubscription:
    """Messages of some filters, in order; iterate over it, in one thread.

    ```python
    with client.subscribe("sensors/#", last=10) as messages:
        for message in messages:
            print(message.topic, message.payload)
            messages.add("alarms/#")
    ```
    """

    def __init__(self, thread: LoopThread, subscription: Subscription, most_taken: int) -> None:
        self._thread = thread
        self._subscription = subscription
        self._most_taken = most_taken
        self._taken: deque[ReceivedMessage] = deque()
        self._current: ReceivedMessage | None = None  # given out, and not confirmed
        self._seen: ReceivedMessage | None = None  # the last that was confirmed
        self._seen_count = 0  # of which the loop has not been told
        self._told_at = time.monotonic()

    # Its life

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
        """Unsubscribe; another thread may do it, which ends the iteration."""
        try:
            self._thread.run(self._close())
        except ConnectionLost:
            return  # the client was closed before, and this with it

    # Messages

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        message = self._next(None)
        if message is None:
            raise StopIteration
        return message

    def receive(self, timeout_s: float | None = None) -> ReceivedMessage:
        """The next message; it raises what `Subscription.receive` raises."""
        message = self._next(timeout_s)
        if message is None:
            raise ConnectionLost("the subscription was closed")
        return message

    def confirm(self) -> None:
        """The message that was taken last is dealt with; to ask for the next one says so too."""
        if self._current is None:
            return
        self._seen, self._current = self._current, None
        self._seen_count += 1
        if time.monotonic() - self._told_at >= _SEEN_EVERY_S:
            self._tell_seen()

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._taken) + len(self._subscription)

    @property
    def cursor(self) -> str | None:
        """Behind all that was seen: what to give as `after` to go on from here, at any door."""
        return self._seen.cursor if self._seen_count and self._seen else self._subscription.cursor

    @property
    def statement(self) -> Statement | None:
        """What the server said at the end of the last replay."""
        return self._subscription.statement

    @property
    def dropped(self) -> int:
        """How many messages the server dropped because they were not taken in time."""
        return self._subscription.dropped

    # Filters

    @property
    def filters(self) -> tuple[str, ...]:
        """What is subscribed to."""
        return self._subscription.filters

    def add(
        self, *filters: str, after: str | None = None, last: int | None = None, retained: bool = False
    ) -> None:
        """Listen to more filters."""
        self._thread.run(self._subscription.add(*filters, after=after, last=last, retained=retained))

    def remove(self, *filters: str) -> None:
        """Listen to filters no more; what is on its way may still come."""
        self._thread.run(self._subscription.remove(*filters))

    # Inside

    def _next(self, timeout_s: float | None) -> ReceivedMessage | None:
        self.confirm()
        if not self._taken:
            self._tell_seen()
            try:
                self._thread.run(self._fill(timeout_s))
            except StopAsyncIteration:
                return None
        self._current = message = self._taken.popleft()
        return message

    async def _fill(self, timeout_s: float | None) -> None:
        """Take messages in the loop's thread: who is interrupted while waiting finds them next time."""
        self._taken.extend(await self._subscription.take_many(self._most_taken, timeout_s))

    def _tell_seen(self) -> None:
        count, self._seen_count = self._seen_count, 0
        self._told_at = time.monotonic()
        if count:
            self._thread.call_soon(self._subscription.confirm_many, self._seen, count)

    async def _close(self) -> None:
        if self._seen_count and self._seen is not None:
            self._subscription.confirm_many(self._seen, self._seen_count)
            self._seen_count = 0
        await self._subscription.close()


def _count_first(sent: "deque[tuple[list[Entry], Future[Acknowledgement]]]", tally: Tally) -> None:
    batch, future = sent[0]
    answer = future.result()
    sent.popleft()
    tally.add(batch, answer)
