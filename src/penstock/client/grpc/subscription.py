"""Subscription of the gRPC client: iterate over messages, add and remove filters, resume after a loss.

A message counts as processed when the application takes the next one, never earlier: the message that was in
progress during a crash is redelivered. With a `CursorFile` a restarted process resumes after the last
processed message.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from penstock.client.errors import ConnectionLost, NoAnswer, copy_error, error_from_code, is_worth_retrying
from penstock.client.grpc.connection import Connection, call_safely
from penstock.client.grpc.cursors import SAVE_INTERVAL_S, CursorStore
from penstock.client.grpc.dialect import (
    Arrived,
    Dropped,
    Feed,
    FeedEvent,
    FeedOptions,
    PositionLost,
    Replayed,
    Start,
    Withdrawn,
)
from penstock.client.messages import GapNotice, ReceivedMessage, Statement
from penstock.errors import PenstockError

OnGap = Callable[[GapNotice], None]


class Inbox:
    """Queue of messages for the application, and the application's progress as a cursor.

    It has no limit of its own: the credit granted to the server limits it.
    """

    def __init__(self, cursor: str | None) -> None:
        self.cursor = cursor
        """Cursor after all processed messages."""
        self._waiting: deque[ReceivedMessage] = deque()
        self._arrived_cursor = cursor  # after all arrived messages
        self._unconfirmed = 0  # taken, not yet confirmed

    def __len__(self) -> int:
        """Number of waiting messages."""
        return len(self._waiting)

    def put(self, arrived: Arrived) -> None:
        """Queue arrived messages, or only advance the cursor if there are none."""
        before, behind = self._arrived_cursor, arrived.cursor
        runs = arrived.runs
        for index, run in enumerate(runs):
            is_last = index == len(runs) - 1
            self._waiting.extend(run.messages(before, behind if is_last else before))
        self._arrived_cursor = behind
        if not self._waiting and not self._unconfirmed:
            self.cursor = behind

    def take(self) -> ReceivedMessage:
        """The next message; the queue must not be empty."""
        message = self._waiting.popleft()
        self._unconfirmed += 1
        return message

    def take_many(self, limit: int) -> list[ReceivedMessage]:
        """All waiting messages, up to a limit."""
        return [self.take() for _ in range(min(limit, len(self._waiting)))]

    def confirm(self, message: ReceivedMessage, count: int = 1) -> None:
        """Mark `count` taken messages as processed, of which `message` is the last."""
        self._unconfirmed -= count
        self.cursor = message.cursor


class Subscription:
    """Messages of a set of filters, in order.

    ```python
    async with client.subscribe("sensors/#", last=10) as messages:
        async for message in messages:
            print(message.topic, message.payload)
            await messages.add("alarms/#")
    ```

    Iteration ends with `close`, and raises the server's error if the server ended the subscription.

    Args:
        timeout_s: limit for the server to accept filters, including reconnection.
        registry: the set of open subscriptions, of which it is a member while open.
    """

    def __init__(
        self,
        connection: Connection,
        filters: Sequence[str],
        start: Start,
        options: FeedOptions,
        *,
        store: CursorStore | None = None,
        on_gap: OnGap | None = None,
        timeout_s: float | None = None,
        registry: set["Subscription"] | None = None,
    ) -> None:
        self._connection = connection
        self._requested = tuple(filters)
        self._start = start
        self._options = options
        self._store = store
        self._on_gap = on_gap
        self._timeout_s = timeout_s
        self._registry = registry if registry is not None else set()
        self._inbox = Inbox(start.after)
        self._saved = start.after  # content of the store
        self._saved_at = 0.0
        self._current: ReceivedMessage | None = None  # taken, not yet confirmed
        self._changed = asyncio.Event()
        self._is_closed = False
        self._error: PenstockError | None = None
        self._feed: Feed | None = None
        self._pump: asyncio.Task[None] | None = None
        self.statement: Statement | None = None
        """The server's statement about the last replay: messages served, and what is missing."""
        self.dropped = 0
        """Messages that the server dropped because the application was too slow."""

    # Lifecycle

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Subscribe; `async with` does it.

        Raises:
            NoAnswer: no response in time.
            PenstockError: the server refused it.
        """
        if self._feed is not None or self._is_closed:
            raise ConnectionLost("a subscription can be opened only once")
        try:
            async with self._in_time():
                dialect, _ = await self._connection.ready()
                self._feed = dialect.feed(self._options)
                self._registry.add(self)
                self._pump = asyncio.create_task(self._receive_all(self._feed))
                await self._add(self._feed, self._requested, self._start)
            self._save_cursor(force=True)  # otherwise a crash during the first message would skip it
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Unsubscribe. With a saved cursor, unprocessed messages are redelivered."""
        self._is_closed = True
        self._changed.set()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        self._registry.discard(self)
        self._save_cursor(force=True)

    # Messages

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._current is not None:
            self.confirm()
        if not self._inbox:
            await self._wait_message()
        self._current = message = self._inbox.take()
        return message

    async def receive(self, timeout_s: float | None = None) -> ReceivedMessage:
        """The next message.

        Raises:
            TimeoutError: no message in time.
            ConnectionLost: the subscription was closed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self)
        except StopAsyncIteration:
            raise ConnectionLost("the subscription was closed") from None

    def confirm(self) -> None:
        """Mark the last message as processed; taking the next one does so too."""
        message, self._current = self._current, None
        if message is not None:
            self.confirm_many(message, 1)

    async def take_many(self, limit: int, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Waiting messages, at least one; `confirm_many` marks them as processed.

        Raises:
            TimeoutError: no message in time.
            StopAsyncIteration: the subscription was closed.
        """
        if not self._inbox:
            async with asyncio.timeout(timeout_s):
                await self._wait_message()
        return self._inbox.take_many(limit)

    def confirm_many(self, message: ReceivedMessage, count: int) -> None:
        """Mark `count` messages as processed, of which `message` is the last."""
        self._inbox.confirm(message, count)
        if self._feed is not None:
            self._feed.taken(count)
        self._save_cursor()

    def __len__(self) -> int:
        """Number of waiting messages."""
        return len(self._inbox)

    @property
    def cursor(self) -> str | None:
        """Cursor after all processed messages: pass it as `after` to resume from here, at any door."""
        return self._inbox.cursor

    # Filters

    @property
    def filters(self) -> tuple[str, ...]:
        """The subscribed filters."""
        return self._feed.filters if self._feed is not None else self._requested

    async def add(
        self, *filters: str, after: str | None = None, last: int | None = None, retained: bool = False
    ) -> None:
        """Add filters.

        Raises:
            NoAnswer: no response in time; nothing has changed.
            PenstockError: the server refused them; nothing has changed.
        """
        async with self._in_time():
            await self._add(self._opened(), filters, make_start(after, last, retained))

    async def remove(self, *filters: str) -> None:
        """Remove filters; messages in flight may still be delivered."""
        feed = self._opened()
        with self._own_error():
            async with self._in_time():
                await feed.remove(filters)

    async def _add(self, feed: Feed, filters: Sequence[str], start: Start) -> None:
        if not filters or isinstance(filters, str):
            raise ValueError("give at least one filter")
        with self._own_error():
            await feed.add(filters, start)

    @contextlib.contextmanager
    def _own_error(self) -> Iterator[None]:
        """Raise the error that ended the subscription in place of `ConnectionLost`."""
        try:
            yield
        except ConnectionLost:
            if self._error is not None:
                raise copy_error(self._error) from None
            raise

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            raise NoAnswer(f"no response from the server within {self._timeout_s:g} s") from None

    def _opened(self) -> Feed:
        if self._error is not None:
            raise copy_error(self._error)
        if self._feed is None or self._is_closed:
            raise ConnectionLost("the subscription is not open")
        return self._feed

    # Receiving

    async def _wait_message(self) -> None:
        self._save_cursor(force=True)
        while not self._inbox:
            if self._is_closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise copy_error(self._error)
            self._changed.clear()
            await self._changed.wait()

    async def _receive_all(self, feed: Feed) -> None:
        """Receive events, over one connection after another."""
        try:
            while True:
                _, number = await self._connection.ready()
                try:
                    await feed.open()
                    while True:
                        self._on_event(feed, await feed.receive())
                except PenstockError as error:
                    if not is_worth_retrying(error):
                        raise
                    self._connection.report_lost(number, error)
        except PenstockError as error:
            self._error = error
        except Exception as unforeseen:
            self._error = PenstockError(f"unexpected error in the subscription: {unforeseen!r}")
        finally:
            await feed.close()
            self._changed.set()

    def _on_event(self, feed: Feed, event: FeedEvent) -> None:
        match event:
            case Arrived():
                self._inbox.put(event)
                self._changed.set()
            case Replayed(filters, statement):
                self.statement = statement
                self._inbox.put(Arrived((), feed.cursor, 0))
                if not statement.is_complete:
                    self._report_gap(make_gap_notice(filters, statement))
            case PositionLost(filters, reason):
                self._report_gap(GapNotice(filters=filters, count=None, reason=reason))
            case Dropped(count, reason):
                self.dropped += count
                self._report_gap(GapNotice(filters=feed.filters, count=count, reason=reason))
            case Withdrawn(filters, code):
                self._report_gap(GapNotice(filters=filters, count=None, reason=code))
                if not feed.filters:
                    raise error_from_code(code, f"the server has removed {', '.join(filters)}")

    def _report_gap(self, notice: GapNotice) -> None:
        if self._on_gap is not None:
            call_safely(self._on_gap, notice)

    def _save_cursor(self, *, force: bool = False) -> None:
        store, cursor = self._store, self._inbox.cursor
        if store is None or cursor is None or cursor == self._saved:
            return
        now = asyncio.get_running_loop().time()
        if force or now - self._saved_at >= getattr(store, "every_s", SAVE_INTERVAL_S):
            store.save(cursor)
            self._saved, self._saved_at = cursor, now


def make_start(after: str | None, last: int | None, retained: bool) -> Start:
    """Start of a subscription from its arguments.

    Raises:
        ValueError: the arguments contradict one another.
    """
    if after is not None and last is not None:
        raise ValueError("give either `after` or `last`, not both")
    if retained and (after is not None or last is not None):
        raise ValueError("`retained` cannot be combined with `after` or `last`")
    if last is not None and last < 0:
        raise ValueError(f"`last` must not be negative: {last}")
    return Start(after, last, retained)


def make_gap_notice(filters: tuple[str, ...], statement: Statement) -> GapNotice:
    """Summary of an incomplete statement."""
    known = [each.last - each.first + 1 if each.first is not None else None for each in statement.missing]
    count = None if statement.gaps or None in known else sum(each for each in known if each is not None)
    reasons = [each.reason for each in statement.missing] + [each.reason for each in statement.gaps]
    return GapNotice(
        filters=filters, count=count, reason=",".join(dict.fromkeys(reasons)), statement=statement
    )
