"""Request and response over topics: one subscription receives the responses to all requests of a client."""

import asyncio
from collections.abc import Callable
from secrets import token_hex

from penstock.client.errors import ConnectionLost, copy_error
from penstock.client.grpc.subscription import Subscription
from penstock.client.messages import ReceivedMessage
from penstock.errors import PenstockError


class ResponseInbox:
    """Receives responses on a topic of one client, and hands each to its request by correlation id.

    Args:
        subscribe: creates a subscription to one topic, not yet open.
    """

    def __init__(self, client_id: str, subscribe: Callable[[str], Subscription]) -> None:
        self.topic = f"answers/{_topic_level(client_id)}/{token_hex(6)}"
        self._subscribe = subscribe
        self._pending: dict[bytes, asyncio.Future[ReceivedMessage]] = {}
        self._opening = asyncio.Lock()
        self._receiving: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Number of pending requests."""
        return len(self._pending)

    async def open(self) -> None:
        """Subscribe to the response topic. Idempotent; subscribes again after the subscription has ended."""
        async with self._opening:
            if self._receiving is None or self._receiving.done():
                subscription = self._subscribe(self.topic)
                await subscription.open()
                self._receiving = asyncio.create_task(self._receive_all(subscription))

    def expect(self) -> "tuple[bytes, asyncio.Future[ReceivedMessage]]":
        """A new correlation id, and the future of the response to it."""
        correlation_id = token_hex(8).encode()
        response = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = response
        response.add_done_callback(lambda _: self._pending.pop(correlation_id, None))
        return correlation_id, response

    async def close(self) -> None:
        """Unsubscribe; pending requests fail with `ConnectionLost`."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait([self._receiving])
        self._fail(ConnectionLost("the client was closed"))

    async def _receive_all(self, subscription: Subscription) -> None:
        try:
            async for message in subscription:
                response = self._pending.get(message.correlation_id or b"")
                if response is not None and not response.done():
                    response.set_result(message)
        except PenstockError as error:
            self._fail(error)
        finally:
            await subscription.close()

    def _fail(self, error: PenstockError) -> None:
        for response in list(self._pending.values()):
            if not response.done():
                response.set_exception(copy_error(error))


def _topic_level(client_id: str) -> str:
    """A client id as one level of a topic."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in client_id) or "client"
