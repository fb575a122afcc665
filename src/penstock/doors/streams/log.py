"""Receiving from the log: every reader has a position of its own, which is its token, and takes nothing away.

A token is a cursor. A reader at the head waits until something is published, and is then answered at once.
"""

import asyncio
from functools import partial

import structlog

from penstock.core.broker import Broker
from penstock.core.cursor import Cursor
from penstock.core.topics import check_topic
from penstock.doors.http.requests import Request
from penstock.doors.streams.answers import Received, ReceivedPage, fail, give, missing_shapes, shape_of
from penstock.doors.streams.pages import Page
from penstock.doors.streams.queries import Asked
from penstock.errors import InvalidRequest, NotAuthorized, PenstockError, WaitTimeout

log = structlog.get_logger("penstock.streams")

READERS = 16
"""How many read at the same time; those who wait at the head do not count."""


class LogPolls:
    """The requests that read the log, or wait for more of it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._history = broker.history
        self._turns = asyncio.Semaphore(READERS)
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds them weakly

    def begin(self, request: Request, asked: Asked) -> None:
        """Read for a request, which is answered later.

        Raises:
            PenstockError: it may not, or its token leads nowhere.
        """
        if not self._broker.log.is_durable:
            raise InvalidRequest("readFromDB needs a server with a data directory")
        check_topic(asked.topic, self._broker.settings.topic)
        self._check_rights(request, asked.topic)
        after = None if asked.token is None else Cursor.decode(asked.token)
        if after is not None:
            self._history.replay((asked.topic,), after)  # of another log, or ahead of this one
        task = asyncio.get_running_loop().create_task(self._answer(request, asked, after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        request.on_gone = partial(_stop, task)

    async def _answer(self, request: Request, asked: Asked, after: Cursor | None) -> None:
        try:
            page = await self._poll(request, asked, after)
            give(request, self._shape(page, is_list=asked.limit is not None))
        except PenstockError as error:
            fail(request, error)
        except Exception:  # a mistake of ours
            log.exception("log not read", topic=asked.topic)
            request.fail_internally()

    async def _poll(self, request: Request, asked: Asked, after: Cursor | None) -> Page:
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
            await self._wait(asked.topic, deadline)  # in the turn in which the page came to the head

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

    def _shape(self, page: Page, *, is_list: bool) -> Received | ReceivedPage:
        token, missing = page.next.encode(), missing_shapes(page.missing)
        shapes = [shape_of(run, index, self._history) for run, index in page.messages]
        if is_list:
            return ReceivedPage(messages=shapes, token=token, missing=missing)
        (shape,) = shapes
        shape.token, shape.missing = token, missing
        return shape


def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
