"""Proxy between a client and its server whose connections can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.waiting import until

CHUNK_BYTES = 65_536


class Cable:
    """Passes bytes on in both directions; the far end can be moved, as when a server restarts elsewhere."""

    def __init__(self, port: int) -> None:
        self.far_port = port
        self.is_plugged = True
        self.connections = 0
        self._passing = asyncio.Event()
        self._passing.set()
        self._ends: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)

    def cut(self) -> None:
        """Break all connections; new ones can be made."""
        for end in self._ends:
            end.transport.abort()

    def unplug(self) -> None:
        """Break all connections, and let no new one come about."""
        self.is_plugged = False
        self.cut()

    def plug(self) -> None:
        """Undo `unplug`."""
        self.is_plugged = True

    def hold(self) -> None:
        """Pass nothing on any more, as if either side had vanished."""
        self._passing.clear()

    def release(self) -> None:
        """Undo `hold`."""
        self._passing.set()

    async def close(self) -> None:
        """Take it away."""
        self.release()
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        await until(lambda: not self._ends, "a connection is still open")

    async def _join(self, near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
        self._ends.add(near_end)
        try:
            if not self.is_plugged:
                near_end.transport.abort()
                return
            far, far_end = await asyncio.open_connection("127.0.0.1", self.far_port)
            self._ends.add(far_end)
            self.connections += 1
            await asyncio.gather(self._pass_on(near, far_end), self._pass_on(far, near_end))
            self._ends.discard(far_end)
        except OSError:  # nobody at the far end
            near_end.transport.abort()
        finally:
            self._ends.discard(near_end)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Until either side is gone."""
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                await self._passing.wait()
                target.write(data)
                await target.drain()
        target.transport.abort()


@asynccontextmanager
async def cable_to(port: int) -> AsyncIterator[Cable]:
    """A cable whose far end is a port of this machine."""
    cable = Cable(port)
    await cable.open()
    try:
        yield cable
    finally:
        await cable.close()
