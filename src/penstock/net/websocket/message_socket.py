"""WebSocket of messages, for a door whose protocol consists of them, with keepalive.

All messages of one step reach the inner protocol in one call, pings included, so that pongs leave in order
with other responses. The inner protocol writes whole frames, because one frame may be for very many
connections. Silent peers are pinged, so that lost ones are noticed; one timer serves all
connections of an entrance.
"""

import asyncio
from typing import Protocol

from penstock.core.runtime.clock import Clock, Scheduler
from penstock.core.runtime.deadlines import DeadlineChecks, HasDeadline
from penstock.net.door import Peer
from penstock.net.log_throttle import ThrottledLog
from penstock.net.turn_shares import TurnShares
from penstock.net.websocket.frame_socket import FrameSocket, hang_up
from penstock.wire.websocket.deflate import Deflate
from penstock.wire.websocket.encoding import PING, CloseCode, Pinged, close_payload, control_frame
from penstock.wire.websocket.messages import MessageReader, Messages

INFLATED_BYTES = 64 * 1024
"""Bytes that one step inflates before it stops; its last message may be larger."""
COMPRESSED_STEP_BYTES = 256
"""Input of one step of a connection whose messages may be compressed: a byte inflates to a thousand."""
PING_FRAME = control_frame(PING, b"")


class Keepalive:
    """Timing of pings, and the one timer for them.

    Args:
        ping_s: silence after which a peer is pinged; 0 for no pings.
        timeout_s: further silence after which it is aborted.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, ping_s: float, timeout_s: float) -> None:
        self.ping_s = ping_s
        self.timeout_s = timeout_s
        self.now = clock.monotonic
        self._checks = DeadlineChecks(clock, scheduler)

    def watch(self, socket: HasDeadline) -> None:
        """Start watching a connection."""
        if self.ping_s:
            self._checks.add(socket, self.now() + self.ping_s)

    def forget(self, socket: HasDeadline) -> None:
        """Stop watching a connection. Idempotent."""
        self._checks.discard(socket)


class MessageProtocol(Protocol):
    """Interface of a door's protocol. After `closed` nothing more is called."""

    def opened(self, socket: "MessageSocket", /) -> None: ...

    def messages_received(self, messages: Messages, size_bytes: int, /) -> None:
        """Process messages in order, at least one: text as `str`, binary as `bytes`; and respond to pings.

        `size_bytes` were received since the last call.
        """

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def closed(self, error: Exception | None, /) -> None: ...


