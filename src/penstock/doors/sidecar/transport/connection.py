"""HTTP/2 connection of gRPC clients: bytes in, calls to methods, and their end.

A chunk is processed as a whole, and everything that calls send in a turn of the loop leaves in one write.
While the socket is full nothing is read, and the handlers of streams are paused. An unwanted client gets
GOAWAY first, and time to read the last responses.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.doors.sidecar.transport.auth import Known
from penstock.doors.sidecar.transport.call import TOO_MUCH, Deadline, Http2Call
from penstock.doors.sidecar.transport.method import HIGH_WATER_BYTES, EndCause
from penstock.doors.sidecar.transport.request_headers import Request, RequestCache
from penstock.doors.sidecar.transport.timeouts import Liveness, UnfinishedMessages, UnreadResponses
from penstock.net.door import Peer
from penstock.net.read_pause import NO_PAUSE, TURN, UNREAD_RESPONSES, ReadPause
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.net.turn_shares import Backlog
from penstock.wire.grpc import Status
from penstock.wire.http2 import (
    BodyReceived,
    Drained,
    ErrorCode,
    Event,
    Ponged,
    RequestStarted,
    ServerConnection,
    StreamReset,
)

if TYPE_CHECKING:
    from penstock.doors.sidecar.door import SidecarDoor

STEP_BYTES = 8 * 1024
"""Bytes of one step: frames of so many bytes are not too many, and their calls neither."""
CLOSING_TIMEOUT_S = 5.0
"""Time for the last bytes of a connection that is being closed."""
FAREWELL = b"farewell"
"""Payload of the ping behind GOAWAY: its acknowledgement shows that the client has seen that."""
ALIVE = b"alive?  "
UNKNOWN = Peer("", 0)
"""Placeholder until the address is known."""
_HTTP1 = re.compile(rb"(?!PRI )[A-Z]{3,10} ")
_HTTP1_TEXT = b"This port speaks gRPC, which is HTTP/2 with prior knowledge.\n"
HTTP1_RESPONSE = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_HTTP1_TEXT), _HTTP1_TEXT)
)


class Connection:
    """One socket on one side, its calls on the other.

    An event loop takes it for a protocol by its methods: uvloop fills its buffer, asyncio gives it chunks.
    """

    __slots__ = (
        "_backlog",
        "_calls",
        "_deadline",
        "_first",
        "_idle_since",
        "_is_heard",
        "_is_leaving",
        "_known",
        "_last_seen",
        "_later",
        "_liveness",
        "_read_pause",
        "_requests",
        "_transport",
        "_unfinished",
        "_unread",
        "_unwritten_bytes",
        "door",
        "has_arrived",
        "http2",
        "is_closing",
        "is_counted",
        "is_dirty",
        "is_full",
        "limit_bytes",
        "peer",
    )

    def __init__(self, door: "SidecarDoor", peer: Peer | None) -> None:
        self.door = door
        self.http2 = ServerConnection(door.limits, door.too_large)
        self._backlog: Backlog | None = None
        self.peer = peer or UNKNOWN
        self.has_arrived = peer is not None  # the address limits have counted its arrival
        self.is_counted = False
        self.is_dirty = False  # something is to be written
        self.is_full = False  # the socket takes no more
        self.is_closing = False
        self._transport = CLOSED_TRANSPORT
        self._read_pause = NO_PAUSE
        self._first: bytes | None = None  # bytes received; None before the first
        self._unread = UnreadResponses(door.count_unfinished)
        self._unwritten_bytes = 0
        self._is_leaving = False  # GOAWAY was sent
        self._is_heard = False  # and has seen that
        self._last_seen = self._idle_since = self._deadline = 0.0
        self._liveness = Liveness()
        self.limit_bytes = door.settings.max_message_bytes
        self._calls: dict[int, Http2Call] = {}
        self._requests = RequestCache()
        self._known: Known = {}  # the cache of `auth.py`
        self._later: list[Event] = []  # events from before the socket was full, not processed yet
        self._unfinished = UnfinishedMessages()

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
        return self.door.small_buffer if self.door.shares.is_crowded else self.door.buffer

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
        if self._backlog is not None:
            self._backlog.add(data)
            return
        shares = door.shares
        is_late, began = shares.is_used_up, shares.clock()
        start = 0 if is_late else self._work(data, 0, now, began)
        shares.charge(began)
        if start is not None:
            self._backlog = Backlog(self, data, start)
            self._read_pause.pause(TURN)
            if self.may_step:
                shares.queue(self._backlog, is_new=is_late)

    @property
    def may_step(self) -> bool:
        """A client that does not read its responses makes no more of them."""
        return not self.is_full

    def take_step(self, data: bytes, start: int) -> int | None:
        """Work off some of the backlog, in a turn later than that of its read."""
        if self.is_closing:
            return None
        self._last_seen = now = self.door.loop.time()
        return self._work(data, start, now)

    def on_caught_up(self) -> None:
        """The backlog is worked off."""
        self._backlog = None
        self._read_pause.resume(TURN)

    def _work(self, data: bytes, start: int, now: float, began: float | None = None) -> int | None:
        """Work off some of a chunk, and send the responses; return where the rest starts.

        Args:
            began: the beginning of a read, which takes steps while this turn has time, not only one.
        """
        door, end = self.door, len(data)
        door.is_reading = True
        try:
            with door.broker.turn(now):
                while True:
                    piece = data[start : start + STEP_BYTES]
                    self._step(piece, now)
                    start += len(piece)
                    if start >= end or self.http2.error is not None or self.is_closing:
                        return None
                    if began is None or self.is_full or door.shares.is_over(began):
                        return start
        finally:
            door.is_reading = False
            self.write_out()
            door.write_all()
            if self._is_leaving:
                self._close_if_done()

    def _step(self, data: bytes, now: float) -> None:
        events = self.http2.feed(data, now)
        self._take(events)
        if self.http2.error is not None:
            self._on_error()
        elif len(data) == STEP_BYTES:
            self.door.broker.flush_part(len(events))

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
        self._liveness.on_room()
        self._read_pause.resume(UNREAD_RESPONSES)
        later, self._later = self._later, []
        self._take(later)
        if self._backlog is not None and self.may_step:
            self.door.shares.queue(self._backlog)
        for stream_id, call in list(self._calls.items()):
            if self.is_full:
                return
            if call.is_paused:
                # To the end of the line: the next time others have their turn first.
                self._calls[stream_id] = self._calls.pop(stream_id)
                self.attempt(call, call.resume)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        if self._backlog is not None:
            self.door.shares.discard(self._backlog)
            self._backlog = None
        self._end_calls(EndCause.LOST)
        self._unread.clear()
        self.door.on_lost(self)
        self._transport = CLOSED_TRANSPORT
        self._read_pause = NO_PAUSE
        self._known.clear()
        self._requests.clear()

    # Writing

    def on_sent(self, size: int) -> None:
        """A call has sent something: it leaves soon, or now if it is much."""
        self._unwritten_bytes += size
        if self._unwritten_bytes > HIGH_WATER_BYTES:
            self.write_out()
        elif not self.is_dirty:
            self.is_dirty = True
            self.door.write_soon(self)

    def write_out(self) -> None:
        """Send everything queued so far; dropped once the connection is closing."""
        self.is_dirty = False
        self._unwritten_bytes = 0
        data = self.http2.drain()
        if data and not self.is_closing:
            self.door.counters.bytes_sent += len(data)
            self._transport.write(data)

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
        request = self._requests.read(event.head, self.door.methods)
        stream_id = event.stream_id
        if request.refusal:
            self.http2.respond(stream_id, request.refusal, is_last=True)
            self.door.on_refused(self, request)
            return
        deadline = None
        if request.timeout_s is not None:
            deadline = self.door.clock.monotonic() + request.timeout_s
        call = self._calls[stream_id] = Http2Call(self, stream_id, request, deadline)
        if request.heavy_bytes and not self.door.count_unfinished(request.heavy_bytes):
            call.finish(Status.RESOURCE_EXHAUSTED, TOO_MUCH)
            return
        if deadline is not None:
            call.timer = Deadline(call)
            self.door.await_deadline(call.timer, deadline)
        try:
            self._admit(call, request)
            if event.is_last:
                call.take(b"", True)
        except Exception:  # of one call: the others continue
            self.on_failure(call)

    def _admit(self, call: Http2Call, request: Request) -> None:
        """Authenticate a call, and begin it; the identity is that of the last one of its kind, if proven."""
        admission = self.door.admission
        generation = admission.generation
        if request.identity is not None and request.generation == generation:
            call.identity = request.identity
            call.begin()
        else:
            admission.admit(call, self._known, call.begin)
            request.identity, request.generation = call.identity, generation

    def _on_other(self, event: Event) -> None:
        match event:
            case StreamReset(stream_id=stream_id):
                self._unread.discard(stream_id)
                call = self._calls.get(stream_id)
                if call is not None:
                    self.attempt(call, call.cancel)
            case Drained(stream_id=stream_id):
                self._unread.discard(stream_id)
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
        self._unfinished.discard(stream_id)
        if waiting_bytes := self.http2.waiting_bytes(stream_id):
            self._await_reading(stream_id, waiting_bytes)
        if not self._calls:
            self._idle_since = self._last_seen
            if self._is_leaving:
                self.door.loop.call_soon(self._close_if_done)

    # Deadlines

    def check_deadline(self, now: float) -> float | None:
        """Deadlines of the first frame, unfinished messages, unread responses, pings, idling and closing."""
        if self not in self.door.connections:
            return None
        if self.is_closing or not self.http2.is_settled:
            return self._check_limit(now)
        for call in self._unfinished.overdue(now, self._calls):
            self.attempt(call, call.give_up)
        for stream_id in self._unread.overdue(now):
            self._give_up_response(stream_id, ErrorCode.CANCEL)
        times = [*self._unfinished.times(), *self._unread.times()]
        if self.door.settings.ping_s:
            times.append(self._check_life(now))
        if self.door.settings.idle_s and not self._is_leaving:
            times.append(self._check_idleness(now))
        return min(times, default=None)

    def await_rest(self, stream_id: int) -> None:
        """A message has begun to come; if the rest does not come in time, its call ends."""
        self.door.watch(self, self._unfinished.add(stream_id, self._last_seen))

    def _check_limit(self, now: float) -> float | None:
        if now < self._deadline:
            return self._deadline
        if not self.is_closing:
            self.door.note("connection closed", self, "it has not spoken HTTP/2 in time")
        self.abort()
        return None

    def _await_reading(self, stream_id: int, size: int) -> None:
        """A response is complete; it is given up if it is not read in time, or if too much waits."""
        until = self._unread.add(stream_id, size, self.door.loop.time())
        if until is None:
            self._give_up_response(stream_id, ErrorCode.ENHANCE_YOUR_CALM)
        else:
            self.door.watch(self, until)

    def _give_up_response(self, stream_id: int, code: ErrorCode) -> None:
        self._unread.discard(stream_id)
        self.http2.reset(stream_id, code)
        self.on_sent(0)

    def _check_life(self, now: float) -> float:
        """Ping a silent client; abort if it does not respond, or reads nothing."""
        ping_s = self.door.settings.ping_s
        if self.is_full:
            if not self._liveness.reads(self._transport.get_write_buffer_size()):
                self._cut("it reads nothing")
            return now + ping_s
        return self._liveness.check(
            now,
            self._last_seen,
            ping_s,
            ping=self._ping,
            cut=partial(self._cut, "it gives no sign of life"),
        )

    def _ping(self) -> None:
        self.http2.ping(ALIVE)
        self.write_out()

    def _cut(self, reason: str) -> None:
        self.door.note("connection cut", self, reason)
        self.abort()

    def _check_idleness(self, now: float) -> float:
        idle_s = self.door.settings.idle_s
        if not self.is_idle:
            return now + idle_s
        if now < self._idle_since + idle_s:
            return self._idle_since + idle_s
        self.say_goodbye()
        return now + idle_s

    # The end

    @property
    def is_idle(self) -> bool:
        """No call is open, and no response waits to be read."""
        return not self.http2.open_streams

    def say_goodbye(self) -> None:
        """Send GOAWAY: the client closes when its calls are over."""
        if self.is_closing or self._is_leaving:
            return
        self._is_leaving = True
        if self._first is None:  # nothing was ever said here
            self.abort()
            return
        self.http2.go_away()
        self.http2.ping(FAREWELL)
        self.write_out()

    def _close_if_done(self) -> None:
        if self._is_heard and self.is_idle:
            self.leave()

    def leave(self) -> None:
        """Close when everything written has left; abort if that takes too long."""
        if self.is_closing:
            return
        self.write_out()
        self.is_closing = True
        self._read_pause.resume_all()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()  # closing while the client sends would lose the last responses
        else:
            self._transport.close()
        self._deadline = self.door.loop.time() + CLOSING_TIMEOUT_S
        self.door.watch(self, self._deadline)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._transport.abort()

    def _on_error(self) -> None:
        """The client has broken HTTP/2, or speaks something else."""
        error = self.http2.error
        assert error is not None
        if _HTTP1.match(self._first or b"") and not self.http2.is_settled:
            self.http2.drain()
            self._transport.write(HTTP1_RESPONSE)
            self.door.on_wire_error(self, "HTTP/1 where gRPC is spoken")
        else:
            self.door.on_wire_error(self, str(error))
        self._later.clear()
        self._end_calls(EndCause.BROKEN)
        self.leave()

    def _end_calls(self, cause: EndCause) -> None:
        for call in list(self._calls.values()):
            self.attempt(call, partial(call.end, cause))
