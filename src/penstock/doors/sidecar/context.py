"""What all methods of NexusD's service share: the broker, how messages are written, and what is noted."""

import asyncio
from collections.abc import Sequence

from penstock.core.broker import Broker
from penstock.core.clock import Clock
from penstock.core.marks import LogMarks
from penstock.core.sessions import Session
from penstock.doors.sidecar.answers import CallNotes, refuse
from penstock.doors.sidecar.calls import Call
from penstock.doors.sidecar.forms import EventForms
from penstock.doors.sidecar.settings import SidecarSettings
from penstock.doors.sidecar.stream import Certainty, Stream
from penstock.errors import NotAuthorized, PenstockError


class Sidecar:
    """One server, as methods see it."""

    def __init__(self, settings: SidecarSettings, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.counters = broker.counters
        self.marks = LogMarks(broker.log)
        self.forms = EventForms(self.marks, broker.node_id)
        self.streams: dict[str, Stream] = {}
        """By subscription id."""
        self._notes = CallNotes(clock, "call refused")
        self.configure(settings)
        broker.on_rights_withdrawn.append(self._on_rights_withdrawn)

    def configure(self, settings: SidecarSettings) -> None:
        """Go by other settings for new subscriptions."""
        self.settings = settings
        self.broker.paused.limit = settings.max_paused

    def now_ms(self) -> int:
        """The time that events tell."""
        return self.clock.wall_us() // 1_000

    def refuse(self, call: Call, error: PenstockError) -> None:
        """End a call with an error that its client can do something about."""
        self.note(call, error)
        refuse(call, error)

    def note(self, call: Call, error: PenstockError) -> None:
        """A call ends with an error."""
        self.counters.actions_forbidden += isinstance(error, NotAuthorized)
        self._notes.write(call, error)

    def fail(self, call: Call) -> None:
        """End a call that went wrong in a way that nobody had thought of."""
        if isinstance(call.handler, Stream):
            call.handler.abandon()
        self._notes.fail(call)

    def _on_rights_withdrawn(self, session: Session, filters: Sequence[str]) -> None:
        """Whoever may not read all of its topics any more is told, as when it subscribes."""
        stream = self.streams.get(session.client_id)
        if stream is not None and stream.session is session:
            stream.pause(Certainty.SEEN, NotAuthorized(f"not allowed to subscribe to {filters[0]} any more"))
