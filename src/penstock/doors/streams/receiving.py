"""GET /api/v1/streams/receive: one message for one of those who wait, and for nobody else.

A receive takes its message away. So a caller who has hung up must not get one, nor a web page that could not
read it, nor whoever asks for the head of the answer alone.
"""

from asyncio import get_running_loop
from functools import partial

from penstock.core.broker import Broker
from penstock.core.streams.waits import Handover
from penstock.doors.http.requests import Request
from penstock.doors.streams.answers import fail, give, shape_of
from penstock.doors.streams.log import LogPolls
from penstock.doors.streams.queries import Queries
from penstock.errors import NotAuthorized, PenstockError

FOREIGN = frozenset({"cross-site", "same-site"})
"""What a browser says of a request that a page of another origin makes, where it says so."""


class Receiver:
    """Gives requests the messages that they wait for."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._queries = Queries(broker)
        self._history = broker.history
        self._counters = broker.counters
        self._polls = LogPolls(broker)

    def take(self, request: Request) -> None:
        """Receive for a request; it is answered now or later."""
        if request.reader is None and request.header(b"sec-fetch-site") in FOREIGN:
            raise NotAuthorized("a page of another origin may not receive: see http.cors_origins")
        asked = self._queries.read(request)
        if asked.reads_log:
            self._polls.begin(request, asked)
            return

        def is_here() -> bool:
            is_here = not request.has_left()
            if not is_here:  # later, because a message may be on its way back into its stream
                get_running_loop().call_soon(request.abandon)
            return is_here

        def hand_over(handover: Handover) -> bool:
            if not is_here():
                return False
            give(request, shape_of(handover.run, 0, self._history))
            return True

        miss = partial(self._miss, request)
        wait = self._streams.receive(asked.topic, request.identity, asked.wait_s, hand_over, miss, is_here)
        if wait is not None:
            request.on_gone = wait.cancel

    def _miss(self, request: Request, error: PenstockError) -> None:
        self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)
