"""The events of one subscription: a call at one side, a session of core at the other.

Unless its client unsubscribes for good, the end of a stream is a pause: whoever resumes it gets what was not
sent by then. What was sent may have been on its way when a connection broke; so it is also remembered from
where on a client can have missed something.
"""

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.broker import Arrival
from penstock.core.identity import Identity
from penstock.core.ports import Form
from penstock.core.records import PausedRecord
from penstock.core.sessions import Ending, Session
from penstock.doors.base import Peer
from penstock.doors.sidecar.answers import refuse
from penstock.doors.sidecar.calls import Call, Cause, Handler
from penstock.doors.sidecar.heartbeat import Heartbeat
from penstock.doors.sidecar.received import Received
from penstock.doors.sidecar.seen import newest_of
from penstock.doors.sidecar.warning import Warnings
from penstock.errors import (
    BadCredentials,
    Conflict,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
)
from penstock.model import Door
from penstock.wire.sidecar import nexusd
from penstock.wire.sidecar.events import encode_event

if TYPE_CHECKING:
    from penstock.doors.sidecar.context import Sidecar

RESUMED_ELSEWHERE = Conflict("resumed elsewhere")
ENDINGS: dict[Ending, PenstockError] = {
    Ending.SLOW: QuotaExceeded("too much waited for you; resume to go on from where you are"),
    Ending.UNSTORED: StorageUnavailable("what you were about to get could not be stored"),
    Ending.UNKNOWN: BadCredentials("you are not known any more"),
    Ending.ADMINISTRATIVE: Conflict(
        "an administrator has ended this stream; resume to go on from where you are"
    ),
    Ending.TAKEN_OVER: RESUMED_ELSEWHERE,
    Ending.SHUTTING_DOWN: ShuttingDown("the server is about to stop"),
}


class Certainty(Enum):
    """What is known of what has been sent when a stream ends."""

    RECEIVED = auto()
    """The client has ended it in good order."""
    SEEN = auto()
    """The client wanted no more; it has seen what it says, and of the rest nothing is known."""
    SENT = auto()
    """The connection broke, and with it what was on its way."""


