"""`penstock.v1.Penstock`: its methods by path, and what its calls share."""

import asyncio
from asyncio import TimerHandle
from collections.abc import Sequence
from functools import partial
from itertools import count
from secrets import token_hex

from penstock.core.broker import Broker
from penstock.core.replay.message_ids import MessageIds
from penstock.core.runtime.clock import Clock
from penstock.core.runtime.deadlines import DeadlineChecks
from penstock.core.sessions.session import Session
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import Call, Methods, Streaming, Unary
from penstock.doors.sidecar.transport.status import CallLog, refuse
from penstock.doors.sidecar.v1.events import DeliveryEncodings
from penstock.doors.sidecar.v1.publishing import PublishCall
from penstock.doors.sidecar.v1.stream import SubscribeStream
from penstock.doors.sidecar.v1.why import Why
from penstock.errors import NotAuthorized, PenstockError, ShuttingDown

NAME = "penstock.v1.Penstock"
LOOK_S = 1.0
"""Interval of the check for warnings."""
MAX_CLIENT_ID = 64
"""Characters of a client's name in the names of its sessions."""


class PenstockService:
    """The `penstock.v1` service."""

    def __init__(self, settings: SidecarSettings, broker: Broker, clock: Clock) -> None:
        self.settings = settings
        self.broker = broker
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.forms = DeliveryEncodings(MessageIds(broker.log))
        self.calls = count(1)
        self._publishers: set[PublishCall] = set()
        self._streams: set[SubscribeStream] = set()
        self._why = Why(self)
        self._throttled_log = CallLog(clock, "refused")  # a request or an entry: the call continues
        self._checks = DeadlineChecks(clock, self.loop)
        self._timer: TimerHandle | None = None
        self._generation = broker.access.generation
        broker.notify_withdrawn(self._on_rights_withdrawn)

    @property
    def methods(self) -> Methods:
        """Methods by path."""
        return {
            f"/{NAME}/Publish": Streaming(partial(PublishCall, self)),
            f"/{NAME}/Subscribe": Streaming(partial(SubscribeStream, self)),
            f"/{NAME}/Why": Unary(self._why.begin),
        }

    def name_session(self, client_id: str) -> str:
        """Return a unique session name that begins with the client's own name."""
        readable = "".join(filter(str.isprintable, client_id[:MAX_CLIENT_ID])) or "anonymous"
        log = self.broker.log
        return f"v1-{log.log_id[:8]}-{log.epoch}-{readable}-{token_hex(6)}"

    def drain(self) -> None:
        """The server is about to stop: end calls that publish when all that they brought is acknowledged."""
        for publisher in list(self._publishers):
            publisher.stop()

    def close(self) -> None:
        """End the calls that still continue; core has ended those that subscribe."""
        for publisher in list(self._publishers):
            publisher.abandon()
        self._why.close()

    # Errors

    def refuse(self, call: Call, error: PenstockError) -> None:
        """End a call with an error that its client can do something about."""
        self.broker.counters.actions_forbidden += isinstance(error, NotAuthorized)
        if not isinstance(error, ShuttingDown):
            self.note(call, error)
        refuse(call, error)

    def note(self, call: Call, error: PenstockError) -> None:
        """Log a refusal."""
        self._throttled_log.write(call, error)

    def fail(self, call: Call) -> None:
        """End a call after an unexpected error."""
        self._throttled_log.fail(call)

    # Open streams

    def add_publisher(self, publisher: PublishCall) -> None:
        """One more publishes."""
        self._publishers.add(publisher)
        self.broker.clients.enter_call(publisher)
        self._look_soon()

    def discard_publisher(self, publisher: PublishCall) -> None:
        """One less."""
        self._publishers.discard(publisher)
        self.broker.clients.leave_call(publisher)
        self._stop_looking()

    def add(self, stream: SubscribeStream) -> None:
        """One more listens."""
        self._streams.add(stream)
        if self.settings.heartbeat_s:
            self._checks.add(stream, self.clock.monotonic() + self.settings.heartbeat_s)
        self._look_soon()

    def discard(self, stream: SubscribeStream) -> None:
        """One less."""
        self._streams.discard(stream)
        self._checks.discard(stream)
        self._stop_looking()

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(LOOK_S, self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None and not self._streams and not self._publishers:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Warn clients that have lost messages and still read; end the calls of unknown users."""
        self._timer = None
        self._look_soon()
        for stream in list(self._streams):  # also streams that have caught up since
            stream.warn_if_due()
        if self._generation != self.broker.access.generation:
            self._generation = self.broker.access.generation
            for publisher in list(self._publishers):
                publisher.check()

    def _stream_of(self, session: Session) -> SubscribeStream | None:
        stream = session.connection
        return stream if isinstance(stream, SubscribeStream) and stream.service is self else None

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        stream = self._stream_of(session)
        if stream is not None:
            stream.on_withdrawn(list(filters), NotAuthorized.code)
