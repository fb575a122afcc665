"""A server that is killed and comes back at the same address."""

from pathlib import Path

from tests.spark.servers import LogServer
from tests.support.ports import free_port
from tests.support.servers import RunningServer, Settings, start


class Phoenix:
    """One data directory and one address, and the servers that live there one after another."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self._folder = folder
        self.data = folder / "data"
        self._settings = {
            **(settings or {}),
            "mqtt": {"port": free_port()},
            "http": {"port": free_port()},
            "data_dir": str(self.data),
        }
        self._lives = 0
        self._running: RunningServer | None = None
        self.server = self.rise()

    def rise(self) -> LogServer:
        """Start the next server."""
        self._lives += 1
        folder = self._folder / f"life-{self._lives}"
        folder.mkdir(parents=True)
        self._running = start(folder, self._settings, (), {})
        return LogServer(self._running)

    def kill(self) -> None:
        """End the server by kill -9."""
        assert self._running is not None
        self._running.process.kill()
        self._running.process.wait()

    def stop(self) -> None:
        """End the last server well."""
        assert self._running is not None
        self._running.stop()
