"""POST /api/v1/streams/send: answered when the message is published, or cannot be in time."""

from penstock.core.broker import Broker
from penstock.core.receipts import Receipt
from penstock.doors.http.requests import Request
from penstock.doors.streams.answers import SENT, fail
from penstock.doors.streams.incoming import InvalidForm, read_send
from penstock.errors import NotAuthorized, PenstockError, WaitTimeout


class Sender:
    """Sends what requests bring, and answers them."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._broker = broker
        self._counters = broker.counters

    def take(self, request: Request) -> None:
        """Send the message of a request; it is answered now or later."""

        def done(outcome: Receipt | PenstockError) -> None:
            if isinstance(outcome, PenstockError):
                self._refuse(request, outcome)
            else:
                request.respond(200, SENT)

        try:
            sending = read_send(request, self._broker.settings.streams)
        except InvalidForm as error:
            fail(request, error)
            return
        wait = self._streams.send(sending, done)
        if wait is not None:
            request.on_gone = wait.cancel

    def _refuse(self, request: Request, error: PenstockError) -> None:
        if not isinstance(error, WaitTimeout):  # which has a counter of its own
            self._counters.publishes_refused += 1
            self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)
