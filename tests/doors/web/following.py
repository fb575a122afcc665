"""Followers of events in the hands of a test: they read `text/event-stream` as browsers do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from penstock.app import Server
from tests.doors.serving import client_of

PATH = "/api/v1/events"


class Event(NamedTuple):
    """One event as a page gets it."""

    name: str
    data: Any
    id: str


class Follower:
    """Reads one answer (HTML standard, 9.2.6)."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.last_id = ""
        self.retry_ms: int | None = None
        self.comments = 0

    async def next(self) -> Event:
        """The next event that a page would be told."""
        while True:
            event = await self.block()
            if event is not None:
                return event

    async def take(self, count: int) -> list[Event]:
        """The next events."""
        return [await self.next() for _ in range(count)]

    async def block(self) -> Event | None:
        """The next block; None if it is none that a page would be told."""
        name, data = "message", []
        async with asyncio.timeout(20):
            while line := await anext(self._lines):
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "id":
                    self.last_id = value
                elif field == "event":
                    name = value
                elif field == "data":
                    data.append(value)
                elif field == "retry":
                    self.retry_ms = int(value)
                else:
                    assert field == "", line
                    self.comments += 1
        return Event(name, json.loads("\n".join(data)), self.last_id) if data else None

    async def is_over(self) -> bool:
        """Whether the answer ends here."""
        async with asyncio.timeout(20):
            return await anext(self._lines, None) is None


@asynccontextmanager
async def follow(
    server: Server, *filters: str, last_id: str | None = None, auth: Any = None, **parameters: Any
) -> AsyncIterator[Follower]:
    """Follow what filters match; when it begins the first block has come, so that nothing is missed."""
    headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
    query = (
        *(("filter", filter) for filter in filters),
        *((key, str(value)) for key, value in parameters.items()),
    )
    async with (
        client_of(server) as client,
        client.stream("GET", PATH, params=query, headers=headers, auth=auth) as response,
    ):
        assert response.status_code == 200, await response.aread()
        follower = Follower(response)
        assert await follower.block() is None  # when to come back, and from where
        yield follower
