"""Penstock for asyncio: publish, subscribe, ask, with connections that come back by themselves.

The twin for programs without a loop is `sync.py`; what one can do the other can.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client.answering import Answers
from penstock.client.batches import Publishable, Tally, Window, batches, entry_of, receipt_of
from penstock.client.channels import Channels, File, Tls, credentials_metadata, name_metadata
from penstock.client.connection import Connection, OnState
from penstock.client.cursors import CursorFile
from penstock.client.dialect import Acknowledgement, Dialect, Entry, FeedOptions
from penstock.client.errors import ConnectionLost, ConnectionRefused, NoAnswer
from penstock.client.gathering import gather
from penstock.client.reconnection import Reconnection, is_worth_a_try
from penstock.client.subscription import OnGap, Subscription, start_of
from penstock.client.values import (
    ClientState,
    Explanation,
    Outgoing,
    Peer,
    PublishReceipt,
    PublishSummary,
    ReceivedMessage,
)
from penstock.errors import InvalidRequest, PenstockError

T = TypeVar("T")


def connect(
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
) -> "Client":
    """A client of a server, to be entered with `async with`.

    ```python
    async with penstock.connect("localhost:5672") as client:
        await client.publish("greetings/world", "hello")
    ```

    Args:
        user: a name of the server's password file; without one, whoever may come without.
        client_id: what the log, lists and rules with `%c` call this client; by default the host's name and
            the process's number.
        tls: True, a file with authorities to trust, or a `Tls`; without it nothing is encrypted.
        timeout_s: how long the server may take for an answer, a lost connection included.
        connect_timeout_s: how long the first connection may take, all attempts together; None waits on.
        on_state: called with each new state, and the error that led to it if there was one.
        on_gap: called with a `GapNotice` when messages of a subscription are missing.
    """
    name = client_id if client_id is not None else f"{socket.gethostname()}-{os.getpid()}"
    return Client(
        Channels(address, tls),
        metadata=(*credentials_metadata(user, password), *name_metadata(name)),
        client_id=name,
        reconnection=reconnection,
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        on_state=on_state,
        on_gap=on_gap,
    )


class Client:
    """A client of one server; see `connect`. It belongs to the loop it was opened in."""

    def __init__(
        self,
        channels: Channels,
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
        self._answers = Answers(client_id, self.subscribe)
        self.client_id = client_id

    # Its life

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
            ConnectionRefused: nobody answered in time.
            BadCredentials: the server does not let us in.
        """
        self._connection.open()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connection.ready()
        except TimeoutError:
            await self.close()
            trouble = self._connection.trouble
            raise ConnectionRefused(
                f"nobody answers at {self._channels.target}" + (f": {trouble}" if trouble else "")
            ) from None
        except ConnectionLost as error:
            await self.close()
            raise ConnectionRefused(str(error)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all subscriptions and let go of the connection."""
        async with AsyncExitStack() as last_first:  # each is done, whatever becomes of the others
            last_first.push_async_callback(self._connection.close)
            for subscription in self._subscriptions:
                last_first.push_async_callback(subscription.close)
            last_first.push_async_callback(self._answers.close)

    @property
    def state(self) -> ClientState:
        """How things stand with the server."""
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
        """Publish one message, and wait until the server has it, on disk if it keeps it there.

        With a `message_id` it is tried again when the connection goes meanwhile, and published once.

        Raises:
            ConnectionLost: the connection went, and it is not known whether the message was published.
            NoAnswer: the server did not answer in time; likewise.
            PenstockError: the server did not take it.
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
        entry = entry_of(message)
        return receipt_of(entry, await self.publish_entries([entry]))

    async def publish_many(
        self, messages: Iterable[Publishable] | AsyncIterable[Publishable]
    ) -> PublishSummary:
        """Publish many messages in order, in batches of which few are on their way at once.

        A message is `(topic, payload)` or an `Outgoing`. Those that the server does not take are told in the
        summary, and the others go on.

        ```python
        await client.publish_many(("numbers", str(number)) for number in range(100_000))
        ```

        Raises:
            ConnectionLost: the connection went, and it is not known how many were published; batches whose
                messages all have a `message_id` are tried again instead.
        """
        tally = Tally()
        window = Window(self._start_batch, tally)
        try:
            if isinstance(messages, AsyncIterable):
                async with aclosing(gather(messages)) as gathered:
                    async for batch in gathered:
                        await window.add(batch)
            else:
                for batch in batches(messages):
                    await window.add(batch)
            await window.finish()
        finally:
            await window.close()
        return tally.summary()

    async def publish_entries(self, entries: Sequence[Entry]) -> Acknowledgement:
        """Publish a batch as `batches` makes them, and wait for what became of it."""
        return await self._in_time(self._publish(entries))

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
    ) -> Subscription:
        """A subscription, to be entered with `async with`; then iterate over it.

        Args:
            after: a cursor of any door: go on behind it. A `CursorFile` keeps it over restarts.
            last: begin with so many of the newest messages.
            retained: begin with the retained values.
            buffer: how many messages may be on their way or wait for you; what is more waits at the server.
            policy: what the server does when too many wait there: `drop-oldest`, `drop-newest`, `block` or
                `disconnect`; by default what its settings say.
            on_gap: called when messages are missing, instead of the client's.
        """
        if buffer < 1:
            raise ValueError("a buffer has room for a message at least")
        file = after if isinstance(after, CursorFile) else None
        cursor = file.read() if file is not None else after
        if file is not None and cursor is not None and (last is not None or retained):
            last, retained = None, False  # these are how to begin, and that was done
        return Subscription(
            self._connection,
            filters,
            start_of(cursor if isinstance(cursor, str) else None, last, retained),
            FeedOptions(self.client_id, buffer, policy),
            file=file,
            on_gap=on_gap or self._on_gap,
            timeout_s=self._timeout_s,
            among=self._subscriptions,
        )

    # Asking

    async def request(
        self, topic: str, payload: bytes | str, *, timeout_s: float = 5.0, content_type: str | None = None
    ) -> ReceivedMessage:
        """Publish a request, and wait for the answer to it; many may be on their way at once.

        Raises:
            NoAnswer: none came in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._answers.open()
                mark, answer = self._answers.expect()
                try:
                    await self.publish(
                        topic,
                        payload,
                        content_type=content_type,
                        correlation_id=mark,
                        response_topic=self._answers.topic,
                    )
                    return await answer
                finally:
                    answer.cancel()
        except TimeoutError:
            raise NoAnswer(f"nobody has answered a request to {topic} in {timeout_s:g} s") from None

    async def respond(
        self, request: ReceivedMessage, payload: bytes | str, *, content_type: str | None = None
    ) -> PublishReceipt:
        """Answer a request."""
        if request.response_topic is None:
            raise InvalidRequest("this message does not ask for an answer")
        return await self.publish(
            request.response_topic,
            payload,
            content_type=content_type,
            correlation_id=request.correlation_id,
        )

    async def topics(self) -> dict[str, int]:
        """Topics, and how many subscribers each has."""
        return dict(await self._ask(lambda dialect: dialect.topics()))

    async def peers(self) -> list[Peer]:
        """Other nodes, as the server sees them."""
        return list(await self._ask(lambda dialect: dialect.peers()))

    async def why(self, topic: str, sequence: int, client_id: str | None = None) -> Explanation:
        """Why somebody got a message, or did not; without a client, what became of the message."""
        return await self._ask(lambda dialect: dialect.why(topic, sequence, client_id))

    # Inside

    async def _publish(self, entries: Sequence[Entry]) -> Acknowledgement:
        is_repeatable = all(entry.message_ids for entry in entries)
        while True:
            dialect, number = await self._connection.ready()
            try:
                return await dialect.publish(entries)
            except PenstockError as error:
                if not is_worth_a_try(error):
                    raise
                self._connection.lose(number, error)
                if not is_repeatable:
                    raise

    def _start_batch(self, entries: Sequence[Entry]) -> "asyncio.Task[Acknowledgement]":
        return asyncio.create_task(self.publish_entries(entries))

    async def _ask(self, question: Callable[[Dialect], Coroutine[Any, Any, T]]) -> T:
        """Ask something that changes nothing, and may be asked again."""

        async def asking() -> T:
            while True:
                dialect, number = await self._connection.ready()
                try:
                    return await question(dialect)
                except PenstockError as error:
                    if not is_worth_a_try(error):
                        raise
                    self._connection.lose(number, error)

        return await self._in_time(asking())

    async def _in_time(self, waiting: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiting
        except TimeoutError:
            raise NoAnswer(f"{self._channels.target} has not answered in {self._timeout_s:g} s") from None


def _make_v1(metadata: tuple[tuple[str, str], ...], timeout_s: float) -> Dialect:
    from penstock.client.v1 import V1Dialect  # noqa: PLC0415 - its messages are loaded when they are needed

    return V1Dialect(metadata, timeout_s)


def _make_nexusd(metadata: tuple[tuple[str, str], ...], timeout_s: float) -> Dialect:
    from penstock.client.nexusd import NexusdDialect  # noqa: PLC0415 - few servers need it

    return NexusdDialect(metadata, timeout_s)
