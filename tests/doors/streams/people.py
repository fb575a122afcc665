"""Those who send and receive, as tests see them: with a client that knows only HTTP."""

from typing import Any
from uuid import uuid4

import httpx

from penstock.app import Server
from penstock.core.streams.stream import Stream
from tests.support.waiting import until

SEND, RECEIVE = "/api/v1/streams/send", "/api/v1/streams/receive"
TIMEOUT = {"error": "long poll waiting timeout"}


class Person:
    """Sends and receives with one HTTP client."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def send(self, stream: str, message: Any, **more: Any) -> httpx.Response:
        """Send a message, with an id of its own if none is given."""
        body = {"streamId": stream, "messageUuid": str(uuid4()), "message": message, **more}
        return await self.http.post(SEND, json=body)

    async def send_all(self, stream: str, *messages: Any, **more: Any) -> None:
        """Send messages that must be taken."""
        for message in messages:
            answer = await self.send(stream, message, **more)
            assert (answer.status_code, answer.json()) == (200, {"errorType": 0}), answer.text

    async def receive(self, stream: str, wait: int = 20, **more: Any) -> httpx.Response:
        """Ask for a message."""
        asked = {"streamId": stream, "timeoutSeconds": wait, **more}
        return await self.http.get(RECEIVE, params=asked)

    async def take(self, stream: str, wait: int = 20, **more: Any) -> Any:
        """A message that must be there, or come."""
        answer = await self.receive(stream, wait, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["message"]

    async def finds_nothing(self, stream: str) -> bool:
        """Whether there is no message now."""
        answer = await self.receive(stream, 0)
        return answer.status_code == 424 and answer.json() == TIMEOUT


async def receivers_wait(server: Server, count: int) -> None:
    """Until so many receives wait."""
    await until(
        lambda: server.broker.streams.counters.receivers_waiting == count,
        "the number of waiting receivers is wrong",
    )


async def senders_wait(server: Server, count: int) -> None:
    """Until so many sends wait."""
    await until(
        lambda: server.broker.streams.counters.senders_waiting == count,
        "the number of waiting senders is wrong",
    )


async def reader_waits(server: Server, stream: str, count: int = 1) -> None:
    """Until so many wait at the head of the log for a message of a stream."""

    def waiting() -> int:
        topic = server.broker.topics.find(stream)
        if topic is None or topic.stream is None:
            return 0
        assert isinstance(topic.stream, Stream)
        return len(topic.stream.watchers or ())

    await until(lambda: waiting() == count, "the number of waiting requests is wrong")
