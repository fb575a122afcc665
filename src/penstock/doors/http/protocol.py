"""One HTTP connection: the socket, when it is read, how long things may take, and how it ends.

Nothing here grows without a limit: reading stops while too much waits for an answer, for the application or
for a peer that does not read. Answers of one turn of the loop leave in one write.
"""

import asyncio
from typing import TYPE_CHECKING, Literal, cast

import structlog

from penstock.doors.base import GONE, Peer
from penstock.doors.http.heads import Heads
from penstock.doors.http.pipeline import Pipeline
from penstock.doors.http.problems import INTERNAL_DETAIL, headers_of, status_of
from penstock.doors.http.reading import PIECE_BYTES, RequestReader
from penstock.doors.http.requests import Refusal, Request
from penstock.doors.http.routes import Take
from penstock.doors.http.waiting import FULL, QUEUE
from penstock.errors import PenstockError, ShuttingDown

if TYPE_CHECKING:
    from penstock.doors.http.door import HttpDoor

log = structlog.get_logger("penstock.http")

JOINED_BYTES = 64 * 1024
"""Answers of one turn are joined up to this size; more leave at once."""
CLOSING_TIMEOUT_S = 5.0
"""How long the last bytes may take to leave, and the peer to close its side."""
UNKNOWN = Peer("", 0)

Scheme = Literal["http", "https"]


