"""Unsubscribe: a stream ends, for good or until somebody resumes it."""

from penstock.doors.sidecar.calls import Call
from penstock.doors.sidecar.context import Sidecar
from penstock.doors.sidecar.stream import Certainty
from penstock.wire.sidecar.nexusd import UnsubscribeRequest, UnsubscribeResponse

NOT_FOUND = UnsubscribeResponse(success=False, error_message="Subscription not found")


class Unsubscribing:
    """Ends subscriptions, those included whose streams have ended already."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def unsubscribe(self, call: Call, request: UnsubscribeRequest) -> None:
        """End a subscription of the caller's own; others are as unknown as those that are not there."""
        assert call.identity is not None
        id, user, is_found = request.subscription_id, call.identity.user, True
        stream = self._sidecar.streams.get(id)
        if stream is not None and stream.record.user == user:
            if request.pause:
                stream.pause(Certainty.RECEIVED)
            else:
                stream.forget()
        elif self._sidecar.broker.paused.find(id, user) is None:
            is_found = False
        elif not request.pause:
            self._sidecar.broker.paused.forget(id)
        answer = self._found(request) if is_found else NOT_FOUND
        call.answer(answer.SerializeToString())

    def _found(self, request: UnsubscribeRequest) -> UnsubscribeResponse:
        ttl_ms = self._sidecar.settings.paused_ttl_ms if request.pause else 0
        return UnsubscribeResponse(success=True, pause_ttl_ms=ttl_ms)
