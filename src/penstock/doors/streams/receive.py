"""GET /api/v1/streams/receive: each message goes to exactly one waiting receiver.

A receive consumes its message. So a client that has disconnected must not get one, nor a web page that
could not read it, nor a HEAD request.
"""

from asyncio import get_running_loop
from functools import partial

from penstock.core.broker import Broker
from penstock.core.streams.waiters import Handover
from penstock.doors.streams.log import LogPolls
from penstock.doors.streams.parameters import Queries
from penstock.doors.streams.responses import fail, give, shape_of
from penstock.errors import NotAuthorized, PenstockError
from penstock.net.http.request import Request

FOREIGN = frozenset({"cross-site", "same-site"})
"""Values of `Sec-Fetch-Site` for pages of other origins."""


class Receiver:
    """Hands messages to waiting requests."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._queries = Queries(broker)
        self._history = broker.history
        self._counters = broker.counters
        self._polls = LogPolls(broker)

    def take(self, request: Request) -> None:
        """Receive for a request; the response comes now or later."""
        if request.reader is None and request.header(b"sec-fetch-site") in FOREIGN:
            raise NotAuthorized("a page of another origin may not receive: see http.cors_origins")
        asked = self._queries.read(request)
        if asked.reads_log:
            self._polls.begin(request, asked)
            return

        def is_here() -> bool:
            is_here = not request.has_hung_up()
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
            request.on_disconnect = wait.cancel

    def _miss(self, request: Request, error: PenstockError) -> None:
        self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)
