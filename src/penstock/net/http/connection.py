"""HTTP connection: reads and writes one socket, enforces its deadlines, and closes it.

Backpressure: reading pauses while too much waits for a response, for the application, or for a peer that does
not read. Responses of one turn of the loop leave in one write.
"""

import asyncio
from typing import TYPE_CHECKING, Literal, cast

import structlog

from penstock.core.access.identity import Identity
from penstock.errors import PenstockError
from penstock.net.door import Peer
from penstock.net.http.errors import INTERNAL_DETAIL
from penstock.net.http.heads import Heads
from penstock.net.http.parser import HEAD_WORK, TURN_BYTES, RequestReader
from penstock.net.http.pipeline import Pipeline
from penstock.net.http.request import ANONYMOUS, HIGH_WATER_BYTES, Refusal, Request, shutdown_refusal
from penstock.net.http.routes import Upgrade
from penstock.net.http.timeouts import CLOSING_TIMEOUT_S, GRACE_S, HURRY_S, ConnectionTimeouts
from penstock.net.read_pause import PASSWORD_CHECK, PIPELINE, TURN, UNREAD_RESPONSES
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.net.turn_shares import Backlog

if TYPE_CHECKING:
    from penstock.net.http.door import HttpDoor

log = structlog.get_logger("penstock.http")

TURN_WORK = 64 * HEAD_WORK
"""Work for one connection in one turn of the loop, so that others do not wait long."""
JOINED_BYTES = 64 * 1024
"""Responses of one turn are joined up to this size; more leave at once."""
UNKNOWN = Peer("", 0)

Scheme = Literal["http", "https"]


