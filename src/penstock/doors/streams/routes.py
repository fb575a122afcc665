"""Routes of the streams door: POST send, GET receive, GET health, below /api/v1/streams.

Each message goes to exactly one waiting receiver. A receive consumes its message. So a client that has
disconnected must not get one, nor a web page that could not read it, nor a HEAD request.
"""

from asyncio import get_running_loop
from functools import partial

from penstock.core.broker import Broker
from penstock.core.publishing.outcome import Receipt
from penstock.core.replay.message_ids import MessageIds
from penstock.core.streams.waiters import Handover
from penstock.doors.streams.log import LogPolls
from penstock.doors.streams.parameters import Queries, read_send
from penstock.doors.streams.responses import HEALTHY, SENT, fail, give, shape_of
from penstock.doors.streams.shapes import InvalidForm
from penstock.errors import NotAuthorized, PenstockError, WaitTimeout
from penstock.net.http.errors import STREAMS
from penstock.net.http.request import Request
from penstock.net.http.routes import Routes

FOREIGN = frozenset({"cross-site", "same-site"})
"""Values of `Sec-Fetch-Site` for pages of other origins."""


class Sender:
    """Sends messages for requests, and responds to them."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._broker = broker
        self._counters = broker.counters

    def take(self, request: Request) -> None:
        """Send the message of a request; the response comes now or later."""

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
            request.on_disconnect = wait.cancel

    def _refuse(self, request: Request, error: PenstockError) -> None:
        if not isinstance(error, WaitTimeout):  # which has a counter of its own
            self._counters.publishes_refused += 1
            self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)


class Receiver:
    """Hands messages to waiting requests."""

    def __init__(self, broker: Broker) -> None:
        self._streams = broker.streams
        self._queries = Queries(broker)
        self._marks = MessageIds(broker.log)
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
            run = handover.run
            cursor = self._marks.cursor(run.offset).decode()
            give(request, shape_of(run, 0, cursor), has_position=asked.has_position)
            return True

        miss = partial(self._miss, request)
        wait = self._streams.receive(asked.topic, request.identity, asked.wait_s, hand_over, miss, is_here)
        if wait is not None:
            request.on_disconnect = wait.cancel

    def _miss(self, request: Request, error: PenstockError) -> None:
        self._counters.actions_forbidden += isinstance(error, NotAuthorized)
        fail(request, error)


def add_routes(table: Routes, broker: Broker) -> None:
    """Fill the listener's table. The paths without a version are older, and mean the same."""
    sender, receiver = Sender(broker), Receiver(broker)
    for prefix in STREAMS:
        table.add("POST", f"{prefix}/send", sender.take)
        table.add("GET", f"{prefix}/receive", receiver.take, waits_its_turn=True, takes_away=True)
        table.add("GET", f"{prefix}/health", respond_health, is_open=True, max_body_bytes=0)


def respond_health(request: Request) -> None:
    """Respond that streams are served."""
    request.respond(200, HEALTHY)
