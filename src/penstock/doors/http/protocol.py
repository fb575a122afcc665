"""One HTTP connection: the socket, when it is read, how long things may take, and how it ends.

Nothing here grows without a limit: reading stops while too much waits for an answer, for the application or
for a peer that does not read.
"""

import asyncio
from typing import TYPE_CHECKING, Literal, cast

import structlog

from penstock.core.identity import Identity
from penstock.doors.base import GONE, Peer
from penstock.doors.http.heads import Heads
from penstock.doors.http.link import Link
from penstock.doors.http.patience import CLOSING_TIMEOUT_S, GRACE_S, HURRY_S, Patience
from penstock.doors.http.pipeline import Pipeline
from penstock.doors.http.problems import INTERNAL_DETAIL
from penstock.doors.http.reading import HEAD_WORK, TURN_BYTES, RequestReader
from penstock.doors.http.requests import STRANGER, Refusal, Request, goodbye
from penstock.doors.http.routes import Upgrade
from penstock.doors.http.waiting import FULL, HIGH_WATER_BYTES, PASSWORD, QUEUE, TURN
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.doors.http.door import HttpDoor

log = structlog.get_logger("penstock.http")

TURN_WORK = 64 * HEAD_WORK
"""What is done for one connection in one turn of the loop, so that nobody waits long behind it."""
UNKNOWN = Peer("", 0)

Scheme = Literal["http", "https"]