class HttpConnection:
    """One socket on one side, the routes on the other.

    An event loop takes it for a protocol by its methods.
    """

    __slots__ = (
        "_door",
        "_input_closed",
        "_is_feeding",
        "_is_flush_due",
        "_is_paused",
        "_loop",
        "_out",
        "_out_bytes",
        "_reader",
        "_rest",
        "_timeouts",
        "_writable",
        "has_arrived",
        "has_ended",
        "is_counted",
        "known_host",
        "pauses",
        "peer",
        "pipeline",
        "scheme",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, door: "HttpDoor", heads: Heads, scheme: Scheme, peer: Peer | None = None) -> None:
        self._door = door
        self._loop = door.loop
        self._reader = RequestReader(self, heads, door.bodies, door.settings)
        self.pipeline = Pipeline(self, door)
        self.scheme = scheme
        self.peer = peer or UNKNOWN
        self.known_host: bytes | None = None
        self.has_arrived = peer is not None  # the address limits have counted its arrival
        self.is_counted = False  # and the open connection
        self.has_ended = False
        """The peer sends no more."""
        # Input:
        self._rest = b""  # read, but not parsed
        self.pauses = 0
        """Reasons of `read_pause` not to parse, and all but one of them not to read."""
        self._is_paused = self._input_closed = False
        self._is_feeding = False  # requests are being parsed; that loop flushes at its end
        # Bytes to send:
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_flush_due = False
        self._writable: asyncio.Event | None = None  # while the peer has too much to read
        self._timeouts = ConnectionTimeouts(door.settings)

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if self.peer is UNKNOWN and (name := transport.get_extra_info("peername")):
            self.peer = Peer(*name[:2])
        self.transport.set_write_buffer_limits(high=self._door.settings.write_buffer_bytes)
        patience = self._timeouts
        patience.since = patience.idle_since = self._door.now()
        self._door.on_open(self, patience.request_due())

    def data_received(self, data: bytes) -> None:
        self._door.counters.bytes_received += len(data)
        if self._input_closed:
            return  # the rest of its input is discarded, so that it can read the response
        if not self._reader.is_amid:
            self._restart_clock()
        self._timeouts.received_bytes += len(data)
        if self.pauses or self._rest:
            self._rest += data
            if len(self._rest) > HIGH_WATER_BYTES:
                self._pause_reading()
        elif self._door.shares.is_used_up:
            self._rest = data
            self._yield_turn(is_new=True)
        else:
            shares = self._door.shares
            began = shares.clock()
            self._feed(data)
            shares.charge(began)

    def eof_received(self) -> bool:
        self._input_closed = self.has_ended = True
        is_awaited = self.pipeline.on_end_of_input()
        return is_awaited and self.scheme == "http"  # TLS has no half of a connection

    def connection_lost(self, error: Exception | None) -> None:
        if self.transport is CLOSED_TRANSPORT:
            return  # handed over, but the new owner failed
        if self._writable is not None:
            self._writable.set()
        self._door.on_lost(self)
        self.transport = CLOSED_TRANSPORT
        self._detach()

    def pause_writing(self) -> None:
        now, unread_bytes = self._door.now(), self.transport.get_write_buffer_size()
        self._timeouts.note_full(now, unread_bytes)
        self._writable = asyncio.Event()
        self._door.watch(self, self._timeouts.full_due(now, unread_bytes))
        self.pause(UNREAD_RESPONSES)
        self.pipeline.on_room(is_full=True)

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(high=self._door.settings.write_buffer_bytes)
        self.pipeline.on_room(is_full=False)
        self.resume(UNREAD_RESPONSES)

    # Reading

    def _feed(self, data: bytes) -> None:
        view, at, size, reader = memoryview(data), 0, len(data), self._reader
        reader.work = 0
        self._is_feeding = True
        try:
            while at < size and not self.pauses and not self._input_closed:
                at += reader.feed(view[at : at + reader.piece_bytes])
                if reader.upgrading is not None:
                    self._rest = data[at:]
                    self._upgrade(reader.upgrading)
                    return
                if len(self.pipeline) >= self._door.settings.max_pipelined:
                    self.pause(PIPELINE)
                if reader.work >= TURN_WORK or at >= TURN_BYTES:
                    self._yield_turn()
        except Refusal as refusal:
            if not self._input_closed:  # else it is about input behind the last request
                self._end_with(refusal)
        except Exception:  # an error of the server
            log.exception("request not read", peer=str(self.peer))
            self._end_with(Refusal(500, INTERNAL_DETAIL, code=PenstockError.code))
        finally:
            self._is_feeding = False
        if at < size and not self._input_closed:
            self._rest = data[at:]
        if reader.is_amid:
            self._door.watch(self, self._timeouts.request_due())
        self._flush()
        self._resume_reading()

    def on_head(self, request: Request) -> None:
        """The head of a request was read, and nothing of its body."""
        self._door.requests += 1
        is_open = request.route is not None and request.route.is_open
        if self._door.is_draining and request.refusal is None and not is_open:
            request.refusal = shutdown_refusal()
        self.pipeline.add(request)

    def _upgrade(self, request: Request) -> None:
        """Hand the connection over to another protocol, perhaps after authentication."""
        if self._door.is_draining:
            raise shutdown_refusal()
        assert request.upgrade is not None
        if not request.upgrade.needs_identity:
            self.hand_over(request.upgrade, ANONYMOUS)
            return
        self._door.requests += 1
        self._timeouts.has_asked = request.is_received = True
        request.is_proven = request.keep_alive = False
        self.pipeline.add(request)
        self._flush()

    def on_request(self, request: Request) -> None:
        """A request was read completely."""
        if request.asgi is not None:
            request.asgi.take(b"")
        self._timeouts.has_asked = True
        if not request.keep_alive:
            self._input_closed = True
        self.pipeline.advance()

    @property
    def is_free(self) -> bool:
        """No response is pending, so that the connection may be handed over."""
        return not self.pipeline

    # Waiting

    def pause(self, reason: int) -> None:
        """Stop parsing and reading until this reason is cleared."""
        self.pauses |= reason
        if reason != PASSWORD_CHECK:  # then a little is read: only so a lost peer is noticed
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume(self, reason: int) -> None:
        """Clear a reason not to read. Idempotent."""
        if self.pauses & reason:
            self.pauses &= ~reason
            self.proceed()

    def _yield_turn(self, *, is_new: bool = False) -> None:
        """Continue in a later turn, after others that wait."""
        self.pause(TURN)
        self._door.shares.queue(Backlog(self, b""), is_new=is_new)

    may_step = True

    def take_step(self, data: bytes, start: int) -> int | None:
        """Continue with what was read before, as far as one turn allows."""
        self.resume(TURN)
        return None

    def on_caught_up(self) -> None:
        """It pauses and resumes by itself."""

    def proceed(self) -> None:
        """Continue after a pause: begin requests, parse what was read, read more."""
        if self._is_feeding:
            return  # the loop in `_feed` continues by itself
        self.pipeline.advance()
        while self._rest and not self.pauses and not self._input_closed:
            rest, self._rest = self._rest, b""
            self._restart_clock()
            self._feed(rest)
        self._resume_reading()

    def _resume_reading(self) -> None:
        if self._is_paused and not self.pauses and not self.transport.is_closing():
            self._is_paused = False
            self._restart_clock()
            self.transport.resume_reading()

    def _restart_clock(self) -> None:
        self._timeouts.restart(self._door.now())

    # Writing

    def write(self, data: bytes) -> None:
        """Send some bytes with this turn of the loop."""
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= JOINED_BYTES:
            self._flush()
        elif not self._is_feeding and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        out, size = self._out, self._out_bytes
        if not out:
            return
        self._out, self._out_bytes = [], 0
        if self.transport.is_closing():
            return
        self._door.counters.bytes_sent += size
        if len(out) == 1:
            self.transport.write(out[0])
        elif size < 2 * JOINED_BYTES:
            self.transport.write(b"".join(out))
        else:  # a large one and something before it
            self.transport.writelines(out)

    @property
    def is_full(self) -> bool:
        """True if the peer has too much to read already."""
        return self._writable is not None

    def has_sent_all(self) -> bool:
        """True if everything is sent; if not, requests begin when it is."""
        self._flush()
        if self.transport.is_closing() or not self.transport.get_write_buffer_size():
            return True
        self.transport.set_write_buffer_limits(high=0)  # so that `resume_writing` is called
        return False

    async def drain(self) -> None:
        """Wait until the peer has read some of what was written."""
        if self._writable is not None:
            await self._writable.wait()

    # Deadlines

    def set_read_timeout(self, response_s: float | None) -> None:
        """Set the time that the next response may be left unread; None for the default."""
        self._timeouts.response_s = response_s

    def on_idle(self) -> None:
        """Every request has its response."""
        patience = self._timeouts
        patience.idle_since = patience.since if self._is_feeding else self._door.now()
        if self.has_ended:
            self.end()

    def check_deadline(self, now: float) -> float | None:
        """Close a connection that is too slow; return the time of the next check."""
        patience, is_amid = self._timeouts, self._reader.is_amid
        if patience.closing_since is not None or self.pauses & UNREAD_RESPONSES:
            return self._check_leaving(now)
        if self.pauses or (self.pipeline and not is_amid):
            return now + self._door.settings.request_timeout_s  # it waits for the server
        due = patience.request_due() if is_amid else patience.next_request_due()
        if due > now:
            return due
        if is_amid:
            self._end_with(Refusal(408, "the request was not complete in time", code="too-slow"))
        else:
            self.end()
        return now + CLOSING_TIMEOUT_S

    def _check_leaving(self, now: float) -> float | None:
        """The same while bytes wait to be sent."""
        patience, unread_bytes = self._timeouts, self.transport.get_write_buffer_size()
        due = patience.closing_due()
        if self.pauses & UNREAD_RESPONSES or (unread_bytes and patience.response_s is not None):
            due = max(due, patience.full_due(now, unread_bytes))
        if due > now:
            return due
        if self.pauses & UNREAD_RESPONSES:
            self._door.note("client does not read", self.peer)
        self.abort()
        return None

    def close_idle(self, now: float, since: float) -> None:
        """Close the connection at shutdown unless a request is being processed.

        Unfinished requests and responses get a little longer. An idle client may just be sending a request.
        """
        patience = self._timeouts
        self.pipeline.drain()
        if patience.closing_since is not None:
            is_last = self.transport.get_write_buffer_size() == 0
            if max(since, patience.closing_since) + (GRACE_S if is_last else HURRY_S) <= now:
                self.abort()
        elif self.pauses & UNREAD_RESPONSES:
            if max(since, patience.full_since) + HURRY_S <= now:
                self.abort()
        elif self._reader.is_amid:
            if self._reader.current is None or max(since, patience.since) + HURRY_S <= now:
                self._end_with(shutdown_refusal())
        elif not self.pipeline and not self._rest and max(since, patience.idle_since) + GRACE_S <= now:
            self.end(is_lingering=True)

    # Endings

    def _end_with(self, refusal: Refusal) -> None:
        self._input_closed = True
        self._rest = b""
        path = self._reader.target.partition(b"?")[0].decode("latin-1")
        self.pipeline.end_with(self._reader.give_up(), refusal.bare(), path)

    def end(self, *, is_lingering: bool = False) -> None:
        """Close when everything written is sent.

        Args:
            is_lingering: the peer may still be sending. Closing would then reset the connection and lose
                what the peer has not read; so only the sending side is closed, where that is possible.
        """
        self._flush()
        self._input_closed = True
        self._rest = b""
        self.pipeline.clear()
        if self._timeouts.closing_since is not None or self.transport.is_closing():
            return
        patience = self._timeouts
        patience.closing_since = now = self._door.now()
        if not self.pauses & UNREAD_RESPONSES:
            patience.note_full(now, self.transport.get_write_buffer_size())
        self._door.watch(self, patience.closing_due())
        if is_lingering and not self.has_ended and self.transport.can_write_eof():
            self.pauses &= UNREAD_RESPONSES
            self._resume_reading()
            self.transport.write_eof()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._input_closed = True
        self.transport.abort()

    def hand_over(self, upgrade: Upgrade, identity: Identity) -> None:
        """Hand the connection to the protocol that the peer asked for."""
        self._flush()
        head, rest = self._reader.head(), self._rest
        transport, self.transport = self.transport, CLOSED_TRANSPORT
        if self._is_paused:
            transport.resume_reading()
        self._door.on_handed_over(self)
        self._detach()
        try:
            upgrade.take(head, rest, transport, self.peer, identity)
        except Exception:  # an error of the server; nothing else would close it
            log.exception("connection not handed over", peer=str(self.peer))
            transport.abort()

    def _detach(self) -> None:
        """Drop all references: the garbage collector would find cycles hours later."""
        self._input_closed = True
        self._rest = b""
        self._out.clear()
        self.pipeline.close()
        self._reader.close()
