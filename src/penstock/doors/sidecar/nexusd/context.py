"""Shared parts of all methods of NexusD's service: the broker, encodings and the call log."""

import asyncio
from collections.abc import Sequence

from penstock.core.broker import Broker
from penstock.core.replay.message_ids import MessageIds
from penstock.core.runtime.clock import Clock
from penstock.core.sessions.session import Session
from penstock.doors.sidecar.nexusd.events import EventEncodings
from penstock.doors.sidecar.nexusd.stream import Certainty, Stream
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.transport.method import Call
from penstock.doors.sidecar.transport.status import CallLog, refuse
from penstock.errors import NotAuthorized, PenstockError


class Sidecar:
    """One server, as methods see it."""

    def __init__(self, settings: SidecarSettings, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.counters = broker.counters
        self.marks = MessageIds(broker.log)
        self.forms = EventEncodings(self.marks, broker.node_id)
        self.streams: dict[str, Stream] = {}
        """By subscription id."""
        self._throttled_log = CallLog(clock, "call refused")
        self.configure(settings)
        broker.notify_withdrawn(self._on_rights_withdrawn)

    def configure(self, settings: SidecarSettings) -> None:
        """Go by other settings for new subscriptions."""
        self.settings = settings
        self.broker.paused.limit = settings.max_paused

    def now_ms(self) -> int:
        """Time in events."""
        return self.clock.wall_us() // 1_000

    def refuse(self, call: Call, error: PenstockError) -> None:
        """End a call with an error that its client can do something about."""
        self.note(call, error)
        refuse(call, error)

    def note(self, call: Call, error: PenstockError) -> None:
        """A call ends with an error."""
        self.counters.actions_forbidden += isinstance(error, NotAuthorized)
        self._throttled_log.write(call, error)

    def fail(self, call: Call) -> None:
        """End a call after an unexpected error."""
        if isinstance(call.handler, Stream):
            call.handler.abandon()
        self._throttled_log.fail(call)

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        """End a call that has lost the right to one of its topics."""
        stream = self.streams.get(session.client_id)
        if stream is not None and stream.session is session:
            stream.pause(Certainty.SEEN, NotAuthorized(f"not allowed to subscribe to {filters[0]} any more"))
