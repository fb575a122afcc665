"""Requests and their answers, over topics: one subscription takes the answers to all requests of a client.

What the HTTP API answers is in `answers.py`.
"""

import asyncio
from collections.abc import Callable
from secrets import token_hex

from penstock.client.errors import ConnectionLost, again
from penstock.client.subscription import Subscription
from penstock.client.values import ReceivedMessage
from penstock.errors import PenstockError


class Answers:
    """Takes answers to the topic of one client, and gives each to whoever asked.

    Args:
        subscribe: a subscription to one topic, not open yet.
    """

    def __init__(self, client_id: str, subscribe: Callable[[str], Subscription]) -> None:
        self.topic = f"answers/{_level_of(client_id)}/{token_hex(6)}"
        self._subscribe = subscribe
        self._awaited: dict[bytes, asyncio.Future[ReceivedMessage]] = {}
        self._opening = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many answers are awaited."""
        return len(self._awaited)

    async def open(self) -> None:
        """Listen, if that has not begun, or has ended."""
        async with self._opening:
            if self._listening is None or self._listening.done():
                subscription = self._subscribe(self.topic)
                await subscription.open()
                self._listening = asyncio.create_task(self._listen(subscription))

    def expect(self) -> "tuple[bytes, asyncio.Future[ReceivedMessage]]":
        """A new mark for a request, and its answer when it has come."""
        mark = token_hex(8).encode()
        answer = asyncio.get_running_loop().create_future()
        self._awaited[mark] = answer
        answer.add_done_callback(lambda _: self._awaited.pop(mark, None))
        return mark, answer

    async def close(self) -> None:
        """Listen no more; who still waits gets `ConnectionLost`."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        self._fail(ConnectionLost("the client was closed"))

    async def _listen(self, subscription: Subscription) -> None:
        try:
            async for message in subscription:
                answer = self._awaited.get(message.correlation_id or b"")
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except PenstockError as error:
            self._fail(error)
        finally:
            await subscription.close()

    def _fail(self, error: PenstockError) -> None:
        for answer in list(self._awaited.values()):
            if not answer.done():
                answer.set_exception(again(error))


def _level_of(client_id: str) -> str:
    """A client id as one level of a topic."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in client_id) or "client"
