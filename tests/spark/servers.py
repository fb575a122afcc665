"""Servers with a log, and messages in it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.client import HttpClient, NewMessage, Receipt
from tests.support.servers import RunningServer

REQUEST_ROWS = 5_000
"""How many messages go in one request."""


class LogServer:
    """A server that keeps everything it gets, and its HTTP port."""

    def __init__(self, running: RunningServer) -> None:
        self.running = running
        self.address = f"http://127.0.0.1:{running.port_of('http')}"

    def client(self) -> HttpClient:
        """A client of it, to be entered."""
        return HttpClient(self.address)

    def publish(self, messages: Iterable[NewMessage | Mapping[str, Any]]) -> list[Receipt]:
        """Publish messages in their order; they are in the log when this returns."""
        waiting = list(messages)
        with self.client() as client:
            parts = [waiting[at : at + REQUEST_ROWS] for at in range(0, len(waiting), REQUEST_ROWS)]
            return [receipt for part in parts for receipt in client.publish_many(part)]

    def publish_numbers(self, topics: Sequence[str], count: int) -> list[Receipt]:
        """Publish the numbers from 0 on, as JSON, to topics in turn."""
        return self.publish(
            {"topic": topics[number % len(topics)], "data": {"number": number}} for number in range(count)
        )

    @property
    def cursor(self) -> str:
        """Where its log ends now."""
        with self.client() as client:
            return client.position().cursor
