"""A subscription as an application has it: messages to iterate over, filters to add and remove.

It goes on over lost connections. A message counts as seen when the next one is asked for; with a `CursorFile`
a process that starts again goes on behind the last one it had seen.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from penstock.client.answers import Statement
from penstock.client.connection import Connection, call_back
from penstock.client.cursors import CursorFile
from penstock.client.dialect import (
    Arrived,
    Dropped,
    Feed,
    FeedEvent,
    FeedOptions,
    Forgotten,
    Replayed,
    Start,
    Withdrawn,
)
from penstock.client.errors import ConnectionLost, NoAnswer, again
from penstock.client.inbox import Inbox
from penstock.client.reconnection import is_worth_a_try
from penstock.client.statuses import named_error
from penstock.client.values import GapNotice, ReceivedMessage
from penstock.errors import PenstockError

OnGap = Callable[[GapNotice], None]


class Subscription:
    """Messages of some filters, in order.

    ```python
    async with client.subscribe("sensors/#", last=10) as messages:
        async for message in messages:
            print(message.topic, message.payload)
            await messages.add("alarms/#")
    ```

    Iterating ends when it is closed, and raises what the server said if that ended it.

    Args:
        timeout_s: how long the server may take to agree to filters, a lost connection included.
        among: where it keeps itself while it is open.
    """

    def __init__(
        self,
        connection: Connection,
        filters: Sequence[str],
        start: Start,
        options: FeedOptions,
        *,
        file: CursorFile | None = None,
        on_gap: OnGap | None = None,
        timeout_s: float | None = None,
        among: set["Subscription"] | None = None,
    ) -> None:
        self._connection = connection
        self._wanted = tuple(filters)
        self._start = start
        self._options = options
        self._file = file
        self._on_gap = on_gap
        self._timeout_s = timeout_s
        self._among = among if among is not None else set()  # those that are open
        self._inbox = Inbox(start.after)
        self._written = start.after  # what the file says
        self._written_at = 0.0
        self._current: ReceivedMessage | None = None  # taken, and not confirmed
        self._changed = asyncio.Event()
        self._is_closed = False
        self._error: PenstockError | None = None
        self._feed: Feed | None = None
        self._pumping: asyncio.Task[None] | None = None
        self.statement: Statement | None = None
        """What the server said at the end of the last replay: what was served, and what is missing."""
        self.dropped = 0
        """How many messages the server dropped because they were not taken in time."""

    # Its life

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
            NoAnswer: the server did not answer in time.
            PenstockError: the server does not want it so.
        """
        if self._feed is not None or self._is_closed:
            raise ConnectionLost("a subscription is opened once")
        try:
            async with self._in_time():
                dialect, _ = await self._connection.ready()
                self._feed = dialect.feed(self._options)
                self._among.add(self)
                self._pumping = asyncio.create_task(self._pump(self._feed))
                await self._add(self._feed, self._wanted, self._start)
            self._keep_cursor(is_due=True)  # or who dies with the first message in hand would begin behind it
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Unsubscribe. What was not seen comes again, where a cursor is kept."""
        self._is_closed = True
        self._changed.set()
        if self._pumping is not None:
            self._pumping.cancel()
            await asyncio.wait([self._pumping])
        self._among.discard(self)
        self._keep_cursor(is_due=True)

    # Messages

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._current is not None:
            self.confirm()
        if not self._inbox:
            await self._wait()
        self._current = message = self._inbox.take()
        return message

    async def receive(self, timeout_s: float | None = None) -> ReceivedMessage:
        """The next message.

        Raises:
            TimeoutError: none came in time.
            ConnectionLost: none will come, because the subscription was closed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self)
        except StopAsyncIteration:
            raise ConnectionLost("the subscription was closed") from None

    def confirm(self) -> None:
        """The message that was taken last is dealt with; to ask for the next one says so too."""
        message, self._current = self._current, None
        if message is not None:
            self.confirm_many(message, 1)

    async def take_many(self, limit: int, timeout_s: float | None = None) -> list[ReceivedMessage]:
        """Messages that are there, at least one; `confirm_many` says how far you have come with them.

        Raises:
            TimeoutError: none came in time.
            StopAsyncIteration: none will come, because the subscription was closed.
        """
        if not self._inbox:
            async with asyncio.timeout(timeout_s):
                await self._wait()
        return self._inbox.take_many(limit)

    def confirm_many(self, message: ReceivedMessage, count: int) -> None:
        """So many messages are dealt with; this was the last of them."""
        self._inbox.confirm(message, count)
        if self._feed is not None:
            self._feed.taken(count)
        self._keep_cursor()

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._inbox)

    @property
    def cursor(self) -> str | None:
        """Behind all that was seen: what to give as `after` to go on from here, at any door."""
        return self._inbox.cursor

    # Filters

    @property
    def filters(self) -> tuple[str, ...]:
        """What is subscribed to."""
        return self._feed.filters if self._feed is not None else self._wanted

    async def add(
        self, *filters: str, after: str | None = None, last: int | None = None, retained: bool = False
    ) -> None:
        """Listen to more filters.

        Raises:
            NoAnswer: the server did not answer in time; nothing has changed.
            PenstockError: the server does not want it so; nothing has changed.
        """
        async with self._in_time():
            await self._add(self._opened(), filters, start_of(after, last, retained))

    async def remove(self, *filters: str) -> None:
        """Listen to filters no more; what is on its way may still come."""
        feed = self._opened()
        with self._own_error():
            async with self._in_time():
                await feed.remove(filters)

    async def _add(self, feed: Feed, filters: Sequence[str], start: Start) -> None:
        if not filters or isinstance(filters, str):
            raise ValueError("name at least one filter")
        with self._own_error():
            await feed.add(filters, start)

    @contextlib.contextmanager
    def _own_error(self) -> Iterator[None]:
        """Says why a subscription ended, to who waits for it."""
        try:
            yield
        except ConnectionLost:
            if self._error is not None:
                raise again(self._error) from None
            raise

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            raise NoAnswer(f"the server has not answered in {self._timeout_s:g} s") from None

    def _opened(self) -> Feed:
        if self._error is not None:
            raise again(self._error)
        if self._feed is None or self._is_closed:
            raise ConnectionLost("the subscription is not open")
        return self._feed

    # Inside

    async def _wait(self) -> None:
        """Wait for a message."""
        self._keep_cursor(is_due=True)
        while not self._inbox:
            if self._is_closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise again(self._error)
            self._changed.clear()
            await self._changed.wait()

    async def _pump(self, feed: Feed) -> None:
        """Let messages in, over one connection after another."""
        try:
            while True:
                _, number = await self._connection.ready()
                try:
                    await feed.open()
                    while True:
                        self._on_event(feed, await feed.receive())
                except PenstockError as error:
                    if not is_worth_a_try(error):
                        raise
                    self._connection.lose(number, error)
        except PenstockError as error:
            self._error = error
        except Exception as unforeseen:
            self._error = PenstockError(f"the subscription cannot go on: {unforeseen!r}")
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
                    self._tell(notice_of(filters, statement))
            case Forgotten(filters, reason):
                self._tell(GapNotice(filters=filters, count=None, reason=reason))
            case Dropped(count, reason):
                self.dropped += count
                self._tell(GapNotice(filters=feed.filters, count=count, reason=reason))
            case Withdrawn(filters, code):
                self._tell(GapNotice(filters=filters, count=None, reason=code))
                if not feed.filters:
                    raise named_error(code, f"taken away by the server: {', '.join(filters)}")

    def _tell(self, notice: GapNotice) -> None:
        if self._on_gap is not None:
            call_back(self._on_gap, notice)

    def _keep_cursor(self, *, is_due: bool = False) -> None:
        file, cursor = self._file, self._inbox.cursor
        if file is None or cursor is None or cursor == self._written:
            return
        now = asyncio.get_running_loop().time()
        if is_due or now - self._written_at >= file.every_s:
            file.write(cursor)
            self._written, self._written_at = cursor, now


def start_of(after: str | None, last: int | None, retained: bool) -> Start:
    """From where on to read, if that makes sense."""
    if after is not None and last is not None:
        raise ValueError("either after a cursor or with the last messages, not both")
    if retained and (after is not None or last is not None):
        raise ValueError("retained values come with what is new, not with the past")
    if last is not None and last < 0:
        raise ValueError("the number of last messages is not negative")
    return Start(after, last, retained)


def notice_of(filters: tuple[str, ...], statement: Statement) -> GapNotice:
    """What a statement says is missing, in short."""
    known = [each.last - each.first + 1 if each.first is not None else None for each in statement.missing]
    count = None if statement.gaps or None in known else sum(each for each in known if each is not None)
    reasons = [each.reason for each in statement.missing] + [each.reason for each in statement.gaps]
    return GapNotice(
        filters=filters, count=count, reason=",".join(dict.fromkeys(reasons)), statement=statement
    )
