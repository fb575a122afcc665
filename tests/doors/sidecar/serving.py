"""Whole servers in this process, reached over gRPC."""

import time
from typing import Any

import grpc

from penstock.app import Server
from penstock.core.runtime.clock import SystemClock
from tests.doors.serving import port_of

NO_LIMIT = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


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

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s
