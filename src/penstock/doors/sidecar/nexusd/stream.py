"""Events of one subscription: a call on one side, a session of core on the other.

Unless its client unsubscribes for good, the end of a stream is a pause: a resume gets what was not sent by
then. Sent messages may have been in transit when a connection broke; so the earliest possible gap is
recorded, too.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.durability.records import PausedRecord
from penstock.core.ports.connection import Encoding
from penstock.core.sessions.session import Ending, Session
from penstock.doors.sidecar.nexusd.client_progress import CertainProgress, newest_of
from penstock.doors.sidecar.nexusd.loss_warnings import LossWarnings
from penstock.doors.sidecar.transport.method import Call, EndCause, Handler
from penstock.doors.sidecar.transport.status import refuse
from penstock.errors import (
    BadCredentials,
    Conflict,
    PenstockError,
    QuotaExceeded,
    ShuttingDown,
    StorageUnavailable,
    UnknownClient,
)
from penstock.model import Door
from penstock.net.door import Peer
from penstock.wire.sidecar.events import encode_event
from penstock.wire.sidecar.messages import nexusd

if TYPE_CHECKING:
    from penstock.doors.sidecar.nexusd.context import Sidecar

RESUMED_ELSEWHERE = Conflict("resumed elsewhere")
ENDINGS: dict[Ending, PenstockError] = {
    Ending.SLOW: QuotaExceeded("slow consumer: too much was queued; resume to continue"),
    Ending.UNSTORED: StorageUnavailable("the next messages could not be stored"),
    Ending.UNKNOWN: BadCredentials("your credentials are not valid any more"),
    Ending.ADMINISTRATIVE: Conflict("ended by an administrator; resume to continue"),
    Ending.SESSION_ENDED: UnknownClient("an administrator has ended this session"),
    Ending.TAKEN_OVER: RESUMED_ELSEWHERE,
    Ending.SHUTTING_DOWN: ShuttingDown("the server is about to stop"),
}


class Certainty(Enum):
    """Progress of a stream at its end."""

    RECEIVED = auto()
    """The client has ended it in good order."""
    SEEN = auto()
    """The client wanted no more; it has seen what it says, and of the rest nothing is known."""
    SENT = auto()
    """The connection broke, and with it what was on its way."""


class Heartbeat:
    """Keepalive of a silent stream. What a stream sends moves no timer, so a busy one costs nothing here.

    Args:
        interval_s: longest silence; 0 for no limit.
        beat: called after that.
    """

    __slots__ = ("_beat", "_interval_s", "_loop", "_sent_at", "_timer")

    def __init__(self, loop: AbstractEventLoop, interval_s: float, beat: Callable[[], None]) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._beat = beat
        self._sent_at = 0.0
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """The stream has begun."""
        self.note_sent()
        if self._interval_s:
            self._look_in(self._interval_s)

    def note_sent(self) -> None:
        """The stream has just sent something."""
        self._sent_at = self._loop.time()

    def stop(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        left_s = self._sent_at + self._interval_s - self._loop.time()
        if left_s > 0:
            self._look_in(left_s)
        else:
            self._look_in(self._interval_s)
            self._beat()


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

    _warnings: LossWarnings
    _received: CertainProgress

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
        """Begin a session; it gets no messages before the subscription is confirmed.

        Raises:
            PenstockError: a limit is reached, or the server is shutting down.
        """
        sidecar, who = self._sidecar, self.call.identity
        assert who is not None
        identity = Identity(who.user, self.id, who.is_certified)
        arrival = Arrival(
            identity,
            Door.SIDECAR,
            rights=replace(who, client_id=self.record.client_id or who.client_id),
            outbox_messages=self.record.max_buffer or None,
            is_resumable=True,
        )
        session, _ = sidecar.broker.connect(arrival, self, reencode=_same)
        self.session = session
        self._enter(sidecar.broker.log.epoch)
        self._warnings = LossWarnings(sidecar, session, self._warn)
        self._received = CertainProgress(sidecar, session, self.record.position)
        sidecar.streams[self.id] = self
        self.call.handler = self
        return session

    def _enter(self, epoch: int) -> None:
        record = self.record
        sequences = record.sequences if record.epoch == epoch else {}  # a crash may have taken some of them
        self.record = replace(record, epoch=epoch, sequences=sequences)

    def announce(self, info: nexusd.SubscriptionInfo) -> None:
        """Confirm the subscription, as the first event."""
        self._send_event(encode_event(subscription_info=info))
        self._heartbeat.start()

    def flow(self) -> None:
        """Let messages come."""
        if self.session is not None:
            self._sidecar.broker.resume(self.session)

    def report_replayed(self, topic: str, count: int, latest: int) -> None:
        """Report that the replay of a topic is complete."""
        replay = nexusd.ReplayComplete(topic=topic, replayed_count=count, latest_sequence=latest)
        self._send_event(encode_event(replay_complete=replay))

    # Connection port of core

    @property
    def peer(self) -> Peer:
        """Address of the client."""
        return self.call.peer

    def write(self, data: bytes) -> None:
        """Send messages; before them, that others were lost."""
        session = self.session
        if session is not None and session.losses is not None:
            self._warn()
        self._send(data)

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """It publishes nothing."""

    def unblock(self) -> None:
        """It publishes nothing."""

    def close(self, reason: str) -> None:
        """Core ends it."""
        if self.session is None:
            return
        broker, ending, who = self._sidecar.broker, Ending(reason), self.call.identity
        assert who is not None
        # A user with a new password reconnects with it, and continues.
        if ending is Ending.UNKNOWN and not broker.access.is_known(who):
            broker.paused.forget(self.id)
        else:
            broker.paused.pause(self.id, self._record_at(broker.position_of(self.session), Certainty.SENT))
        self._let_go()
        refuse(self.call, ENDINGS[ending])

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

    def ended(self, cause: EndCause) -> None:
        """The client has disconnected."""
        is_wish = cause in (EndCause.CANCELLED, EndCause.DEADLINE)
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
        """End the stream because it continues in another call, with this response."""
        assert self.session is not None
        record = self._record_at(self._sidecar.broker.position_of(self.session), Certainty.SENT)
        self._end(RESUMED_ELSEWHERE)
        return record

    def forget(self, error: PenstockError | None = None) -> None:
        """End the stream for good."""
        if self.session is not None:
            self._sidecar.broker.paused.forget(self.id)
            self._end(error, is_final=True)

    def abandon(self) -> None:
        """The stream failed; its caller ends the call."""
        if self.session is not None:
            self._leave()

    def _end(self, error: PenstockError | None, *, is_final: bool = False) -> None:
        self._leave(is_final=is_final)
        if error is None:
            self.call.finish()
        else:
            refuse(self.call, error)

    def _leave(self, *, is_final: bool = False) -> None:
        session = self._let_go()
        self._sidecar.broker.disconnect_soon(session, self, is_final=is_final)

    def _let_go(self) -> Session:
        """Stop everything of this side. Returns the session."""
        session, self.session = self.session, None
        assert session is not None
        self._heartbeat.stop()
        self._warnings.stop()
        self._received.stop()
        self.call.handler = None
        del self._sidecar.streams[self.id]
        return session

    # What is sent

    def _send(self, data: bytes) -> None:
        self._heartbeat.note_sent()
        self.call.send(data)

    def _send_event(self, event: bytes) -> None:
        """Send something that is not a message."""
        self._sidecar.counters.control_packets_sent += 1
        self._send(event)

    def _beat(self) -> None:
        if not self._is_full:
            heartbeat = nexusd.Heartbeat(timestamp_ms=self._sidecar.now_ms())
            self._send_event(encode_event(heartbeat=heartbeat))

    def _warn(self) -> None:
        if self._is_full or self.session is None:
            return
        warning = self._warnings.take()
        if warning is not None:
            self._send_event(warning)


def _same(form: Encoding) -> Encoding:
    return form
