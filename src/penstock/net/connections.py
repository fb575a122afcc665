"""Connection registry of a door, and the connection limit that all doors share."""

import asyncio
import contextlib
import resource
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from penstock.core.diagnostics.counters import Counters
from penstock.core.runtime.clock import Clock
from penstock.core.runtime.deadlines import DeadlineChecks, HasDeadline
from penstock.net.address_limits import AddressLimits, Verdict
from penstock.net.door import Peer

FILES_KEPT_FREE = 500
MANY_FILES = 1_000_000


class ConnectionLimit:
    """Limit of all connections of the process, below its file limit; each door adds its own count."""

    def __init__(self, limit: int | None = None) -> None:
        files = _file_limit()
        self.limit = limit or max(files - FILES_KEPT_FREE, files // 2)
        self._counts: list[Callable[[], int]] = []

    def add(self, count: Callable[[], int]) -> None:
        """Count the connections of one more door."""
        self._counts.append(count)

    def is_full(self, coming: int = 0) -> bool:
        """True if the limit is reached, counting those in their handshake."""
        return coming + sum(count() for count in self._counts) >= self.limit


def _file_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(hard, MANY_FILES) if soft == resource.RLIM_INFINITY else soft


class CountedConnection(HasDeadline, Protocol):
    """A connection as the registry sees it."""

    is_counted: bool
    """The address limits have counted it, and need to know when it ends."""

    @property
    def peer(self) -> Peer: ...

    @property
    def has_arrived(self) -> bool:
        """The address limits have counted its arrival, before its handshake."""
        ...

    def abort(self) -> None: ...


V = TypeVar("V", bound=CountedConnection)


class ConnectionRegistry(Generic[V]):
    """The connections of one door: admitted, checked at their deadlines, waited for at shutdown.

    Args:
        address_limits: limits per client address.
        connection_limit: limit of all doors together.
    """

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        address_limits: AddressLimits,
        connection_limit: ConnectionLimit,
    ) -> None:
        self.connections: set[V] = set()
        self.most = connection_limit.limit
        self._counters = counters
        self._address_limits = address_limits
        self._connection_limit = connection_limit
        self._connection_limit.add(lambda: len(self.connections))
        self._checks = DeadlineChecks(clock, loop)
        self._all_gone = asyncio.Event()

    def limit(self, max_connections: int) -> None:
        """Set the limit of this door; 0 means only the limit of all doors."""
        self.most = max_connections or self._connection_limit.limit

    def has_room(self, coming: int = 0) -> bool:
        """True if one more connection fits, counting those in their handshake."""
        return len(self.connections) + coming < self.most and not self._connection_limit.is_full(coming)

    def admits(self, host: str, coming: int) -> bool:
        """True if a handshake may begin: there is room, and its address is not too fast."""
        is_admitted = self.has_room(coming) and self._address_limits.arrive(host) is Verdict.ADMITTED
        self._counters.connections_refused += not is_admitted
        return is_admitted

    def enter(self, connection: V, deadline: float) -> bool:
        """Admit an accepted connection; False if it was refused and aborted."""
        if not self.has_room() or self.check_address(connection) is not Verdict.ADMITTED:
            self.refuse(connection)
            return False
        self.add(connection, deadline)
        return True

    def add(self, connection: V, deadline: float | None = None) -> None:
        """Register a connection without any check."""
        self.connections.add(connection)
        if deadline is not None:
            self._checks.add(connection, deadline)

    def check_address(self, connection: V) -> Verdict:
        """Apply the address limits to a connection."""
        if not self._address_limits.is_needed:
            return Verdict.ADMITTED
        verdict = self._address_limits.enter(connection.peer.host, has_arrived=connection.has_arrived)
        connection.is_counted = verdict is Verdict.ADMITTED
        return verdict

    def refuse(self, connection: V) -> None:
        """Abort a connection that is not admitted."""
        self._counters.connections_refused += 1
        connection.abort()

    def leave(self, connection: V) -> bool:
        """Remove a closed connection; False if it was never admitted."""
        if connection not in self.connections:
            return False
        self.connections.discard(connection)
        self._checks.discard(connection)
        if connection.is_counted:
            self._address_limits.leave(connection.peer.host)
        if not self.connections:
            self._all_gone.set()
        return True

    def watch(self, connection: V, deadline: float) -> None:
        """Check a connection at a time, if it is still open."""
        if connection in self.connections:
            self._checks.add(connection, deadline)

    async def wait_until_gone(self, timeout_s: float) -> None:
        """Wait until every connection is closed, at most this long."""
        self._all_gone.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout_s)

    def cut_all(self) -> None:
        """Abort all connections."""
        for connection in list(self.connections):
            connection.abort()
