"""The sidecar door: where it listens, and the connections it has."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import structlog

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.core.timeouts import Timed, Timeouts
from penstock.doors.guard import Guard, GuardSettings
from penstock.doors.listener import Listener
from penstock.doors.notes import Notes, shortened
from penstock.doors.presence import Presence
from penstock.doors.room import Room
from penstock.doors.sidecar.admission import Admission
from penstock.doors.sidecar.calls import Methods
from penstock.doors.sidecar.connection import Connection
from penstock.doors.sidecar.http2_call import Deadline
from penstock.doors.sidecar.link import Link
from penstock.doors.sidecar.requests import Request
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.tls import Certificates, names_users
from penstock.errors import InvalidConfig
from penstock.wire.grpc import Status
from penstock.wire.http2 import Limits

if TYPE_CHECKING:
    from penstock.doors.sidecar.offer import Offer

log = structlog.get_logger("penstock.sidecar")

READ_BYTES = 64 * 1024
NOTES_PER_SECOND = 100
CONTROL_FRAMES_PER_S = 2_000
FAR_S = 60.0
"""Deadlines further away are looked at again after so long, so that calls which end before leave no trace."""
PARTING_S = 1.0
"""How long clients without calls may take to see that they should go."""


class SidecarDoor:
    """gRPC over TCP and TLS, on our own HTTP/2.

    Args:
        load: imports and builds what can be called; done when the door opens, because it takes a moment.
    """

    name = "sidecar"

    def __init__(
        self,
        settings: SidecarSettings,
        broker: Broker,
        clock: Clock,
        load: "Callable[[], Offer]",
        *,
        certificates: Certificates | None = None,
        guard: Guard | None = None,
        room: Room | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.counters = broker.counters
        self.tick = broker.tick
        self.loop = asyncio.get_running_loop()
        # One buffer for all connections, because a chunk is taken whole at once.
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.methods: Methods = {}
        self.deadlines = Timeouts(clock, self.loop, self._on_due)
        self.is_reading = False  # what is sent meanwhile leaves when that is done
        self._load = load
        self._offer: Offer | None = None
        self._certificates = certificates
        guard = guard or Guard(GuardSettings(), clock)
        self.admission = Admission(
            broker.access,
            self.loop,
            guard,
            broker.counters,
            is_named_by_certificate=names_users(certificates),
        )
        self._unfinished_bytes = 0
        self._dirty: list[Link] = []
        self.ended = [0] * len(Status)  # calls, by how they ended
        self._will_write = False
        self._notes = Notes(log, clock.monotonic, NOTES_PER_SECOND)
        self._presence: Presence[Link] = Presence(clock, self.loop, self.counters, guard, room or Room())
        self.connections = self._presence.connections
        self._limit(settings)
        self._listeners: list[tuple[str, Listener]] = list(self._plan())

    def _limit(self, settings: SidecarSettings) -> None:
        # A client may cancel all its calls at once, and does if it goes away politely.
        self.limits = Limits(
            streams=settings.max_streams,
            control_frames_per_s=max(CONTROL_FRAMES_PER_S, 2 * settings.max_streams),
        )
        # One message may always be as large as its own limit says.
        self._max_unfinished_bytes = max(
            settings.max_unfinished_bytes, settings.max_message_bytes + READ_BYTES
        )
        self._presence.limit(settings.max_connections)

    def configure(self, settings: SidecarSettings) -> None:
        """Go by other settings: for new calls, or where a connection has its limits, with new ones."""
        self.settings = settings
        self._limit(settings)
        self.admission.is_named_by_certificate = names_users(self._certificates)
        for _, listener in self._listeners:
            listener.timeout_s = settings.connect_timeout_s
        if self._offer is not None:
            self._offer.configure(settings)

    # Opening and closing

    def _plan(self) -> Iterator[tuple[str, Listener]]:
        """A listener for each port that is asked for, with the scheme of its addresses."""
        settings = self.settings
        if settings.port is not None:
            yield "grpc", self._listener("port", settings.port, None)
        if settings.tls_port is not None:
            if self._certificates is None:
                raise InvalidConfig("sidecar.tls_port: there is no tls.certificate_file")
            yield "grpcs", self._listener("tls_port", settings.tls_port, self._certificates)

    def _listener(self, key: str, port: int, secure: Certificates | None) -> Listener:
        return Listener(
            self.loop,
            lambda peer: Connection(self, peer),
            setting=f"sidecar.{key}",
            host=self.settings.host,
            port=port,
            backlog=self.settings.backlog,
            timeout_s=self.settings.connect_timeout_s,
            certificates=secure,
            is_http2=True,
            admit=self._admits if secure is not None else None,
        )

    def _admits(self, host: str) -> bool:
        """Who has to shake hands first may begin, if there is room and its address is not too fast."""
        return self._presence.admits(host, sum(listener.waiting for _, listener in self._listeners))

    @property
    def is_wanted(self) -> bool:
        """Some port was asked for."""
        return bool(self._listeners)

    async def open(self) -> None:
        """Load what can be called, and listen.

        Raises:
            InvalidConfig: an address is in use, or not ours.
        """
        self._offer = self._load()
        self.methods = self._offer.methods
        for _, listener in self._listeners:
            await listener.open()

    async def close(self) -> None:
        """Accept nobody any more, and ask everyone to go when its calls are over."""
        for _, listener in self._listeners:
            listener.close()
        if self._offer is not None:
            self._offer.drain()
        for connection in list(self.connections):
            connection.say_goodbye()

    async def finish(self, timeout: float) -> None:
        """Wait until every connection has gone; cut those that stay."""
        if self._offer is not None:
            self._offer.close()
        for connection in list(self.connections):
            connection.say_goodbye()
        await self._presence.wait_until_gone(min(timeout, PARTING_S))
        for connection in list(self.connections):
            if connection.is_idle:
                connection.leave()
        await self._presence.wait_until_gone(timeout - min(timeout, PARTING_S))
        self._presence.cut_all()
        # So that their calls have ended when the last commit is made:
        await self._presence.wait_until_gone(PARTING_S)
        self.admission.close()

    def addresses(self) -> list[str]:
        """Where clients find it."""
        return [address for scheme, listener in self._listeners for address in listener.addresses(scheme)]

    # Connections

    def on_open(self, connection: Link, deadline: float) -> None:
        """A socket was accepted."""
        self._presence.enter(connection, deadline)

    def on_lost(self, connection: Link) -> None:
        """A socket is gone."""
        self._presence.leave(connection)

    def watch(self, connection: Link, deadline: float) -> None:
        """Look at a connection at a time."""
        self._presence.watch(connection, deadline)

    def hold(self, size: int) -> bool:
        """Count bytes that `max_unfinished_bytes` is for; False if there are too many."""
        self._unfinished_bytes += size
        return size <= 0 or self._unfinished_bytes <= self._max_unfinished_bytes

    def await_deadline(self, timer: Deadline, deadline: float) -> None:
        """End a call at a time on the monotonic clock."""
        self.deadlines.add(timer, min(deadline, self.clock.monotonic() + FAR_S))

    def _on_due(self, who: Timed) -> None:
        timer = cast("Deadline", who)
        call = timer.call
        assert call.deadline is not None
        if call.deadline > self.clock.monotonic():
            self.await_deadline(timer, call.deadline)
        else:
            call.connection.attempt(call, call.expire)

    # Writing

    def write_soon(self, connection: Link) -> None:
        """Something is to be written to a connection, when this turn has brought all that it brings."""
        self._dirty.append(connection)
        if not self._will_write and not self.is_reading:
            self._will_write = True
            self.loop.call_soon(self._write_later)

    def _write_later(self) -> None:
        self._will_write = False
        self.write_all()

    def write_all(self) -> None:
        """Write to all connections what was sent to them."""
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            if connection.is_dirty:  # else it was written meanwhile
                connection.write_out()

    # What happened

    def figures(self) -> dict[str, int]:
        """How many calls have ended, by how they did."""
        return {f"calls_{status.name}": self.ended[status] for status in Status}

    def on_refused(self, connection: Link, request: Request) -> None:
        """A request was not for any method, or not gRPC at all."""
        if request.status is not None:
            self.ended[request.status] += 1
        self.note("call refused", connection, path=shortened(request.path))

    def on_wire_error(self, connection: Link, text: str) -> None:
        """A peer sent bytes that break the protocol."""
        self.counters.wire_errors += 1
        self.note("bad bytes", connection, text)

    def on_failure(self, connection: Link, path: str) -> None:
        """A method has failed in a way that nobody had thought of."""
        self._notes.write_failure("call not carried out", peer=str(connection.peer), path=shortened(path))

    def note(self, event: str, connection: Link, detail: str = "", **about: str) -> None:
        """One line in the program's log, unless there are too many."""
        self._notes.write(event, peer=str(connection.peer), **about, detail=shortened(detail))
