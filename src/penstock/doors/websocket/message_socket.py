"""An open WebSocket that speaks in messages, for a door whose protocol is made of them.

All messages of one read reach the inner protocol in one call, and the pings among them too: so their answers
leave with all others, in order. What it writes are frames already, because one frame may be for very many
connections.
"""

import asyncio
from typing import Protocol

from penstock.doors.base import Peer
from penstock.doors.notes import Notes
from penstock.doors.websocket.deflating import Deflate
from penstock.doors.websocket.encoding import PING, CloseCode, Pinged, close_payload, control_frame
from penstock.doors.websocket.frame_socket import FrameSocket, hang_up
from penstock.doors.websocket.keepalive import Keepalive
from penstock.doors.websocket.messages import MessageReader, Messages

PING_FRAME = control_frame(PING, b"")


class MessageInner(Protocol):
    """What a door's protocol has to have. After `closed` it is told nothing more."""

    def opened(self, socket: "MessageSocket", /) -> None: ...

    def messages_received(self, messages: Messages, size_bytes: int, /) -> None:
        """Take messages in order, never none of them: text as `str`, binary as `bytes`; and answer pings.

        `size_bytes` have come since the last call.
        """

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def closed(self, error: Exception | None, /) -> None: ...


class Nobody:
    """The inner protocol of a connection that has told its own that it is over."""

    def opened(self, socket: "MessageSocket", /) -> None: ...

    def messages_received(self, messages: Messages, size_bytes: int, /) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def closed(self, error: Exception | None, /) -> None: ...


NOBODY = Nobody()


class MessageSocket(FrameSocket):
    """One connection that carries messages.

    Args:
        limit_bytes: of one message.
        deflate: what was agreed on, if messages may be compressed.
    """

    __slots__ = (
        "_deflate",
        "_heard_at",
        "_is_unheard",
        "_keepalive",
        "_new_bytes",
        "_pinged_at",
        "_unsent_bytes",
    )

    _inner: MessageInner
    _reader: MessageReader
    _peer: Peer

    def __init__(
        self,
        socket: asyncio.Transport,
        inner: MessageInner,
        buffer: memoryview,
        limit_bytes: int,
        peer: Peer,
        keepalive: Keepalive,
        deflate: Deflate | None = None,
        notes: Notes | None = None,
    ) -> None:
        super().__init__(socket, buffer, peer, notes)
        self._inner = inner
        self._reader = MessageReader(limit_bytes, deflate=deflate)
        self._deflate = deflate
        self._keepalive = keepalive
        self._heard_at = keepalive.now()
        self._pinged_at: float | None = None  # while an answer is awaited
        self._unsent_bytes = 0  # what waited to be sent when it was last looked at
        self._is_unheard = False  # nobody has listened to it since then
        self._new_bytes = 0  # what has come since messages were last handed on

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self._peer

    @property
    def is_deflated(self) -> bool:
        """Whether this peer reads `deflated_frame`s; plain ones it reads in any case."""
        return self._deflate is not None and self._deflate.takes_ours

    # Writing and closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send what is one or more whole frames already; after a close it goes nowhere."""
        if data and not self._has_said_close:
            self._socket.write(data)

    def close(
        self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "", timeout_s: float | None = None
    ) -> None:
        """Say why it ends, and end it when the peer has answered, or does not for too long.

        What was written before still leaves; what comes meanwhile is not handed on any more.

        Args:
            timeout_s: what is too long, if not the same as for everyone; closing again can shorten it.
        """
        if not self.is_closing():
            self._limit_closing(timeout_s)
            if not self._has_said_close:
                self._say_close(close_payload(code, reason))
                self._socket.resume_reading()  # or the answer would never be seen

    # Reading

    def _begin_inner(self) -> None:
        self._keepalive.watch(self)
        self._inner.opened(self)

    def _end_inner(self, error: Exception | None) -> None:
        self._keepalive.forget(self)
        inner, self._inner = self._inner, NOBODY
        inner.closed(error)

    def _take(self, data: bytes) -> None:
        if self.is_closing():
            return
        self._heard_at = self._keepalive.now()
        self._new_bytes += len(data)
        reader = self._reader
        messages = reader.feed(data)
        if reader.pings and not self._is_full:
            messages = self._with_pings(messages)
        self._hand_on(messages)
        if (reader.pings or reader.close is not None or reader.error is not None) and not self.is_closing():
            self._on_controls()

    def _hand_on(self, messages: Messages) -> None:
        if messages and not self._has_said_close and not self.is_closing():
            size_bytes, self._new_bytes = self._new_bytes, 0
            self._inner.messages_received(messages, size_bytes)

    def _with_pings(self, messages: Messages) -> Messages:
        """Put pings between the messages where they came, so that they are answered in their place."""
        pings, self._reader.pings = self._reader.pings, []
        woven: Messages = []
        done = 0
        for place, ping in zip(self._reader.ping_places, pings, strict=True):
            woven += messages[done:place]
            woven.append(Pinged(ping))
            done = place
        return woven + messages[done:]

    def _on_close(self, payload: bytes) -> None:
        # Its side is left open until it closes it: if something came after its last word, closing both would
        # reset the connection, and it might never read ours.
        self._say_close(payload)
        self._is_deaf = True
        hang_up(self._socket)
        self._limit_closing()
        self._end_inner(None)

    # Silence

    def resume_reading(self) -> None:
        self._heard_at = self._keepalive.now()  # it may have spoken while nobody listened
        self._is_unheard = False
        super().resume_reading()

    def check_deadline(self, now: float) -> float | None:
        """Ping a peer that has been silent, and give up one that stays so."""
        if self.is_closing() or self._has_said_close:
            return None  # this has its own time limit
        if not self._socket.is_reading():
            return self._check_reading(now)
        keepalive, pinged_at = self._keepalive, self._pinged_at
        if pinged_at is not None and self._heard_at < pinged_at:
            return self._check_answer(now, pinged_at)
        self._pinged_at = None
        if now < self._heard_at + keepalive.ping_s:
            return self._heard_at + keepalive.ping_s
        self._pinged_at = now
        self._unsent_bytes = self._socket.get_write_buffer_size()
        self._socket.write(PING_FRAME)
        return now + keepalive.timeout_s

    def _check_reading(self, now: float) -> float | None:
        """Give up a peer that nobody listens to and that reads nothing either: it may wait for ever."""
        unsent_bytes = self._socket.get_write_buffer_size()
        if self._is_unheard and unsent_bytes and unsent_bytes >= self._unsent_bytes:
            self._notes.write("nothing read from us", peer=str(self._peer))
            self.abort()
            return None
        self._heard_at, self._pinged_at = now, None
        self._unsent_bytes, self._is_unheard = unsent_bytes, True
        return now + self._keepalive.ping_s

    def _check_answer(self, now: float, pinged_at: float) -> float | None:
        if now < pinged_at + self._keepalive.timeout_s:
            return pinged_at + self._keepalive.timeout_s
        unsent_bytes = self._socket.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:  # slow, and not there yet
            self._unsent_bytes, self._pinged_at = unsent_bytes, now
            return now + self._keepalive.timeout_s
        self._notes.write("no answer to a ping", peer=str(self._peer))
        self.abort()
        return None
