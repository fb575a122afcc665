"""How a server is seen while something is done to it: a witness who uses it, and what it costs."""

import asyncio
from types import TracebackType
from typing import Self

from penstock.client import MqttClient
from tests.support.servers import COMPLAINT, RunningServer
from tests.support.waiting import until

MIB = 1024 * 1024
PAUSE_S = 0.002
PATIENCE_S = 20.0


class Witness:
    """A client that publishes and receives all the time, and must lose nothing and keep its order."""

    def __init__(self, server: RunningServer, topic: str = "witness") -> None:
        self._port = server.port
        self._topic = topic
        self._sent = 0
        self._received = 0
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._client = await MqttClient.connect(port=self._port)
        await self._client.subscribe(self._topic, qos=1)
        self._reading = asyncio.create_task(self._read())
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._writing
                await until(
                    lambda: self._received >= self._sent or self._reading.done(),
                    "not all messages came back",
                    timeout_s=120,
                    every_s=PAUSE_S,
                )
        finally:
            self._reading.cancel()
            await self._client.disconnect()
        assert self._received == self._sent > 0

    async def _write(self) -> None:
        while not self._is_over:
            await self._client.publish(self._topic, b"%d" % self._sent, qos=1)
            self._sent += 1
            await asyncio.sleep(PAUSE_S)

    async def _read(self) -> None:
        async for message in self._client.messages:
            assert int(message.payload) == self._received
            self._received += 1


class Costs:
    """What a server needs now, to be compared with what it needs later."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._files = server.open_files
        self._memory = server.memory_bytes

    @property
    def more_bytes(self) -> int:
        """How much memory it has taken since."""
        return self._server.memory_bytes - self._memory

    @property
    def more_files(self) -> int:
        """How many more files and sockets are open now."""
        return self._server.open_files - self._files

    async def are_back(self, files: int = 0) -> None:
        """Wait until no more files are open than before, and check that nobody complained."""
        await until(lambda: self.more_files <= files, "files are still open", timeout_s=PATIENCE_S)
        assert self.more_files == files
        found = COMPLAINT.search(self._server.logged)
        assert found is None, self._server.logged[found.start() :][:2_000]
