"""The server for tests that run in a loop: the twin of `sync.py`.

What takes a while is awaited here, so that the test's own clients go on meanwhile.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.testing.base import LOOK_EVERY_S, WAIT_S, BaseServer

if TYPE_CHECKING:
    from penstock.client import Client, Message, MqttClient


class AsyncRunningServer(BaseServer):
    """A server in this process, for a test that is a coroutine; see `server`."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """As `RunningServer.start`."""
        await asyncio.to_thread(self._inner.start)

    async def stop(self) -> None:
        """As `RunningServer.stop`."""
        await asyncio.to_thread(self._inner.stop)

    async def restart(self) -> None:
        """As `RunningServer.restart`."""
        await asyncio.to_thread(self._inner.restart)

    async def close(self) -> None:
        """As `RunningServer.close`."""
        await asyncio.to_thread(self._inner.close)

    def connect(self, **options: Any) -> "Client":
        """A client of it, to be entered with `async with`; the options are those of `penstock.connect`."""
        from penstock.client import connect  # noqa: PLC0415 - gRPC takes a moment to load

        return connect(self.grpc_address, **options)

    def mqtt(self, **options: Any) -> "AbstractAsyncContextManager[MqttClient]":
        """A client over MQTT, to be entered with `async with`; the options are those of `MqttClient`."""
        from penstock.client import MqttClient  # noqa: PLC0415 - only for who asks for it

        return MqttClient.connect(port=self.mqtt_port, **options)

    async def wait_for_messages(
        self, filter: str, count: int = 1, timeout_s: float = WAIT_S
    ) -> "list[Message]":
        """As `RunningServer.wait_for_messages`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while len(found := self.messages(filter)) < count:
            if loop.time() >= deadline:
                raise self._too_few_messages(filter, count, found, timeout_s)
            await asyncio.sleep(LOOK_EVERY_S)
        return found

    async def wait_for_subscribers(self, filter: str, count: int = 1, timeout_s: float = WAIT_S) -> list[str]:
        """As `RunningServer.wait_for_subscribers`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while len(found := self.subscribers(filter)) < count:
            if loop.time() >= deadline:
                raise self._too_few_subscribers(filter, count, found, timeout_s)
            await asyncio.sleep(LOOK_EVERY_S)
        return found
