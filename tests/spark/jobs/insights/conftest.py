"""A whole server in this process, whose clock tests can set."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.app import Server
from penstock.core.runtime.clock import SystemClock
from penstock.model import Reason
from penstock.testing import RunningServer, server
from tests.spark.servers import LogServer
from tests.support.samples import make_run


class MovedClock(SystemClock):
    """A clock that nearly stands still until it is set forward, so that windows do not depend on the hour."""

    def __init__(self) -> None:
        self.now_us = round(datetime(2026, 3, 1, 11, 0, 5, tzinfo=UTC).timestamp()) * 1_000_000

    def wall_us(self) -> int:
        self.now_us += 1
        return self.now_us


class MovedServer(LogServer):
    """A server with a log, and its clock."""

    def __init__(self, inside: RunningServer, clock: MovedClock) -> None:
        self._inside = inside
        self._clock = clock
        self.address = inside.http_address

    def advance(self, seconds: float) -> None:
        """Let its clock be later."""
        self._clock.now_us += round(seconds * 1_000_000)

    def lose(self, topic: str, count: int, reason: Reason) -> None:
        """Let it find that messages of a topic did not reach somebody, and tell of it."""

        def lose(inside: Server) -> None:
            inside.broker.ledger.add(make_run(topic, *[b"x"] * count), "slow", reason)
            inside.broker.reap()

        self._inside.call(lose)


@pytest.fixture
def moved_server(tmp_path: Path) -> Iterator[MovedServer]:
    """A server whose clock can be set."""
    clock = MovedClock()
    everything = {"capture": ["#", "$penstock/#"]}
    with server(clock=clock, data_dir=tmp_path / "data", log=everything, sidecar={"port": "off"}) as inside:
        yield MovedServer(inside, clock)
