"""A server that goes and comes back at the same address, and whoever else talks to it."""

from pathlib import Path
from typing import Any

import httpx

from tests.support.fork_server import ForkServer
from tests.support.ports import free_port
from tests.support.servers import RunningServer, Settings, start


class Place:
    """A port at which one server after another listens, and the settings that they share."""

    def __init__(self, folder: Path, settings: Settings, forks: ForkServer | None) -> None:
        self._folder = folder
        self._forks = forks
        self._settings = settings
        self._lives = 0
        self.port = free_port()
        self.server = self.start()

    def start(self, port: int | None = None) -> RunningServer:
        """Start the next server, at the same port or at another."""
        self._lives += 1
        folder = self._folder / str(self._lives)
        folder.mkdir(parents=True)
        http = {"port": self.port if port is None else port}
        self.server = start(folder, {**self._settings, "http": http}, (), {}, self._forks)
        return self.server

    def kill(self) -> None:
        """End the server as a crash does."""
        self.server.process.kill()
        self.server.process.wait()

    def close(self) -> None:
        """End the server, if there is one, and check that it was well."""
        if self.server.process.poll() is None:
            self.server.stop()


def publish(server: RunningServer, topic: str, *values: Any) -> list[str]:
    """Publish over HTTP; answer the cursors of the messages."""
    messages = [{"topic": topic, "data": value} for value in values]
    answer = httpx.post(f"{address_of(server)}/api/v1/publish", json=messages, timeout=20, trust_env=False)
    answer.raise_for_status()
    return [receipt["cursor"] for receipt in answer.json()["receipts"]]


def address_of(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port_of('http')}"