class Stream(Handler):
    """Sends what a subscription brings until one side has had enough.

    Args:
        record: what it would be resumed with if it ended now.
    """

    __slots__ = (
        "_heartbeat",
        "_is_full",
        "_received",
        "_sidecar",
        "_warnings",
        "call",
        "id",
        "record",
        "session",
    )

    _warnings: Warnings
    _received: Received

    def __init__(self, sidecar: "Sidecar", call: Call, subscription_id: str, record: PausedRecord) -> None:
        self.id = subscription_id
        self.record = record
        self._sidecar = sidecar
        self.call = call
        self._heartbeat = Heartbeat(sidecar.loop, sidecar.settings.heartbeat_s, self._beat)
        self.session: Session | None = None
        """None before it is open, and when it is over."""
        self._is_full = False

    def open(self) -> Session:
        """Begin a session; it gets nothing before its client was told so.

        Raises:
            PenstockError: there is no room, or the server is about to stop.
        """
        sidecar, who = self._sidecar, self.call.identity
        assert who is not None
        identity = Identity(who.user, self.id, who.is_certified)
        session, _ = sidecar.broker.connect(Arrival(identity, Door.SIDECAR), self, reform=_same)
        # Its rights are those of the client, by the name that it gives itself if it gives one.
        session.identity = replace(who, client_id=self.record.client_id or who.client_id)
        session.outbox_messages = self.record.max_buffer or None
        session.is_resumable = True
        self.session = session
        self._enter(sidecar.broker.log.epoch)
        self._warnings = Warnings(sidecar, session, self._warn)
        self._received = Received(sidecar, session, self.record.position)
        sidecar.streams[self.id] = self
        self.call.handler = self
        return session

    def _enter(self, epoch: int) -> None:
        record = self.record
        sequences = record.sequences if record.epoch == epoch else {}  # a crash may have taken some of them
        self.record = replace(record, epoch=epoch, sequences=sequences)

    def announce(self, info: nexusd.SubscriptionInfo) -> None:
        """Tell the client that it has subscribed, as the first thing."""
        self._tell(encode_event(subscription_info=info))
        self._heartbeat.start()

    def flow(self) -> None:
        """Let messages come."""
        if self.session is not None:
            self._sidecar.broker.resume(self.session)

    def tell_replayed(self, topic: str, count: int, latest: int) -> None:
        """Tell that the past of a topic has been sent."""
        replay = nexusd.ReplayComplete(topic=topic, replayed_count=count, latest_sequence=latest)
        self._tell(encode_event(replay_complete=replay))

    # Core's sink

    @property
    def peer(self) -> Peer:
        """Where its client is."""
        return self.call.peer

    def write(self, data: bytes) -> None:
        """Send messages; before them, that others were lost."""
        session = self.session
        if session is not None and session.losses is not None:
            self._warn()
        self._send(data)

    def hold(self, *, is_unacknowledged: bool) -> None:
        """It publishes nothing."""

    def release(self) -> None:
        """It publishes nothing."""

    def close(self, reason: str) -> None:
        """Core ends it, and may be in the middle of a delivery."""
        ending, who = Ending(reason), self.call.identity
        assert who is not None
        # Whose password was replaced comes again with the new one, and goes on.
        if ending is Ending.UNKNOWN and not self._sidecar.broker.access.is_known(who):
            self.forget(ENDINGS[ending])
        else:
            self.pause(Certainty.SENT, ENDINGS[ending])

    # The call

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._is_full = True
        if self.session is not None:
            self._sidecar.broker.pause(self.session)

    def resume_writing(self) -> None:
        """The client has caught up with what was sent."""
        self._is_full = False
        self._warn()
        if self.session is not None:
            self._sidecar.broker.unpause(self.session)

    def ended(self, cause: Cause) -> None:
        """The client has gone."""
        is_wish = cause in (Cause.CANCELLED, Cause.DEADLINE)
        self.pause(Certainty.SEEN if is_wish else Certainty.SENT)

    # Endings

    def pause(self, certainty: Certainty, error: PenstockError | None = None) -> None:
        """End the stream so that it can be resumed, for an error or in good order."""
        session = self.session
        if session is None:
            return
        broker = self._sidecar.broker
        broker.paused.pause(self.id, self._record_at(broker.position_of(session), certainty))
        self._end(error)

    def _record_at(self, position: int, certainty: Certainty) -> PausedRecord:
        received = self._received.position if certainty is Certainty.SENT else position
        since = position if certainty is Certainty.RECEIVED else self.record.since
        sequences = self._sequences_at(received)
        return replace(self.record, position=received, since=since, sequences=sequences)

    def _sequences_at(self, position: int) -> dict[str, int]:
        """The last sequences of topics up to a position, if they are known."""
        record, broker = self.record, self._sidecar.broker
        if position == broker.history.head:
            return newest_of(broker, record.filters)
        return record.sequences if position == record.position else {}

    def fail(self, error: PenstockError, record: PausedRecord) -> None:
        """End the stream for an error, so that it can be resumed as if it had not been."""
        if self.session is not None:
            self._sidecar.broker.paused.pause(self.id, record)
            self._end(error)

    def hand_over(self) -> PausedRecord:
        """End the stream because it goes on in another call, with what this answers."""
        assert self.session is not None
        record = self._record_at(self._sidecar.broker.position_of(self.session), Certainty.SENT)
        self._end(RESUMED_ELSEWHERE)
        return record

    def forget(self, error: PenstockError | None = None) -> None:
        """End the stream for good."""
        if self.session is not None:
            self.session.is_resumable = False
            self._sidecar.broker.paused.forget(self.id)
            self._end(error)

    def abandon(self) -> None:
        """It comes to nothing: what is told instead is the affair of whoever began it."""
        if self.session is not None:
            self._leave()

    def _end(self, error: PenstockError | None) -> None:
        self._leave()
        if error is None:
            self.call.finish()
        else:
            refuse(self.call, error)

    def _leave(self) -> None:
        session, self.session = self.session, None
        assert session is not None
        self._heartbeat.stop()
        self._warnings.stop()
        self._received.stop()
        self.call.handler = None
        sidecar = self._sidecar
        del sidecar.streams[self.id]
        sidecar.broker.pause(session)  # what is published from here on cannot reach it
        # Core may be in the middle of a delivery to it.
        sidecar.loop.call_soon(partial(sidecar.broker.disconnect, session, self, is_graceful=True))

    # What is sent

    def _send(self, data: bytes) -> None:
        self._heartbeat.note_sent()
        self.call.send(data)

    def _tell(self, event: bytes) -> None:
        """Send something that is no message."""
        self._sidecar.counters.control_packets_sent += 1
        self._send(event)

    def _beat(self) -> None:
        if not self._is_full:
            heartbeat = nexusd.Heartbeat(timestamp_ms=self._sidecar.now_ms())
            self._tell(encode_event(heartbeat=heartbeat))

    def _warn(self) -> None:
        if self._is_full or self.session is None:
            return
        warning = self._warnings.take()
        if warning is not None:
            self._tell(warning)


def _same(form: Form) -> Form:
    return form
