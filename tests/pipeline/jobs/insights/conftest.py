"""A whole server in this process, whose clock tests can set."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.app import Server
from penstock.config import Settings
from penstock.core.clock import SystemClock
from penstock.doors.http.settings import HttpSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.model import Reason
from penstock.testing import make_run
from tests.doors.web.serving import EVERYTHING, port_of
from tests.pipeline.servers import LogServer

T = TypeVar("T")


class MovedClock(SystemClock):
    """A clock that nearly stands still until it is set forward, so that windows do not depend on the hour."""

    def __init__(self) -> None:
        self.now_us = round(datetime(2026, 3, 1, 11, 0, 5, tzinfo=UTC).timestamp()) * 1_000_000

    def wall_us(self) -> int:
        self.now_us += 1
        return self.now_us


class MovedServer(LogServer):
    """A server with a log, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._clock = MovedClock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(folder), self._loop).result()
        self.address = f"http://127.0.0.1:{port_of(self._server, 'http')}"

    async def _start(self, folder: Path) -> Server:
        settings = Settings(
            mqtt=MqttSettings(port=0),
            http=HttpSettings(port=(0,)),
            sidecar=SidecarSettings(port=None),
            data_dir=str(folder),
            log=EVERYTHING,
            shutdown_timeout_s=1.0,
        )
        server = Server(settings, self._clock)
        await server.start()
        return server

    def advance(self, seconds: float) -> None:
        """Let its clock be later."""
        self._clock.now_us += round(seconds * 1_000_000)

    def lose(self, topic: str, count: int, reason: Reason) -> None:
        """Let it find that messages of a topic did not reach somebody, and tell of it."""
        self._do(lambda: self._server.broker.ledger.add(make_run(topic, *[b"x"] * count), "slow", reason))
        self._do(self._server.broker.reap)

    def _do(self, work: Callable[[], T]) -> T:
        async def do() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()

    def stop(self) -> None:
        """End it, and its thread."""
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def moved_server(tmp_path: Path) -> Iterator[MovedServer]:
    """A server whose clock can be set."""
    server = MovedServer(tmp_path / "data")
    yield server
    server.stop()
