"""Whole servers in this process, reached over gRPC."""

import time
from typing import Any

import grpc

from penstock.app import Server
from penstock.config import Settings
from penstock.core.clock import Clock, SystemClock
from penstock.doors.http.settings import HttpSettings
from penstock.doors.mqtt.settings import MqttSettings
from penstock.doors.sidecar.settings import SidecarSettings
from tests.doors.web.serving import port_of

NO_LIMIT = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Start:
    """Starts servers with settings of their own, on free ports."""

    def __init__(self) -> None:
        self._running: list[Server] = []

    async def __call__(
        self, *, sidecar: SidecarSettings | None = None, clock: Clock | None = None, **settings: Any
    ) -> Server:
        mine = sidecar or SidecarSettings(port=0)
        others = {"mqtt": MqttSettings(port=0), "http": HttpSettings(port=(0,)), "shutdown_timeout_s": 1.0}
        server = Server(Settings(**{**others, **settings, "sidecar": mine}), clock)
        await server.start()
        self._running.append(server)
        return server

    async def stop(self, server: Server) -> None:
        """Stop a server before the test is over."""
        self._running.remove(server)
        await server.stop()

    async def stop_all(self) -> None:
        """Stop whatever still runs."""
        for server in list(self._running):
            await self.stop(server)


def address_of(server: Server) -> str:
    """Where a server is called."""
    return f"127.0.0.1:{port_of(server, 'grpc')}"


def channel_of(server: Server, *options: tuple[str, Any]) -> grpc.aio.Channel:
    """A channel to a server, to be entered."""
    return grpc.aio.insecure_channel(address_of(server), options=(*NO_LIMIT, *options))


class MovableClock(SystemClock):
    """The machine's clock, from which a test can run ahead."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass at once; timers of the loop do not notice."""
        self._ahead_s += seconds

    def wall_us(self) -> int:
        return super().wall_us() + round(self._ahead_s * 1_000_000)

    def monotonic(self) -> float:  # type: ignore[override]
        return time.monotonic() + self._ahead_s
