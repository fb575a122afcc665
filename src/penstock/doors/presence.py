"""Who is at a door: let in if there is room, looked at when its deadline comes, waited for at the end."""

import asyncio
import contextlib
from typing import Generic, Protocol, TypeVar

from penstock.core.clock import Clock
from penstock.core.counters import Counters
from penstock.doors.base import Dated, Peer, Wheel
from penstock.doors.guard import Guard, Verdict
from penstock.doors.room import Room


class Visitor(Dated, Protocol):
    """A connection, as far as its presence goes."""

    is_counted: bool
    """By the guard of its address, which is to know when it has gone."""

    @property
    def peer(self) -> Peer: ...

    @property
    def has_arrived(self) -> bool:
        """The guard of its address has counted that it came, before it shook hands."""
        ...

    def abort(self) -> None: ...


V = TypeVar("V", bound=Visitor)


class Presence(Generic[V]):
    """The connections of one door.

    Args:
        guard: what one address may do.
        room: the connections that all doors share.
    """

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop, counters: Counters, guard: Guard, room: Room
    ) -> None:
        self.connections: set[V] = set()
        self.most = room.limit
        self._counters = counters
        self._guard = guard
        self._room = room
        self._room.add(lambda: len(self.connections))
        self._wheel = Wheel(clock, loop)
        self._all_gone = asyncio.Event()

    def limit(self, max_connections: int) -> None:
        """Let in so many from now on; 0 means as many as all doors may have together."""
        self.most = max_connections or self._room.limit

    def has_room(self, coming: int = 0) -> bool:
        """Whether one more may come in, those counted that are still on their way."""
        return len(self.connections) + coming < self.most and not self._room.is_full(coming)

    def admits(self, host: str, coming: int) -> bool:
        """Whether who has to shake hands first may begin: there is room, and its address is not too fast."""
        is_admitted = self.has_room(coming) and self._guard.arrive(host) is Verdict.ADMITTED
        self._counters.connections_refused += not is_admitted
        return is_admitted

    def enter(self, connection: V, deadline: float) -> bool:
        """Take in a connection that was accepted; False if it may not stay, and was cut."""
        if not self.has_room() or self.ask_guard(connection) is not Verdict.ADMITTED:
            self.refuse(connection)
            return False
        self.add(connection, deadline)
        return True

    def add(self, connection: V, deadline: float) -> None:
        """Take in a connection, whatever speaks against it."""
        self.connections.add(connection)
        self._wheel.add(connection, deadline)

    def ask_guard(self, connection: V) -> Verdict:
        """What the guard says of the address of a connection."""
        if not self._guard.is_needed:
            return Verdict.ADMITTED
        verdict = self._guard.enter(connection.peer.host, has_arrived=connection.has_arrived)
        connection.is_counted = verdict is Verdict.ADMITTED
        return verdict

    def refuse(self, connection: V) -> None:
        """Cut a connection that may not stay."""
        self._counters.connections_refused += 1
        connection.abort()

    def leave(self, connection: V) -> bool:
        """A connection has gone; False if it was never in."""
        if connection not in self.connections:
            return False
        self.connections.discard(connection)
        self._wheel.discard(connection)
        if connection.is_counted:
            self._guard.leave(connection.peer.host)
        if not self.connections:
            self._all_gone.set()
        return True

    def watch(self, connection: V, deadline: float) -> None:
        """Look at a connection at a time, if it is still there."""
        if connection in self.connections:
            self._wheel.add(connection, deadline)

    async def wait_until_gone(self, timeout_s: float) -> None:
        """Wait until everybody has gone, but no longer than this."""
        self._all_gone.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout_s)

    def cut_all(self) -> None:
        """End all connections, without a word."""
        for connection in list(self.connections):
            connection.abort()