class HttpConnection(asyncio.Protocol):
    """What stands between one socket and the routes."""

    __slots__ = (
        "_closing_since",
        "_door",
        "_full_bytes",
        "_full_since",
        "_has_ended",
        "_has_spoken",
        "_idle_since",
        "_is_deaf",
        "_is_feeding",
        "_is_flush_due",
        "_is_paused",
        "_loop",
        "_out",
        "_out_bytes",
        "_reader",
        "_received",
        "_rest",
        "_since",
        "_writable",
        "has_arrived",
        "is_counted",
        "known_host",
        "peer",
        "pipeline",
        "scheme",
        "transport",
        "waits",
    )

    transport: asyncio.Transport

    def __init__(self, door: "HttpDoor", heads: Heads, scheme: Scheme, peer: Peer | None = None) -> None:
        self._door = door
        self._loop = door.loop
        self._reader = RequestReader(self, heads, door.settings)
        self.pipeline = Pipeline(self, door)
        self.scheme = scheme
        self.peer = peer or UNKNOWN
        self.known_host: bytes | None = None
        self.has_arrived = peer is not None  # the guard of its address has counted that it came
        self.is_counted = False  # and that it is here
        # What has come, and when:
        self._rest = b""  # read, and not parsed yet
        self.waits = 0  # reasons not to read
        self._is_feeding = self._is_paused = self._is_deaf = False
        self._has_spoken = self._has_ended = False
        self._since = self._idle_since = 0.0
        self._received = 0
        # What leaves:
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_flush_due = False
        self._writable: asyncio.Event | None = None  # while the peer has too much to read
        self._full_since, self._full_bytes = 0.0, 0
        self._closing_since: float | None = None

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if self.peer is UNKNOWN and (name := transport.get_extra_info("peername")):
            self.peer = Peer(*name[:2])
        self.transport.set_write_buffer_limits(high=self._door.settings.write_buffer_bytes)
        self._since = self._idle_since = self._door.now()
        self._door.on_open(self, self._since + self._door.settings.request_timeout_s)

    def data_received(self, data: bytes) -> None:
        self._door.counters.bytes_received += len(data)
        if self._is_deaf:
            return  # what it still sends is read, so that it can read our answer
        if not self._reader.is_amid:
            self._restart_clock()
        self._received += len(data)
        self._has_spoken = True
        if self.waits or self._rest:
            self._rest += data
        else:
            self._feed(data)

    def eof_received(self) -> bool:
        self._is_deaf = self._has_ended = True
        is_awaited = self.pipeline.on_end_of_input()
        return is_awaited and self.scheme == "http"  # TLS has no half of a connection

    def connection_lost(self, error: Exception | None) -> None:
        self._is_deaf = True
        self.pipeline.clear()
        self._out.clear()
        if self._writable is not None:
            self._writable.set()
        self._door.on_lost(self)
        self._reader.close()
        self.transport = GONE

    def pause_writing(self) -> None:
        self._full_since, self._full_bytes = self._door.now(), self.transport.get_write_buffer_size()
        self._writable = asyncio.Event()
        self._door.watch(self, self._full_since + self._door.settings.write_timeout_s)
        self.shut(FULL)

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        self.open(FULL)

    # Reading

    def _feed(self, data: bytes) -> None:
        view, at, size = memoryview(data), 0, len(data)
        self._is_feeding = True
        try:
            while at < size and not self.waits and not self._is_deaf:
                at += self._reader.feed(view[at : at + PIECE_BYTES])
                if self._reader.take is not None:
                    if self._door.is_draining:
                        raise _goodbye()
                    self._hand_over(self._reader.take, data[at:])
                    return
                if len(self.pipeline) >= self._door.settings.max_pipelined:
                    self.shut(QUEUE)
        except Refusal as refusal:
            if not self._is_deaf:  # else it is about what came behind the last request
                self._end_with(refusal)
        except Exception:  # a mistake of ours
            log.exception("request not read", peer=str(self.peer))
            self._end_with(Refusal(500, INTERNAL_DETAIL, code=PenstockError.code))
        finally:
            self._is_feeding = False
        if at < size and not self._is_deaf:
            self._rest = data[at:]
        if self._reader.is_amid:
            self._door.watch(self, self._since + self._door.settings.request_timeout_s)
        self._flush()
        self._read_on()

    def on_head(self, request: Request) -> None:
        """The head of a request has come, and there is none of its body."""
        self._door.requests += 1
        is_open = request.route is not None and request.route.is_open
        if self._door.is_draining and request.refusal is None and not is_open:
            request.refusal = _goodbye()
        self.pipeline.add(request)

    def on_request(self, request: Request) -> None:
        """All of a request has come."""
        if request.hosted is not None:
            request.hosted.take(b"")
        if not request.keep_alive:
            self._is_deaf = True
        self.pipeline.advance()

    @property
    def is_free(self) -> bool:
        """Nothing is to be answered, so that somebody else may speak."""
        return not self.pipeline

    # Waiting

    def shut(self, why: int) -> None:
        """Do not read until this reason is gone."""
        self.waits |= why
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def open(self, why: int) -> None:
        """This is no reason any more."""
        if self.waits & why:
            self.waits &= ~why
            self.go_on()

    def go_on(self) -> None:
        """Do what can be done by now: begin requests, parse what was read, read more."""
        if self._is_feeding:
            return  # whoever is at it goes on
        self.pipeline.advance()
        while self._rest and not self.waits and not self._is_deaf:
            rest, self._rest = self._rest, b""
            self._restart_clock()
            self._feed(rest)
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused and not self.waits and not self.transport.is_closing():
            self._is_paused = False
            self._restart_clock()
            self.transport.resume_reading()

    def _restart_clock(self) -> None:
        self._since, self._received = self._door.now(), 0

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
        """Whether the peer has too much to read already."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait until the peer has read some of what was written."""
        if self._writable is not None:
            await self._writable.wait()

    # Deadlines

    def on_idle(self) -> None:
        """Everything that was asked is answered."""
        self._idle_since = self._since if self._is_feeding else self._door.now()
        is_over = self._door.is_draining and not self._reader.is_amid and not self._rest
        if self._has_ended or is_over:
            self.end()

    def check_deadline(self, now: float) -> float | None:
        """End what takes too long; answer when to look again."""
        settings = self._door.settings
        if self._closing_since is not None or self.waits & FULL:
            return self._check_leaving(now)
        if self.waits or (self.pipeline and not self._reader.is_amid):
            return now + settings.request_timeout_s  # it waits for us
        if self._reader.is_amid:
            due = self._since + settings.request_timeout_s + self._received / settings.body_rate_bytes
            if due > now:
                return due
            self._end_with(Refusal(408, "the request takes too long to come", code="too-slow"))
        else:
            patience_s = settings.keep_alive_s if self._has_spoken else settings.request_timeout_s
            if self._idle_since + patience_s > now:
                return self._idle_since + patience_s
            self.end()
        return now + CLOSING_TIMEOUT_S

    def _check_leaving(self, now: float) -> float | None:
        """The same while bytes are on their way out: every one that the peer reads counts."""
        due = 0.0 if self._closing_since is None else self._closing_since + CLOSING_TIMEOUT_S
        if self.waits & FULL:
            waiting = self.transport.get_write_buffer_size()
            if waiting < self._full_bytes:
                self._full_since, self._full_bytes = now, waiting
            due = max(due, self._full_since + self._door.settings.write_timeout_s)
        if due > now:
            return due
        if self.waits & FULL:
            self._door.note("client does not read", self.peer)
        self.abort()
        return None

    # Endings

    def close_when_done(self) -> None:
        """Take no further request; end at once if none is being worked on."""
        if not self.pipeline and not self._reader.is_amid and not self._rest:
            self.end()

    def _end_with(self, refusal: Refusal) -> None:
        self._is_deaf = True
        self._rest = b""
        path = self._reader.target.partition(b"?")[0].decode("latin-1")
        self.pipeline.end_with(self._reader.give_up(), refusal, path)

    def end(self, *, is_lingering: bool = False) -> None:
        """Close when everything written has left.

        Args:
            is_lingering: the peer may still be sending. Closing would then reset the connection, and take
                with it what the peer has not read yet; so only our direction is closed, where there is one.
        """
        self._flush()
        self._is_deaf = True
        self._rest = b""
        self.pipeline.clear()
        if self._closing_since is not None or self.transport.is_closing():
            return
        self._closing_since = self._door.now()
        self._door.watch(self, self._closing_since + CLOSING_TIMEOUT_S)
        if is_lingering and not self._has_ended and self.transport.can_write_eof():
            self.waits &= FULL
            self._read_on()
            self.transport.write_eof()
        else:
            self.transport.close()

    def abort(self) -> None:
        """End it without a word."""
        self._is_deaf = True
        self.transport.abort()

    def _hand_over(self, take: Take, rest: bytes) -> None:
        """Give the connection to whoever speaks what the peer asked for."""
        self._flush()
        head = self._reader.head()
        transport, self.transport = self.transport, GONE
        self._is_deaf = True
        self._reader.close()
        self._door.on_handed_over(self)
        try:
            take(head, rest, transport, self.peer)
        except Exception:  # a mistake of ours; nobody else would close it
            log.exception("connection not taken over", peer=str(self.peer))
            transport.abort()


def _goodbye() -> Refusal:
    """What a request is told that comes when the server is about to stop."""
    error = ShuttingDown("the server is about to stop")
    return Refusal(status_of(error), str(error), code=error.code, headers=headers_of(error))
