"""HTTP/2 connection of gRPC clients: bytes in, calls to methods, and their end.

A chunk is processed as a whole, and its responses leave in one write; the outbound side is in
`outbound.py`. While the socket is full nothing is read, and the handlers of streams are paused.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.doors.sidecar.transport.auth import Known
from penstock.doors.sidecar.transport.call import TOO_MUCH, Deadline, Http2Call
from penstock.doors.sidecar.transport.method import EndCause
from penstock.doors.sidecar.transport.outbound import FAREWELL, UNKNOWN, Outbound
from penstock.doors.sidecar.transport.request_headers import Request, read_request
from penstock.net.door import Peer
from penstock.net.read_pause import NO_PAUSE, UNREAD_RESPONSES, ReadPause
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.wire.grpc import Status
from penstock.wire.http2 import (
    BodyReceived,
    Drained,
    Event,
    Ponged,
    RequestHead,
    RequestStarted,
    StreamReset,
)

if TYPE_CHECKING:
    from penstock.doors.sidecar.door import SidecarDoor

REQUESTS_REMEMBERED = 64
"""Kinds of calls of one connection whose header fields are understood already."""
UNFINISHED_S = 120.0
"""Longest time from the first bytes of a message to its last."""
_HTTP1 = re.compile(rb"(?!PRI )[A-Z]{3,10} ")
_HTTP1_TEXT = b"This port speaks gRPC, which is HTTP/2 with prior knowledge.\n"
HTTP1_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_HTTP1_TEXT), _HTTP1_TEXT)
)


class Connection(Outbound):
    """One socket on one side, its calls on the other."""

    __slots__ = ("_calls", "_known", "_later", "_requests", "_unfinished", "limit_bytes")

    def __init__(self, door: "SidecarDoor", peer: Peer | None) -> None:
        super().__init__(door, peer)
        self.limit_bytes = door.settings.max_message_bytes
        self._calls: dict[int, Http2Call] = {}
        self._requests: dict[int, tuple[RequestHead, Request]] = {}
        self._known: Known = {}  # the cache of `auth.py`
        self._later: list[Event] = []  # events from before the socket was full, not processed yet
        self._unfinished: dict[int, float] = {}  # calls with a message that is not whole, and until when

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if self.peer is UNKNOWN and (name := transport.get_extra_info("peername")):
            self.peer = Peer(*name[:2])
        self._read_pause = ReadPause(self._transport)
        self._transport.set_write_buffer_limits(high=self.door.settings.write_buffer_bytes)
        self._last_seen = self._idle_since = self.door.loop.time()
        self._deadline = self._last_seen + self.door.settings.connect_timeout_s
        self.door.on_open(self, self._deadline)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.door.buffer

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self.door.buffer[:size]))

    def data_received(self, data: bytes) -> None:
        """Process a chunk, and send the responses."""
        if self.is_closing:
            return
        door = self.door
        self._last_seen = now = door.loop.time()
        door.counters.bytes_received += len(data)
        if self._first is None:
            self._first = data[:16]
        door.is_reading = True
        try:
            with door.broker.turn(now):
                self._take(self.http2.feed(data, now))
                if self.http2.error is not None:
                    self._on_error()
        finally:
            door.is_reading = False
            self.write_out()
            door.write_all()
        if self._is_leaving:
            self._close_if_done()

    def eof_received(self) -> bool:
        """The client says nothing more, so it gives no room for responses either."""
        return False

    def pause_writing(self) -> None:
        """The socket is full."""
        self.is_full = True
        self._read_pause.pause(UNREAD_RESPONSES)
        for call in list(self._calls.values()):
            self.attempt(call, call.pause)

    def resume_writing(self) -> None:
        """The socket has room again."""
        self.is_full = False
        self._stuck_bytes = 0
        self._read_pause.resume(UNREAD_RESPONSES)
        later, self._later = self._later, []
        self._take(later)
        for stream_id, call in list(self._calls.items()):
            if self.is_full:
                return
            if call.is_paused:
                # To the end of the line: the next time others have their turn first.
                self._calls[stream_id] = self._calls.pop(stream_id)
                self.attempt(call, call.resume)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        self._end_calls(EndCause.LOST)
        for stream_id in list(self._unread):
            self.on_read(stream_id)
        self.door.on_lost(self)
        self._transport = CLOSED_TRANSPORT
        self._read_pause = NO_PAUSE
        self._known.clear()

    # Events

    def _take(self, events: list[Event]) -> None:
        calls = self._calls
        for index, event in enumerate(events):
            if self.is_full:  # a client that does not read gets no more responses
                self._later += events[index:]
                return
            kind = type(event)
            if kind is BodyReceived:
                body = cast("BodyReceived", event)
                call = calls.get(body.stream_id)
                if call is None:
                    continue
                try:
                    call.take(body.data, body.is_last)
                except Exception:  # of one call: the others continue
                    self.on_failure(call)
            elif kind is RequestStarted:
                self._on_request(cast("RequestStarted", event))
            else:
                self._on_other(event)

    def _on_request(self, event: RequestStarted) -> None:
        request = self._understand(event.head)
        stream_id = event.stream_id
        if request.refusal:
            self.http2.respond(stream_id, request.refusal, is_last=True)
            self.door.on_refused(self, request)
            return
        deadline = None
        if request.timeout_s is not None:
            deadline = self.door.clock.monotonic() + request.timeout_s
        call = self._calls[stream_id] = Http2Call(self, stream_id, request, deadline)
        if request.heavy_bytes and not self.door.hold(request.heavy_bytes):
            call.finish(Status.RESOURCE_EXHAUSTED, TOO_MUCH)
            return
        if deadline is not None:
            call.timer = Deadline(call)
            self.door.await_deadline(call.timer, deadline)
        try:
            self.door.admission.admit(call, self._known, call.begin)
            if event.is_last:
                call.take(b"", True)
        except Exception:  # of one call: the others continue
            self.on_failure(call)

    def _understand(self, head: RequestHead) -> Request:
        """Return the parsed head of a request; the wire returns the same object for the same fields."""
        known = self._requests.get(id(head))
        if known is not None:
            return known[1]
        request = read_request(head, self.door.methods)
        if request.heavy_bytes or request.refusal:  # it would cost more to remember
            return request
        if len(self._requests) >= REQUESTS_REMEMBERED:
            self._requests.clear()
        self._requests[id(head)] = (head, request)  # the head is referenced, so its id stays unique
        return request

    def _on_other(self, event: Event) -> None:
        match event:
            case StreamReset(stream_id=stream_id):
                self.on_read(stream_id)
                call = self._calls.get(stream_id)
                if call is not None:
                    self.attempt(call, call.cancel)
            case Drained(stream_id=stream_id):
                self.on_read(stream_id)
                call = self._calls.get(stream_id)
                if call is not None:
                    self.attempt(call, call.resume)
            case Ponged(payload=payload) if payload == FAREWELL:
                self._is_heard = self._is_leaving

    def attempt(self, call: Http2Call, action: Callable[[], None]) -> None:
        """Do something of a call; a mistake in it ends that call, and nothing else."""
        try:
            action()
        except Exception:
            self.on_failure(call)

    def on_failure(self, call: Http2Call) -> None:
        """Handle an unexpected error of a method."""
        self.door.on_failure(self, call.path)
        try:
            call.end(EndCause.BROKEN, Status.INTERNAL, "internal error")
        except Exception:  # it fails at its own end, too: that is all there is to do
            self.door.on_failure(self, call.path)

    def on_over(self, stream_id: int, call: Http2Call) -> None:
        """A call is over; its response may still wait to be read."""
        self._calls.pop(stream_id, None)
        if call.timer is not None:
            self.door.deadlines.discard(call.timer)
        self._unfinished.pop(stream_id, None)
        if waiting_bytes := self.http2.waiting_bytes(stream_id):
            self.await_reading(stream_id, waiting_bytes)
        if not self._calls:
            self._idle_since = self._last_seen
            if self._is_leaving:
                self.door.loop.call_soon(self._close_if_done)

    # Messages that do not become whole

    def check_deadline(self, now: float) -> float | None:
        """The time for the rest of messages, and for all that every link waits for."""
        self._give_up_unfinished(now)
        again = super().check_deadline(now)
        times = [*self._unfinished.values()]
        return min(times if again is None else [again, *times], default=None)

    def await_rest(self, stream_id: int) -> None:
        """A message has begun to come; if the rest does not come in time, its call ends."""
        until = self._unfinished[stream_id] = self._last_seen + UNFINISHED_S
        self.door.watch(self, until)

    def _give_up_unfinished(self, now: float) -> None:
        for stream_id, until in list(self._unfinished.items()):
            call = self._calls.get(stream_id)
            if call is None or not call.is_unfinished:
                self._unfinished.pop(stream_id, None)
            elif now >= until and call.is_held:  # by its own method, not by an error of the client
                self._unfinished[stream_id] = now + UNFINISHED_S
            elif now >= until:
                self.attempt(call, call.give_up)

    # The end

    def _on_error(self) -> None:
        """The client has broken HTTP/2, or speaks something else."""
        error = self.http2.error
        assert error is not None
        if _HTTP1.match(self._first or b"") and not self.http2.is_settled:
            self.http2.drain()
            self._transport.write(HTTP1_ANSWER)
            self.door.on_wire_error(self, "HTTP/1 where gRPC is spoken")
        else:
            self.door.on_wire_error(self, str(error))
        self._later.clear()
        self._end_calls(EndCause.BROKEN)
        self.leave()

    def _end_calls(self, cause: EndCause) -> None:
        for call in list(self._calls.values()):
            self.attempt(call, partial(call.end, cause))
