"""What the server of a test can be asked at once, by tests that run in a loop and by all others."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.testing.running import inspection
from penstock.testing.running.ports import port_in
from penstock.testing.running.restartable import Restartable
from penstock.testing.running.side_effects import Event

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.client import HttpClient, LedgerRow, Message

T = TypeVar("T")

LOOK_EVERY_S = 0.005
WAIT_S = 10.0
"""How long is waited for something unless a test says how long."""


class BaseServer:
    """A server in this process. Any thread may ask; each answer takes about as long as a function call."""

    def __init__(self, inner: Restartable) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        where = " ".join(self.addresses) if self.is_running else "not running"
        return f"<penstock.testing.server: {where}>"

    # Where it is

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._inner.is_running

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses it listens on, as `penstock serve` prints them."""
        return self._inner.addresses

    @property
    def mqtt_port(self) -> int:
        """The port of MQTT over TCP."""
        return port_in(self._inner.address_of("mqtt"))

    @property
    def http_port(self) -> int:
        """The port of the HTTP API, of streams, and of WebSockets."""
        return port_in(self.http_address)

    @property
    def grpc_port(self) -> int:
        """The port of gRPC."""
        return port_in(self._inner.address_of("grpc"))

    @property
    def http_address(self) -> str:
        """The HTTP API, as `http://127.0.0.1:41753`."""
        return self._inner.address_of("http")

    @property
    def websocket_address(self) -> str:
        """The WebSocket of the web door, as `ws://127.0.0.1:41753/ws`."""
        return self.http_address.replace("http", "ws", 1) + "/ws"

    @property
    def grpc_address(self) -> str:
        """What `penstock.connect` takes, as `127.0.0.1:41754`."""
        return self._inner.address_of("grpc").removeprefix("grpc://")

    def http(self, **options: Any) -> "HttpClient":
        """A client of it over HTTP, to be entered with `with`; the options are those of `HttpClient`."""
        from penstock.client import HttpClient  # noqa: PLC0415 - only for who asks for it

        return HttpClient(self.http_address, **options)

    # What happened

    @property
    def events(self) -> deque[Event]:
        """What it logged, newest last: `level`, `event` and what belongs to it. Nothing is printed."""
        return self._inner.events

    def messages(self, filter: str = "#") -> "list[Message]":
        """What was published to the topics of a filter, in order; messages whose time is over are left out.

        Raises:
            LookupError: some of it is gone, because a setting allows no more.
        """
        return self._inner.thread.ask(lambda server: inspection.published(server, filter))

    def subscribers(self, filter: str) -> list[str]:
        """The ids of who is connected and subscribes to a filter; of a topic, of all whom it reaches."""
        return self.call(lambda server: inspection.subscribers(server, filter))

    def drops(self, topic: str | None = None, client_id: str | None = None) -> "list[LedgerRow]":
        """Messages that somebody did not get, and why, oldest first."""
        return self.call(lambda server: inspection.drops(server, topic, client_id))

    def assert_nothing_dropped(self) -> None:
        """Fail if somebody did not get a message, and tell who and why.

        Raises:
            AssertionError: that is so.
        """
        rows = [row for row in self.drops() if not row.topic.startswith("$")]
        if rows:
            raise AssertionError(f"messages were dropped:\n{inspection.describe_drops(rows)}")

    # Faults

    def cut(self) -> int:
        """End all connections at once, without a goodbye; tells how many there were."""
        return self.call(inspection.cut)

    def stalled(self) -> AbstractContextManager[None]:
        """Let the server hang while a `with` lasts: it accepts connections and says nothing."""
        return self._inner.thread.stalled()

    # Inside

    def call(self, work: "Callable[[Server], T]") -> T:
        """Have a function called with the server, in the server's thread; what it finds is not promised."""
        return self._inner.thread.call(work)

    def _too_few_messages(
        self, filter: str, count: int, found: "list[Message]", timeout_s: float
    ) -> TimeoutError:
        return TimeoutError(f"{len(found)} of {count} messages on {filter!r} after {timeout_s} s")

    def _too_few_subscribers(
        self, filter: str, count: int, found: list[str], timeout_s: float
    ) -> TimeoutError:
        there = self.call(inspection.describe_subscribers)
        return TimeoutError(f"{len(found)} of {count} subscribers of {filter!r} after {timeout_s} s: {there}")
