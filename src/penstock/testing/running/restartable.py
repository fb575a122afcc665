"""A server that can be stopped and started again, and is found at the same addresses."""

from collections import deque
from typing import TYPE_CHECKING

from penstock.testing.running.ports import ReservedPorts, port_in, ports_of
from penstock.testing.running.settings import Flat, settings_of
from penstock.testing.running.side_effects import Event
from penstock.testing.running.thread import ServerThread

if TYPE_CHECKING:
    from penstock.core.clock import Clock

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
        """Let it end, if it runs; nobody else gets the ports."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            self._reserved.take(self._settings.host, set(map(port_in, self.addresses)))

    def restart(self) -> None:
        """Let it end, and run it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Let it end, and let go of the ports."""
        try:
            self.stop()
        finally:
            self._reserved.give_back()

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._thread is not None

    @property
    def thread(self) -> ServerThread:
        """Where it runs.

        Raises:
            RuntimeError: it does not.
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