class HttpConnection(Link):
    """What stands between one socket and the routes."""

    __slots__ = (
        "_is_deaf",
        "_is_paused",
        "_patience",
        "_reader",
        "_rest",
        "has_arrived",
        "has_ended",
        "is_counted",
        "known_host",
        "peer",
        "pipeline",
        "scheme",
        "waits",
    )

    def __init__(self, door: "HttpDoor", heads: Heads, scheme: Scheme, peer: Peer | None = None) -> None:
        super().__init__(door)
        self._reader = RequestReader(self, heads, door.bodies, door.settings)
        self.pipeline = Pipeline(self, door)
        self.scheme = scheme
        self.peer = peer or UNKNOWN
        self.known_host: bytes | None = None
        self.has_arrived = peer is not None  # the guard of its address has counted that it came
        self.is_counted = False  # and that it is here
        self.has_ended = False
        """The peer sends no more."""
        # What has come, and when:
        self._rest = b""  # read, and not parsed yet
        self.waits = 0  # reasons not to read
        self._is_paused = self._is_deaf = False
        self._patience = Patience(door.settings)

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if self.peer is UNKNOWN and (name := transport.get_extra_info("peername")):
            self.peer = Peer(*name[:2])
        self.transport.set_write_buffer_limits(high=self._door.settings.write_buffer_bytes)
        patience = self._patience
        patience.since = patience.idle_since = self._door.now()
        self._door.on_open(self, patience.request_due())

    def data_received(self, data: bytes) -> None:
        self._door.counters.bytes_received += len(data)
        if self._is_deaf:
            return  # what it still sends is read, so that it can read our answer
        if not self._reader.is_amid:
            self._restart_clock()
        self._patience.received_bytes += len(data)
        if self.waits or self._rest:
            self._rest += data
            if len(self._rest) > HIGH_WATER_BYTES:
                self._pause()
        else:
            self._feed(data)

    def eof_received(self) -> bool:
        self._is_deaf = self.has_ended = True
        is_awaited = self.pipeline.on_end_of_input()
        return is_awaited and self.scheme == "http"  # TLS has no half of a connection

    def connection_lost(self, error: Exception | None) -> None:
        if self.transport is GONE:
            return  # it was handed over, and not taken
        if self._writable is not None:
            self._writable.set()
        self._door.on_lost(self)
        self.transport = GONE
        self._let_go()

    def pause_writing(self) -> None:
        now, unread_bytes = self._door.now(), self.transport.get_write_buffer_size()
        self._patience.note_full(now, unread_bytes)
        self._writable = asyncio.Event()
        self._door.watch(self, self._patience.full_due(now, unread_bytes))
        self.shut(FULL)
        self.pipeline.tell_room(is_full=True)

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(high=self._door.settings.write_buffer_bytes)
        self.pipeline.tell_room(is_full=False)
        self.open(FULL)

    # Reading

    def _feed(self, data: bytes) -> None:
        view, at, size, reader = memoryview(data), 0, len(data), self._reader
        reader.work = 0
        self._is_feeding = True
        try:
            while at < size and not self.waits and not self._is_deaf:
                at += reader.feed(view[at : at + reader.piece_bytes])
                if reader.upgrading is not None:
                    self._rest = data[at:]
                    self._upgrade(reader.upgrading)
                    return
                if len(self.pipeline) >= self._door.settings.max_pipelined:
                    self.shut(QUEUE)
                if reader.work >= TURN_WORK or at >= TURN_BYTES:
                    self._wait_a_turn()
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
        if reader.is_amid:
            self._door.watch(self, self._patience.request_due())
        self._flush()
        self._read_on()

    def on_head(self, request: Request) -> None:
        """The head of a request has come, and there is none of its body."""
        self._door.requests += 1
        is_open = request.route is not None and request.route.is_open
        if self._door.is_draining and request.refusal is None and not is_open:
            request.refusal = goodbye()
        self.pipeline.add(request)

    def _upgrade(self, request: Request) -> None:
        """All that this peer wants of us is somebody else; perhaps it has to say first who it is."""
        if self._door.is_draining:
            raise goodbye()
        assert request.upgrade is not None
        if not request.upgrade.needs_identity:
            self.hand_over(request.upgrade, STRANGER)
            return
        self._door.requests += 1
        self._patience.has_asked = request.is_received = True
        request.is_proven = request.keep_alive = False
        self.pipeline.add(request)
        self._flush()

    def on_request(self, request: Request) -> None:
        """All of a request has come."""
        if request.hosted is not None:
            request.hosted.take(b"")
        self._patience.has_asked = True
        if not request.keep_alive:
            self._is_deaf = True
        self.pipeline.advance()

    @property
    def is_free(self) -> bool:
        """Nothing is to be answered, so that somebody else may speak."""
        return not self.pipeline

    # Waiting

    def shut(self, why: int) -> None:
        """Parse nothing until this reason is gone, and do not read either."""
        self.waits |= why
        if why != PASSWORD:  # then a little is read, because only so it is seen that the peer has gone
            self._pause()

    def _pause(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def open(self, why: int) -> None:
        """This is no reason any more."""
        if self.waits & why:
            self.waits &= ~why
            self.go_on()

    def _wait_a_turn(self) -> None:
        self.shut(TURN)
        self._loop.call_soon(self.open, TURN)

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
        self._patience.restart(self._door.now())

    # Deadlines

    def wait_for_reader(self, answer_s: float | None) -> None:
        """The answer that begins may be left unread for so long; None for as long as others."""
        self._patience.answer_s = answer_s

    def on_idle(self) -> None:
        """Everything that was asked is answered."""
        patience = self._patience
        patience.idle_since = patience.since if self._is_feeding else self._door.now()
        if self.has_ended:
            self.end()

    def check_deadline(self, now: float) -> float | None:
        """End what takes too long; answer when to look again."""
        patience, is_amid = self._patience, self._reader.is_amid
        if patience.closing_since is not None or self.waits & FULL:
            return self._check_leaving(now)
        if self.waits or (self.pipeline and not is_amid):
            return now + self._door.settings.request_timeout_s  # it waits for us
        due = patience.request_due() if is_amid else patience.next_request_due()
        if due > now:
            return due
        if is_amid:
            self._end_with(Refusal(408, "the request takes too long to come", code="too-slow"))
        else:
            self.end()
        return now + CLOSING_TIMEOUT_S

    def _check_leaving(self, now: float) -> float | None:
        """The same while bytes are on their way out."""
        patience, unread_bytes = self._patience, self.transport.get_write_buffer_size()
        due = patience.closing_due()
        if self.waits & FULL or (unread_bytes and patience.answer_s is not None):
            due = max(due, patience.full_due(now, unread_bytes))
        if due > now:
            return due
        if self.waits & FULL:
            self._door.note("client does not read", self.peer)
        self.abort()
        return None

    def urge(self, now: float, since: float) -> None:
        """The server has begun to stop: end what is not being worked on.

        What comes or leaves has a little longer; who waits between requests may have one on its way.
        """
        patience = self._patience
        self.pipeline.drain()
        if patience.closing_since is not None:
            is_last = self.transport.get_write_buffer_size() == 0
            if max(since, patience.closing_since) + (GRACE_S if is_last else HURRY_S) <= now:
                self.abort()
        elif self.waits & FULL:
            if max(since, patience.full_since) + HURRY_S <= now:
                self.abort()
        elif self._reader.is_amid:
            if self._reader.current is None or max(since, patience.since) + HURRY_S <= now:
                self._end_with(goodbye())
        elif not self.pipeline and not self._rest and max(since, patience.idle_since) + GRACE_S <= now:
            self.end(is_lingering=True)

    # Endings

    def _end_with(self, refusal: Refusal) -> None:
        self._is_deaf = True
        self._rest = b""
        path = self._reader.target.partition(b"?")[0].decode("latin-1")
        self.pipeline.end_with(self._reader.give_up(), refusal.bare(), path)

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
        if self._patience.closing_since is not None or self.transport.is_closing():
            return
        patience = self._patience
        patience.closing_since = now = self._door.now()
        if not self.waits & FULL:
            patience.note_full(now, self.transport.get_write_buffer_size())
        self._door.watch(self, patience.closing_due())
        if is_lingering and not self.has_ended and self.transport.can_write_eof():
            self.waits &= FULL
            self._read_on()
            self.transport.write_eof()
        else:
            self.transport.close()

    def abort(self) -> None:
        """End it without a word."""
        self._is_deaf = True
        self.transport.abort()

    def hand_over(self, upgrade: Upgrade, identity: Identity) -> None:
        """Give the connection to whoever speaks what the peer asked for."""
        self._flush()
        head, rest = self._reader.head(), self._rest
        transport, self.transport = self.transport, GONE
        if self._is_paused:
            transport.resume_reading()
        self._door.on_handed_over(self)
        self._let_go()
        try:
            upgrade.take(head, rest, transport, self.peer, identity)
        except Exception:  # a mistake of ours; nobody else would close it
            log.exception("connection not taken over", peer=str(self.peer))
            transport.abort()

    def _let_go(self) -> None:
        """It is over: keep nothing, and let nobody here refer back: such circles are found hours later."""
        self._is_deaf = True
        self._rest = b""
        self._out.clear()
        self.pipeline.close()
        self._reader.close()
