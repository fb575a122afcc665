"""Servers for tests: in a thread of their own, on free ports, in memory, with all doors open.

`RunningServer` is for tests without a loop. Its twin for tests that run in a loop awaits what takes a while,
so that the clients of the test continue meanwhile.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.testing.base import LOOK_EVERY_S, WAIT_S, BaseServer, Restartable
from penstock.testing.settings import flatten

if TYPE_CHECKING:
    from penstock.client import Client, Message, MqttClient, SyncClient
    from penstock.core.runtime.clock import Clock


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


def server(*, preset: str | None = None, clock: "Clock | None" = None, **settings: Any) -> "RunningServer":
    """A server for a test, to be entered with `with` or `async with`.

    ```python
    with penstock.testing.server(mqtt={"max_payload_bytes": 100}) as ps:
        with ps.connect() as client:
            client.publish("greetings/world", "hello")
        assert [message.payload for message in ps.messages("greetings/#")] == [b"hello"]
    ```

    Args:
        preset: settings that belong together, as `penstock serve --preset` takes them.
        clock: where the server takes its time from, instead of the machine's clock.
        settings: those of the settings file, in its shape: `data_dir=tmp_path`, `http={"port": "off"}`.

    Raises:
        InvalidConfig: a setting is unknown, or its value is not what it should be.
    """
    return RunningServer(Restartable(dict(flatten(settings)), preset, clock))


class RunningServer(BaseServer):
    """A server in this process; see `server`."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncRunningServer:
        return await self.aio.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aio.close()

    @property
    def aio(self) -> AsyncRunningServer:
        """The same server for a test that runs in a loop, which must not wait for it here."""
        return AsyncRunningServer(self._inner)

    def start(self) -> None:
        """Start it; `with` does it. After a `stop` it is found at the same addresses again.

        Raises:
            InvalidConfig: it cannot be started with these settings.
        """
        self._inner.start()

    def stop(self) -> None:
        """Stop it, as a signal would: connections end with a goodbye, and new ones are refused.

        Without a data directory everything is forgotten. A server that does not run is left alone.

        Raises:
            TimeoutError: it does not stop; the message says what it is at.
        """
        self._inner.stop()

    def restart(self) -> None:
        """Stop it and start it again, at the same addresses."""
        self._inner.restart()

    def close(self) -> None:
        """Stop the server and release its ports; `with` calls this."""
        self._inner.close()

    def connect(self, **options: Any) -> "SyncClient":
        """A client of it, to be entered with `with`; the options are those of `penstock.connect_sync`."""
        from penstock.client import connect_sync  # noqa: PLC0415 - gRPC takes a moment to load

        return connect_sync(self.grpc_address, **options)

    def wait_for_messages(self, filter: str, count: int = 1, timeout_s: float = WAIT_S) -> "list[Message]":
        """Wait until this many messages were published to the topics of a filter; return them.

        Raises:
            TimeoutError: there are fewer.
        """
        deadline = time.monotonic() + timeout_s
        while len(found := self.messages(filter)) < count:
            if time.monotonic() >= deadline:
                raise self._too_few_messages(filter, count, found, timeout_s)
            time.sleep(LOOK_EVERY_S)
        return found

    def wait_for_subscribers(self, filter: str, count: int = 1, timeout_s: float = WAIT_S) -> list[str]:
        """Wait until this many clients subscribe to a filter, or a topic reaches them; return their ids.

        Raises:
            TimeoutError: there are fewer.
        """
        deadline = time.monotonic() + timeout_s
        while len(found := self.subscribers(filter)) < count:
            if time.monotonic() >= deadline:
                raise self._too_few_subscribers(filter, count, found, timeout_s)
            time.sleep(LOOK_EVERY_S)
        return found
