"""gRPC client for asyncio: publish, subscribe and request, with automatic reconnection.

`sync.py` is its blocking twin, with the same methods.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from penstock.client.errors import ConnectionLost, ConnectionRefused, NoAnswer, is_worth_retrying
from penstock.client.grpc.connection import (
    ChannelFactory,
    Connection,
    OnState,
    Reconnection,
    client_id_metadata,
    credentials_metadata,
)
from penstock.client.grpc.cursors import CursorStore
from penstock.client.grpc.dialect import Acknowledgement, Dialect, Entry, FeedOptions
from penstock.client.grpc.publish import (
    Publishable,
    SendWindow,
    SummaryBuilder,
    gather_batches,
    make_batches,
    make_entry,
    make_receipt,
)
from penstock.client.grpc.request import ResponseInbox
from penstock.client.grpc.subscription import OnGap, Subscription, make_start
from penstock.client.messages import (
    ClientState,
    Explanation,
    Outgoing,
    Peer,
    PublishReceipt,
    PublishSummary,
    ReceivedMessage,
)
from penstock.client.payloads import JSON_TYPE, PublishOptions, encode_json
from penstock.client.tls import TlsOption
from penstock.errors import InvalidRequest, PenstockError

T = TypeVar("T")


def connect(
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
) -> "Client":
    """Create a client, to be used with `async with`.

    ```python
    async with penstock.connect("localhost:5672") as client:
        await client.publish("greetings/world", "hello")
    ```

    Args:
        user: name in the server's password file; without one the client is anonymous.
        client_id: name in the log, in lists and in rules with `%c`; default: host name and process id.
        tls: True, a file with trusted authorities, or a `Tls`; default: not encrypted.
        timeout_s: limit for a response of the server, including reconnection.
        connect_timeout_s: limit for the first connection, all attempts together; None for no limit.
        on_state: called with each new state, and the error that caused it, if any.
        on_gap: called with a `GapNotice` when messages of a subscription are missing.
    """
    name = client_id if client_id is not None else f"{socket.gethostname()}-{os.getpid()}"
    return Client(
        ChannelFactory(address, tls),
        metadata=(*credentials_metadata(user, password), *client_id_metadata(name)),
        client_id=name,
        reconnection=reconnection,
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        on_state=on_state,
        on_gap=on_gap,
    )


class Client:
    """Client of one server; see `connect`. Bound to the event loop it is opened in."""

    def __init__(
        self,
        channels: ChannelFactory,
        *,
        metadata: tuple[tuple[str, str], ...],
        client_id: str,
        reconnection: Reconnection,
        timeout_s: float,
        connect_timeout_s: float | None,
        on_state: OnState | None,
        on_gap: OnGap | None,
    ) -> None:
        self._channels = channels
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._on_gap = on_gap
        dialects = [partial(make, metadata, timeout_s) for make in (_make_v1, _make_nexusd)]
        self._connection = Connection(channels, dialects, reconnection, timeout_s, on_state)
        self._subscriptions: set[Subscription] = set()
        self._responses = ResponseInbox(client_id, self.subscribe)
        self.client_id = client_id

    # Lifecycle

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; `async with` does it.

        Raises:
            ConnectionRefused: no connection within `connect_timeout_s`.
            BadCredentials: user or password is wrong.
        """
        self._connection.open()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connection.ready()
        except TimeoutError:
            await self.close()
            cause = self._connection.last_error or "no response in time"
            raise ConnectionRefused(f"no connection to {self._channels.target}: {cause}") from None
        except ConnectionLost as error:
            await self.close()
            raise ConnectionRefused(str(error)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all subscriptions and close the connection."""
        async with AsyncExitStack() as last_first:  # each step runs even if another one fails
            last_first.push_async_callback(self._connection.close)
            for subscription in self._subscriptions:
                last_first.push_async_callback(subscription.close)
            last_first.push_async_callback(self._responses.close)

    @property
    def state(self) -> ClientState:
        """State of the connection."""
        return self._connection.state

    # Publishing

    async def publish(
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
        """Publish one message and wait for the server's receipt; a durable server stores it first.

        With a `message_id` it is retried after a lost connection, and published once.

        Raises:
            ConnectionLost: the connection was lost; the message may have been published.
            NoAnswer: no response in time; the message may have been published.
            PenstockError: the server refused it.
        """
        message = Outgoing(
            topic=topic,
            payload=payload,
            content_type=content_type,
            retain=retain,
            ttl_s=ttl_s,
            correlation_id=correlation_id,
            response_topic=response_topic,
            message_id=message_id,
            properties=tuple(properties),
        )
        entry = make_entry(message)
        return make_receipt(entry, await self.publish_entries([entry]))

    async def publish_json(self, topic: str, value: Any, **options: Unpack[PublishOptions]) -> PublishReceipt:
        """Publish a value as JSON, with the content type `application/json`.

        The value may contain dataclasses, `msgspec.Struct`s, Pydantic models, dates, UUIDs and enums. The
        options are those of `publish`.

        Raises:
            TypeError: a part of the value has no JSON form.
            PenstockError: as `publish` does.
        """
        options.setdefault("content_type", JSON_TYPE)
        return await self.publish(topic, encode_json(value), **options)

    async def publish_many(
        self, messages: Iterable[Publishable] | AsyncIterable[Publishable]
    ) -> PublishSummary:
        """Publish many messages in order, in batches with a limited number in flight.

        A message is `(topic, payload)` or an `Outgoing`. Refused messages are listed in the summary; all
        others are published.

        ```python
        await client.publish_many(("numbers", str(number)) for number in range(100_000))
        ```

        Raises:
            ConnectionLost: the connection was lost; some messages may have been published. Batches whose
                messages all have a `message_id` are retried instead.
        """
        summary = SummaryBuilder()
        window = SendWindow(self._start_batch, summary)
        try:
            if isinstance(messages, AsyncIterable):
                async with aclosing(gather_batches(messages)) as gathered:
                    async for batch in gathered:
                        await window.add(batch)
            else:
                for batch in make_batches(messages):
                    await window.add(batch)
            await window.finish()
        finally:
            await window.close()
        return summary.build()

    async def publish_entries(self, entries: Sequence[Entry]) -> Acknowledgement:
        """Publish one batch, as `make_batches` builds it, and return its acknowledgement."""
        return await self._in_time(self._publish(entries))

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
    ) -> Subscription:
        """Create a subscription: enter it with `async with`, then iterate over it.

        Args:
            after: resume after this cursor, from any door. A `CursorFile`, or
                any `CursorStore`, keeps it across restarts.
            last: start with this many of the newest messages.
            retained: start with the retained values.
            buffer: limit of messages in flight or waiting for the application; the rest queue at the server.
            policy: slow-consumer policy when that queue is full: `drop-oldest`, `drop-newest`, `block` or
                `disconnect`; default: the server's setting.
            on_gap: called when messages are missing, instead of the client's callback.
        """
        if buffer < 1:
            raise ValueError(f"buffer must be at least 1, not {buffer}")
        store = None if after is None or isinstance(after, str) else after
        cursor = after if store is None else store.load()
        if store is not None and cursor is not None and (last is not None or retained):
            last, retained = None, False  # they apply to the first start only
        return Subscription(
            self._connection,
            filters,
            make_start(cursor if isinstance(cursor, str) else None, last, retained),
            FeedOptions(self.client_id, buffer, policy),
            store=store,
            on_gap=on_gap or self._on_gap,
            timeout_s=self._timeout_s,
            registry=self._subscriptions,
        )

    # Requests and reports

    async def request(
        self, topic: str, payload: bytes | str, *, timeout_s: float = 5.0, content_type: str | None = None
    ) -> ReceivedMessage:
        """Publish a request and wait for its response; many requests may be in flight.

        Raises:
            NoAnswer: no response in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._responses.open()
                correlation_id, response = self._responses.expect()
                try:
                    await self.publish(
                        topic,
                        payload,
                        content_type=content_type,
                        correlation_id=correlation_id,
                        response_topic=self._responses.topic,
                    )
                    return await response
                finally:
                    response.cancel()
        except TimeoutError:
            raise NoAnswer(f"no response to the request to {topic} within {timeout_s:g} s") from None

    async def respond(
        self, request: ReceivedMessage, payload: bytes | str, *, content_type: str | None = None
    ) -> PublishReceipt:
        """Publish the response to a request."""
        if request.response_topic is None:
            raise InvalidRequest("the message has no response topic")
        return await self.publish(
            request.response_topic,
            payload,
            content_type=content_type,
            correlation_id=request.correlation_id,
        )

    async def topics(self) -> dict[str, int]:
        """Topics, and the number of subscribers of each."""
        return dict(await self._query(lambda dialect: dialect.topics()))

    async def peers(self) -> list[Peer]:
        """Other nodes, as the server sees them."""
        return list(await self._query(lambda dialect: dialect.peers()))

    async def why(self, topic: str, sequence: int, client_id: str | None = None) -> Explanation:
        """Why a client did or did not get a message; without a client id, for all clients."""
        return await self._query(lambda dialect: dialect.why(topic, sequence, client_id))

    async def _publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        is_idempotent = all(entry.message_ids for entry in entries)
        while True:
            dialect, number = await self._connection.ready()
            try:
                return await dialect.publish(entries)
            except PenstockError as error:
                if not is_worth_retrying(error):
                    raise
                self._connection.report_lost(number, error)
                if not is_idempotent:
                    raise

    def _start_batch(self, entries: Sequence[Entry]) -> "asyncio.Task[Acknowledgement]":
        return asyncio.create_task(self.publish_entries(entries))

    async def _query(self, query: Callable[[Dialect], Coroutine[Any, Any, T]]) -> T:
        """Run a read-only call, again after a lost connection."""

        async def run() -> T:
            while True:
                dialect, number = await self._connection.ready()
                try:
                    return await query(dialect)
                except PenstockError as error:
                    if not is_worth_retrying(error):
                        raise
                    self._connection.report_lost(number, error)

        return await self._in_time(run())

    async def _in_time(self, waiting: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiting
        except TimeoutError:
            raise NoAnswer(f"no response from {self._channels.target} within {self._timeout_s:g} s") from None


def _make_v1(metadata: tuple[tuple[str, str], ...], timeout_s: float) -> Dialect:
    from penstock.client.grpc.v1.dialect import V1Dialect  # noqa: PLC0415 - loads protobuf messages

    return V1Dialect(metadata, timeout_s)


def _make_nexusd(metadata: tuple[tuple[str, str], ...], timeout_s: float) -> Dialect:
    from penstock.client.grpc.nexusd.dialect import NexusdDialect  # noqa: PLC0415 - only for NexusD daemons

    return NexusdDialect(metadata, timeout_s)