class NullMessageProtocol:
    """Null object: the inner protocol of a closed connection."""

    def opened(self, socket: "MessageSocket", /) -> None: ...

    def messages_received(self, messages: Messages, size_bytes: int, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def closed(self, error: Exception | None, /) -> None: ...


NULL_PROTOCOL = NullMessageProtocol()


class MessageSocket(FrameSocket):
    """One connection that carries messages.

    Args:
        limit_bytes: of one message.
        deflate: what was agreed on, if messages may be compressed.
    """

    __slots__ = (
        "_deflate",
        "_heard_at",
        "_inner",
        "_is_unheard",
        "_keepalive",
        "_new_bytes",
        "_pinged_at",
        "_reader",
        "_unsent_bytes",
        "peer",
    )

    def __init__(
        self,
        socket: asyncio.Transport,
        inner: MessageProtocol,
        buffer: memoryview,
        limit_bytes: int,
        peer: Peer,
        keepalive: Keepalive,
        deflate: Deflate | None = None,
        throttled_log: ThrottledLog | None = None,
        shares: TurnShares | None = None,
    ) -> None:
        reader = MessageReader(limit_bytes, deflate=deflate, step_bytes=INFLATED_BYTES)
        super().__init__(socket, reader, buffer, peer, throttled_log, shares)
        self.peer = peer  # address of the other end
        self._inner = inner
        self._reader = reader
        self._deflate = deflate
        if deflate is not None:
            self._step_bytes = COMPRESSED_STEP_BYTES
        self._keepalive = keepalive
        self._heard_at = keepalive.now()
        self._pinged_at: float | None = None  # while a response is awaited
        self._unsent_bytes = 0  # at the last check
        self._is_unheard = False  # reading has been paused since then
        self._new_bytes = 0  # received since messages were last passed on

    @property
    def is_deflated(self) -> bool:
        """True if this peer reads `deflated_frame`s; plain ones it reads in any case."""
        return self._deflate is not None and self._deflate.takes_ours

    # Writing and closing

    def pause_writing(self) -> None:
        super().pause_writing()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._inner.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send one or more whole frames; ignored after a close."""
        if data and not self._close_sent:
            self._socket.write(data)

    def close(
        self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "", timeout_s: float | None = None
    ) -> None:
        """Send a close frame, and close after the peer's, or after a timeout.

        Earlier writes are still sent; input is not passed on any more.

        Args:
            timeout_s: instead of the default; closing again can shorten it.
        """
        if not self.is_closing():
            self._limit_closing(timeout_s)
            if not self._close_sent:
                self._send_close(close_payload(code, reason))
                self.resume_reading()  # or the peer's close frame would never be read

    # Reading

    def _begin_inner(self) -> None:
        self._keepalive.watch(self)
        self._inner.opened(self)

    def _end_inner(self, error: Exception | None) -> None:
        self._keepalive.forget(self)
        inner, self._inner = self._inner, NULL_PROTOCOL
        inner.closed(error)

    def _take(self, data: bytes) -> None:
        if self._input_closed:
            return
        self._heard_at = self._keepalive.now()
        self._new_bytes += len(data)
        reader = self._reader
        messages = reader.feed(data)
        if reader.pings and not self._is_full:
            messages = self._with_pings(messages)
        self._hand_on(messages)
        if (reader.pings or reader.close is not None or reader.error is not None) and not self._input_closed:
            self._on_controls()

    @property
    def _has_more(self) -> bool:
        return self._reader.is_stopped

    def _hand_on(self, messages: Messages) -> None:
        if messages and not self._close_sent and not self._input_closed:
            size_bytes, self._new_bytes = self._new_bytes, 0
            self._inner.messages_received(messages, size_bytes)

    def _with_pings(self, messages: Messages) -> Messages:
        """Insert pings between the messages in their order of arrival."""
        pings, self._reader.pings = self._reader.pings, []
        woven: Messages = []
        done = 0
        for place, ping in zip(self._reader.ping_places, pings, strict=True):
            woven += messages[done:place]
            woven.append(Pinged(ping))
            done = place
        return woven + messages[done:]

    def _on_close(self, payload: bytes) -> None:
        # Only our side is closed: unread input would make a full close reset the connection, and the peer
        # might never read our close frame.
        self._send_close(payload)
        self._input_closed = True
        hang_up(self._socket)
        self._limit_closing()
        self._end_inner(None)

    # Keepalive

    def resume_reading(self) -> None:
        self._heard_at = self._keepalive.now()  # it may have sent something during the pause
        self._is_unheard = False
        super().resume_reading()

    def check_deadline(self, now: float) -> float | None:
        """Ping a silent peer, and abort if it stays silent."""
        if self.is_closing() or self._close_sent:
            return None  # closing has its own timeout
        if not self._socket.is_reading():
            return self._check_reading(now)
        keepalive, pinged_at = self._keepalive, self._pinged_at
        if pinged_at is not None and self._heard_at < pinged_at:
            return self._check_pong(now, pinged_at)
        self._pinged_at = None
        if now < self._heard_at + keepalive.ping_s:
            return self._heard_at + keepalive.ping_s
        self._pinged_at = now
        self._unsent_bytes = self._socket.get_write_buffer_size()
        self._socket.write(PING_FRAME)
        return now + keepalive.timeout_s

    def _check_reading(self, now: float) -> float | None:
        """Abort a peer that is not read from and reads nothing either: it might wait forever."""
        unsent_bytes = self._socket.get_write_buffer_size()
        if self._is_unheard and unsent_bytes and unsent_bytes >= self._unsent_bytes:
            self._throttled_log.write("nothing read from us", peer=str(self.peer))
            self.abort()
            return None
        self._heard_at, self._pinged_at = now, None
        self._unsent_bytes, self._is_unheard = unsent_bytes, True
        return now + self._keepalive.ping_s

    def _check_pong(self, now: float, pinged_at: float) -> float | None:
        if now < pinged_at + self._keepalive.timeout_s:
            return pinged_at + self._keepalive.timeout_s
        unsent_bytes = self._socket.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:  # slow, but reading
            self._unsent_bytes, self._pinged_at = unsent_bytes, now
            return now + self._keepalive.timeout_s
        self._throttled_log.write("no pong", peer=str(self.peer))
        self.abort()
        return None
