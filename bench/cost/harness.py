"""Harness without sockets: a real server, transports that swallow bytes, and a stopwatch of CPU time.

Connections get bytes as a socket would give them. What they write is kept until the round is over and then
counted, so a round that lost or doubled a message fails instead of looking fast.
"""

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, cast

import uvloop

from bench.errors import BenchError
from penstock.app import Server
from penstock.app.garbage import THRESHOLDS
from penstock.config import load
from penstock.net.turn_shares import TurnShares

CALIBRATIONS = 2_000
PEER = ("127.0.0.1", 1)
AHEAD_S = 3_600.0
"""Lead of the stepped time, so that no deadline set by it has passed."""
STEP_S = 0.001
"""Resolution of the loop's time."""
STOP_S = 2.0


class SteppedLoop(uvloop.Loop):
    """Event loop whose time stands still until `pass_time`.

    The server flushes a chunk at once if none came at the same loop time, and others at the end of their
    turn. So a workload decides which of both it measures.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = time.monotonic() + AHEAD_S

    def time(self) -> float:
        return self._now

    def pass_time(self) -> None:
        """Make the next chunk a turn of its own."""
        self._now += STEP_S


class Connectable(Protocol):
    """What a transport needs of a connection, whatever that derives from."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def connection_lost(self, error: Exception | None, /) -> None: ...


class SinkTransport(asyncio.Transport):
    """Transport that is never full and keeps what is written until it is taken."""

    def __init__(self, extra: Mapping[str, object] | None = None) -> None:
        super().__init__({"peername": PEER, **(extra or {})})
        self._written: list[bytes | bytearray | memoryview] = []
        self._protocol: Connectable | None = None
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.append(data)

    def take(self) -> bytes:
        """What was written since the last call."""
        data = b"".join(self._written)
        self._written.clear()
        return data

    def open(self, protocol: Connectable) -> None:
        """Connect a protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.is_closed

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self._protocol is not None:
                asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class AwaitedTransport(SinkTransport):
    """Transport that reports when this many bytes were written."""

    def __init__(self) -> None:
        super().__init__()
        self._missing = 0
        self._complete: asyncio.Future[None] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self._missing -= len(data)
        if self._complete is not None and self._missing <= 0 and not self._complete.done():
            self._complete.set_result(None)

    def expect(self, size_bytes: int) -> asyncio.Future[None]:
        """Done when this many bytes were written from now on."""
        self._missing = size_bytes
        self._complete = asyncio.get_running_loop().create_future()
        return self._complete


class Laps:
    """Stopwatch of this thread's CPU time, by stage; its own cost is subtracted."""

    def __init__(self) -> None:
        self.stages: dict[str, int] = {}
        self._began = 0
        self._own_ns = 0
        costs = []
        for _ in range(CALIBRATIONS):
            self.start()
            self.stop("")
            costs.append(self.stages.pop(""))
        self._own_ns = sorted(costs)[len(costs) // 2]

    def start(self) -> None:
        """Begin a stage."""
        self._began = time.thread_time_ns()

    def stop(self, stage: str) -> None:
        """End it; a stage may be measured several times, and counts as their sum."""
        took = time.thread_time_ns() - self._began - self._own_ns
        self.stages[stage] = self.stages.get(stage, 0) + took

    def add(self, stage: str, took_ns: int) -> None:
        """Count time that was measured otherwise."""
        self.stages[stage] = self.stages.get(stage, 0) + took_ns

    def take(self) -> dict[str, int]:
        """Nanoseconds by stage since the last call."""
        stages, self.stages = self.stages, {}
        return stages


TOTAL = "total"
"""Stage of a round that is measured as a whole."""


class Workload(Protocol):
    """Work of one case, prepared on a server."""

    count: int
    """Messages or deliveries of a round."""

    async def run(self, laps: Laps) -> None:
        """Make one round, with all of its own work in `TOTAL`, or in stages whose sum is the total."""

    async def run_stages(self, laps: Laps) -> None:
        """Make one round with the time of each stage; nothing if they cannot be separated here."""

    def check(self) -> None:
        """Count what the last round has written.

        Raises:
            BenchError: a message is missing, or one too many.
        """


class Site:
    """A server that no port leads to, on a stepped loop."""

    def __init__(self, server: Server, loop: SteppedLoop) -> None:
        self.server = server
        self.loop = loop
        self._sockets: list[socket.socket] = []

    def connected_socket(self) -> socket.socket:
        """A silent socket, for parts of the server that look whether a peer has hung up."""
        ours, theirs = socket.socketpair()
        self._sockets += ours, theirs
        return ours

    def flush(self) -> None:
        """End the present turn: deliver and acknowledge."""
        self.server.broker.flush()

    def close(self) -> None:
        """Close what was opened for transports."""
        for each in self._sockets:
            each.close()


@asynccontextmanager
async def open_site(**settings: object) -> AsyncIterator[Site]:
    """Build a server as `penstock serve` does, without its listeners and timers."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    server = Server(load(flags={"shutdown_timeout_s": STOP_S, **settings}).settings)
    shares = TurnShares(loop, clock=lambda: 0.0)  # else long input would wait for later turns
    server.mqtt.shares = server.http.shares = server.sidecar.shares = server.socket._shares = shares
    site = Site(server, loop)
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield site
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        await server.stop()
        site.close()


def require_count(what: str, found: int, expected: int) -> None:
    """Raises:
    BenchError: another number than expected.
    """
    if found != expected:
        raise BenchError(f"{found:,} {what}, expected {expected:,}: the figures would be wrong")
