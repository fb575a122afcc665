"""Receive from the log: each reader has its own position, its token, and consumes nothing.

A token is a cursor. A reader at the head waits for the next publish, and then gets its response at once.
"""

import asyncio
from functools import partial

import structlog

from penstock.common.cursor import Cursor
from penstock.common.statement import Missing
from penstock.common.topics import check_topic
from penstock.core.broker import Broker
from penstock.core.replay.history import History
from penstock.core.replay.statement import Chunk
from penstock.doors.streams.parameters import ReceiveQuery
from penstock.doors.streams.responses import fail, give, give_page, missing_shapes, shape_of
from penstock.doors.streams.shapes import Received, ReceivedPage
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, WaitTimeout
from penstock.net.http.request import Request
from penstock.runs import Run

MAX_BYTES = 1 << 20
"""A page with more has no further message."""
USUAL_BYTES = 1024
"""Assumed size of a message, for a first guess at how much to read."""
log = structlog.get_logger("penstock.streams")
READERS = 16
"""Readers at the same time, without those that wait at the head."""


class Page:
    """Up to `limit` messages after a cursor; without one, from the oldest on."""

    def __init__(self, topic: str, limit: int, after: Cursor | None) -> None:
        self._topic = topic
        self._limit = limit
        self._after = after
        self._size = 0
        self._is_full = self._is_at_head = False
        self.messages: list[tuple[Run, int]] = []
        """Runs, and which of their messages are meant."""
        self.missing: list[Missing] = []
        """Gaps between the start and the last of the messages."""

    @property
    def next(self) -> Cursor:
        """Cursor of the next page; known once there is a message."""
        assert self._after is not None
        return self._after

    async def fill(self, history: History) -> None:
        """Read until the page is full, or ends at the head; then its reader may wait from this turn on."""
        self._is_at_head = False
        if self._after is None:
            self._add(await history.since_sequence(self._topic, 0, limit_bytes=self._wanted_bytes), history)
        if self._is_full or self._is_at_head:
            return
        assert self._after is not None
        replay = history.replay((self._topic,), self._after)
        while not (self._is_full or self._is_at_head):
            self._add(await replay.read(self._wanted_bytes), history)

    @property
    def _wanted_bytes(self) -> int:
        """Bytes of the next read: about as much as is still needed."""
        needed = self._limit - len(self.messages)
        return 1 if needed == 1 else min(needed * USUAL_BYTES, MAX_BYTES)

    def _add(self, chunk: Chunk, history: History) -> None:
        said = chunk.statement
        self._after, self._is_at_head = said.next, said.is_at_head
        for run in chunk.runs:
            for index in range(run.count):
                if self._is_full:
                    self._end_before(run, index, said.missing, history)
                    return
                self.messages.append((run, index))
                self._size += run.stride - run.head
                self._is_full = len(self.messages) == self._limit or self._size >= MAX_BYTES
        self.missing += said.missing

    def _end_before(self, run: Run, index: int, missing: tuple[Missing, ...], history: History) -> None:
        """End the page before a message."""
        self._after = history.cursor(run.offset + index - 1)
        self.missing += (each for each in missing if each.last < run.sequence + index)


class LogPolls:
    """The requests that read the log, or wait for more of it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._history = broker.history
        self._turns = asyncio.Semaphore(READERS)
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds them weakly

    def begin(self, request: Request, asked: ReceiveQuery) -> None:
        """Start a read for a request; the response comes later.

        Raises:
            PenstockError: not allowed, or not a valid token.
        """
        if not self._broker.log.is_durable:
            raise InvalidRequest("readFromDB needs a server with a data directory")
        check_topic(asked.topic, self._broker.settings.topic)
        self._check_rights(request, asked.topic)
        after = None if asked.token is None else Cursor.decode(asked.token)
        if after is not None:
            self._history.replay((asked.topic,), after)  # of another log, or ahead of this one
        task = asyncio.get_running_loop().create_task(self._respond(request, asked, after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        request.on_disconnect = partial(_stop, task)

    async def _respond(self, request: Request, asked: ReceiveQuery, after: Cursor | None) -> None:
        try:
            page = await self._poll(request, asked, after)
            if asked.limit is None:
                give(request, self._shape(page), has_position=asked.has_position)
            else:
                give_page(request, self._page_shape(page))
        except PenstockError as error:
            fail(request, error)
        except Exception:  # an error of the server
            log.exception("log not read", topic=asked.topic)
            request.fail_internally()

    async def _poll(self, request: Request, asked: ReceiveQuery, after: Cursor | None) -> Page:
        """The next messages, when there are any.

        Raises:
            WaitTimeout: there were none.
            ShuttingDown: the server is about to stop.
        """
        page = Page(asked.topic, asked.limit or 1, after)
        deadline = asyncio.get_running_loop().time() + asked.wait_s
        while True:
            async with self._turns:
                await page.fill(self._history)
            self._check_rights(request, asked.topic)  # which may be others by now
            if page.messages:
                return page
            await self._wait(asked.topic, deadline)  # in the turn in which the page reached the head

    async def _wait(self, topic: str, deadline: float) -> None:
        streams = self._broker.streams
        streams.check_open()
        if asyncio.get_running_loop().time() >= deadline:
            raise WaitTimeout(f"nothing was published to {topic}")
        news = asyncio.Event()
        wait = streams.when_published(topic, news.set)
        try:
            async with asyncio.timeout_at(deadline):
                await news.wait()
        except TimeoutError:
            raise WaitTimeout(f"nothing was published to {topic}") from None
        finally:
            wait.cancel()

    def _check_rights(self, request: Request, topic: str) -> None:
        access, identity = self._broker.access, request.identity
        if not (access.is_known(identity) and access.may_read(identity, topic)):
            self._broker.counters.actions_forbidden += 1
            raise NotAuthorized(f"not allowed to receive from {topic}")

    def _shape(self, page: Page) -> Received:
        ((run, index),) = page.messages
        shape = self._shape_of(run, index)
        shape.token, shape.missing = page.next.encode(), missing_shapes(page.missing)
        return shape

    def _shape_of(self, run: Run, index: int) -> Received:
        return shape_of(run, index, self._history.cursor(run.offset + index).encode())

    def _page_shape(self, page: Page) -> ReceivedPage:
        shapes = [self._shape_of(run, index) for run, index in page.messages]
        return ReceivedPage(messages=shapes, token=page.next.encode(), missing=missing_shapes(page.missing))


def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
