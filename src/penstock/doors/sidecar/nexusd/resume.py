"""ResumeSubscribe: a subscription resumes where it was paused, or where its client reports to be.

A client reports the last sequence of each topic that it has seen messages of. Of the others it has seen
nothing since it began if its stream was cut, and everything up to the pause if that was orderly.
"""

from functools import partial

from msgspec.structs import replace

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Statement
from penstock.common.topics import is_wildcard, matches
from penstock.core.durability.records import PausedRecord
from penstock.core.replay.catch_up import AfterSequences
from penstock.core.replay.start import Foresight
from penstock.doors.sidecar.nexusd.client_progress import ReportedSequences, stale_of
from penstock.doors.sidecar.nexusd.context import Sidecar
from penstock.doors.sidecar.nexusd.stream import Stream
from penstock.doors.sidecar.nexusd.subscribe import OPTIONS, filters_of, go_live
from penstock.doors.sidecar.transport.method import Call
from penstock.doors.sidecar.transport.status import error_of
from penstock.errors import InvalidRequest, PenstockError
from penstock.wire.grpc import Status
from penstock.wire.sidecar.messages.nexusd import (
    GAP_RECOVERY_REPLAY_BUFFER,
    GAP_RECOVERY_RETAINED_ONLY,
    GapRecoveryMode,
    ResumeSubscribeRequest,
    SubscriptionInfo,
)

NOT_FOUND = "No paused subscription found"
UNKNOWN_COUNT = -1
MOST_COUNT = 2**31 - 1
"""Largest number of missed messages that can be reported."""


class ResumeMethod:
    """Resumes subscriptions."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._broker = sidecar.broker

    def resume(self, call: Call, request: ResumeSubscribeRequest) -> None:
        """Go on with a subscription of the caller's own.

        Raises:
            PenstockError: something is wrong with the request; the subscription is as it was.
        """
        assert call.identity is not None
        id, user = request.subscription_id, call.identity.user
        live = self._sidecar.streams.get(id)
        if live is not None and live.record.user == user:
            self._check(request, live.record)
            record = live.hand_over()
        elif (found := self._broker.paused.find(id, user)) is not None:
            self._check(request, found)
            record = found
            self._broker.paused.take(id, user)
        else:
            call.finish(Status.NOT_FOUND, NOT_FOUND)
            return
        self._open(Resumption(self._sidecar, request, record), call)

    def _check(self, request: ResumeSubscribeRequest, record: PausedRecord) -> None:
        if request.gap_recovery_mode not in GapRecoveryMode.values():
            raise InvalidRequest(f"there is no gap recovery mode {request.gap_recovery_mode}")
        if request.topics and set(request.topics) != set(record.filters):
            raise InvalidRequest("these are not the topics of that subscription")
        filters_of(record.filters, wildcards=self._sidecar.settings.wildcards)  # which may have changed

    def _open(self, resumption: "Resumption", call: Call) -> None:
        """Begin the stream; what it is to be resumed with next is stored before its first event."""
        record, paused = resumption.record, self._broker.paused
        request = resumption.request
        stale = stale_of(self._broker, record, request.last_sequence_per_topic)
        stream = Stream(self._sidecar, call, request.subscription_id, replace(record, stale=stale))
        try:
            stream.open()
        except Exception:
            paused.pause(stream.id, record)
            raise
        paused.begin(stream.id, stream.record)
        paused.when_stored(partial(resumption.begin, stream))


class Resumption:
    """One subscription on its way back."""

    __slots__ = ("_broker", "_sidecar", "record", "request")

    def __init__(self, sidecar: Sidecar, request: ResumeSubscribeRequest, record: PausedRecord) -> None:
        self._sidecar = sidecar
        self._broker = sidecar.broker
        self.request = request
        self.record = record

    def begin(self, stream: Stream, failure: Exception | None) -> None:
        """After the commit: send messages, from where the request asks."""
        session = stream.session
        if session is None:
            return  # its client has disconnected meanwhile
        try:
            if failure is not None:
                raise error_of(failure)
            if self.request.gap_recovery_mode == GAP_RECOVERY_REPLAY_BUFFER:
                self._replay(stream)
            else:
                self._continue(stream)
        except PenstockError as error:
            self._fail(stream, error)

    def _fail(self, stream: Stream, error: PenstockError) -> None:
        """The resume failed: the subscription is as it was before."""
        self._sidecar.note(stream.call, error)
        stream.fail(error, self.record)

    # Without the past

    def _continue(self, stream: Stream) -> None:
        is_retained = self.request.gap_recovery_mode == GAP_RECOVERY_RETAINED_ONLY
        go_live(self._sidecar, stream, retained=is_retained or self.request.receive_retained)
        stream.announce(self._info())
        stream.flow()

    def _info(self) -> SubscriptionInfo:
        return SubscriptionInfo(
            subscription_id=self.request.subscription_id,
            topics=self.record.filters,
            timestamp_ms=self._sidecar.now_ms(),
        )

    # With the past

    def _replay(self, stream: Stream) -> None:
        stream.flow()  # there is nothing yet that could come before the first event
        assert stream.session is not None
        self._broker.catch_up(
            stream.session,
            self.record.filters,
            OPTIONS,
            self._sidecar.forms.live,
            past_encoding=self._sidecar.forms.past,
            policy=self._sidecar.settings.policy,
            start=self._start(),
            on_begin=partial(self._on_begin, stream),
            on_complete=partial(self._on_complete, stream),
            on_failed=partial(self._fail, stream),
        )

    def _start(self) -> AfterSequences:
        """Return where the replay begins."""
        request, record = self.request, self.record
        seen = ReportedSequences(self._broker, record, request.last_sequence_per_topic)
        offset = record.since if seen.is_something else record.position
        position = Position(self._broker.log.log_id, record.epoch, offset)
        if not seen.is_something and request.last_message_id:
            position = self._sidecar.marks.position_of(request.last_message_id) or position
        passed = record.sequences if position.offset == record.position else {}
        return AfterSequences(seen, record.epoch, Cursor((position,)), passed=passed, older=seen.older)

    def _on_begin(self, stream: Stream, foresight: Foresight | None) -> None:
        info = self._info()
        info.replay_started = True
        if foresight is not None:
            info.gap_detected = foresight.is_gap
            missed = foresight.missed
            info.missed_message_count = UNKNOWN_COUNT if missed is None else min(missed, MOST_COUNT)
        stream.announce(info)

    def _on_complete(self, stream: Stream, statement: Statement) -> None:
        """The replay is complete; further messages are live."""
        served = {each.topic: each.count for each in statement.topics}
        named = [filter for filter in self.record.filters if not is_wildcard(filter)]
        barren = [
            filter
            for filter in self.record.filters
            if is_wildcard(filter) and not any(matches(filter, topic) for topic in served)
        ]
        newest = self._broker.history.newest
        for topic in dict.fromkeys((*named, *served)):
            stream.report_replayed(topic, min(served.get(topic, 0), MOST_COUNT), newest(topic))
        for filter in barren:
            stream.report_replayed(filter, 0, 0)
        if self.request.receive_retained:
            go_live(self._sidecar, stream, retained=True)
