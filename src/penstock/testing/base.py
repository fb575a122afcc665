"""A server that can be stopped and started again, and is found at the same addresses.

What the server of a test can be asked at once, by tests that run in a loop and by all others.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.testing import inspection
from penstock.testing.settings import Flat, ReservedPorts, port_in, ports_of, settings_of
from penstock.testing.thread import Event, ServerThread

if TYPE_CHECKING:
    from penstock.app import Server
    from penstock.client import HttpClient, LedgerRow, Message
    from penstock.core.runtime.clock import Clock


EVENTS_KEPT = 1_000


class Restartable:
    """One server, in one thread after the other.

    Raises:
        InvalidConfig: a setting is unknown, or its value is not what it should be.
    """

    def __init__(self, flat: Flat, preset: str | None, clock: "Clock | None") -> None:
        self._settings = settings_of(flat, preset)
        self._flat = flat
        self._preset = preset
        self._clock = clock
        self._thread: ServerThread | None = None
        self._reserved = ReservedPorts()
        self.addresses: tuple[str, ...] = ()
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)

    def start(self) -> None:
        """Run it, with all doors open."""
        if self._thread is not None:
            raise RuntimeError("the server is running already")
        thread = ServerThread(self._settings, self._clock, self.events.append)
        server = thread.start()
        self._thread = thread
        self._reserved.give_back()
        self._flat = {**self._flat, **ports_of(server)}
        self._settings = settings_of(self._flat, self._preset)
        self.addresses = tuple(address for door in server.doors for address in door.addresses())

    def stop(self) -> None:
        """Stop the server, if it runs; its ports stay reserved."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            self._reserved.take(self._settings.host, set(map(port_in, self.addresses)))

    def restart(self) -> None:
        """Let it end, and run it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and release its ports."""
        try:
            self.stop()
        finally:
            self._reserved.give_back()

    @property
    def is_running(self) -> bool:
        """The server was started and not stopped."""
        return self._thread is not None

    @property
    def thread(self) -> ServerThread:
        """Address of the running server.

        Raises:
            RuntimeError: it does not run.
        """
        if self._thread is None:
            raise RuntimeError("the server is not running")
        return self._thread

    def address_of(self, scheme: str) -> str:
        """The first address with a scheme.

        Raises:
            RuntimeError: there is none.
        """
        found = [address for address in self.addresses if address.startswith(f"{scheme}://")]
        if not found:
            reason = "the settings have closed it" if self.addresses else "the server was not started"
            raise RuntimeError(f"there is no {scheme} port: {reason}")
        return found[0]


T = TypeVar("T")

LOOK_EVERY_S = 0.005
WAIT_S = 10.0
"""Default timeout of waits."""


class BaseServer:
    """Server in this process. Thread-safe; each call takes about as long as a function call."""

    def __init__(self, inner: Restartable) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        where = " ".join(self.addresses) if self.is_running else "not running"
        return f"<penstock.testing.server: {where}>"

    # Where it is

    @property
    def is_running(self) -> bool:
        """The server was started and not stopped."""
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
        """Address for `penstock.connect`, such as `127.0.0.1:41754`."""
        return self._inner.address_of("grpc").removeprefix("grpc://")

    def http(self, **options: Any) -> "HttpClient":
        """A client of it over HTTP, to be entered with `with`; the options are those of `HttpClient`."""
        from penstock.client import HttpClient  # noqa: PLC0415 - only for who asks for it

        return HttpClient(self.http_address, **options)

    # What happened

    @property
    def events(self) -> deque[Event]:
        """Log lines, newest last: `level`, `event` and their values. Nothing is printed."""
        return self._inner.events

    def messages(self, filter: str = "#") -> "list[Message]":
        """Return the messages of a filter in order; expired messages are left out.

        Raises:
            LookupError: some of them are gone, because a setting allows no more.
        """
        return self._inner.thread.ask(lambda server: inspection.published(server, filter))

    def subscribers(self, filter: str) -> list[str]:
        """Return the ids of connected clients that subscribe to a filter, or that a topic reaches."""
        return self.call(lambda server: inspection.subscribers(server, filter))

    def drops(self, topic: str | None = None, client_id: str | None = None) -> "list[LedgerRow]":
        """Return messages that were not delivered, with the reason, oldest first."""
        return self.call(lambda server: inspection.drops(server, topic, client_id))

    def assert_nothing_dropped(self) -> None:
        """Fail if a message was not delivered.

        Raises:
            AssertionError: with client, topic and reason.
        """
        rows = [row for row in self.drops() if not row.topic.startswith("$")]
        if rows:
            raise AssertionError(f"messages were dropped:\n{inspection.describe_drops(rows)}")

    # Faults

    def cut(self) -> int:
        """Drop all connections without a goodbye. Returns their number."""
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
