"""An open WebSocket that speaks in messages, for a door whose protocol is made of them.

All messages of one read reach the inner protocol in one call. What it writes are frames already, because one
frame may be for very many connections.
"""

import asyncio
from typing import Protocol

from penstock.doors.base import Peer
from penstock.doors.notes import Notes
from penstock.doors.websocket.deflating import Deflate
from penstock.doors.websocket.encoding import PING, PONG, CloseCode, close_payload, control_frame, text_header
from penstock.doors.websocket.frame_socket import JOINED_BELOW_BYTES, FrameSocket, hang_up
from penstock.doors.websocket.keepalive import Keepalive
from penstock.doors.websocket.messages import MessageReader, Messages

PING_FRAME = control_frame(PING, b"")


class MessageInner(Protocol):
    """What a door's protocol has to have. After `closed` it is told nothing more."""

    def opened(self, socket: "MessageSocket", /) -> None: ...

    def messages_received(self, messages: Messages, /) -> None:
        """Take messages in order, never none of them: text as `str`, binary as `bytes`."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def closed(self, error: Exception | None, /) -> None: ...


class Nobody:
    """The inner protocol of a connection that has told its own that it is over."""

    def opened(self, socket: "MessageSocket", /) -> None: ...

    def messages_received(self, messages: Messages, /) -> None: ...

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

    __slots__ = ("_deflate", "_heard_at", "_keepalive", "_pinged_at", "_unsent_bytes")

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

    def write_text(self, payload: bytes) -> None:
        """Send some UTF-8 as one text frame; after a close it goes nowhere."""
        if self._has_said_close:
            return
        header = text_header(len(payload))
        if len(payload) < JOINED_BELOW_BYTES:
            self._socket.write(header + payload)
        else:
            self._socket.writelines((header, payload))

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Say why it ends, and end it when the peer has answered, or does not for too long.

        What was written before still leaves; what comes meanwhile is not handed on any more.
        """
        if not self.is_closing() and not self._has_said_close:
            self._say_close(close_payload(code, reason))
            self._limit_closing()
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
        reader = self._reader
        messages = reader.feed(data)
        if reader.pings and not self._is_full:
            messages = self._hand_on_to_pings(messages)
        self._hand_on(messages)
        if (reader.pings or reader.close is not None or reader.error is not None) and not self.is_closing():
            self._on_controls()

    def _hand_on(self, messages: Messages) -> None:
        if messages and not self._has_said_close and not self.is_closing():
            self._inner.messages_received(messages)

    def _hand_on_to_pings(self, messages: Messages) -> Messages:
        """Hand on what came before each ping, then answer it; what came after the last is left.

        So what is written behind a pong answers what was sent behind the ping.
        """
        pings, self._reader.pings = self._reader.pings, []
        pongs: list[bytes] = []
        done = 0
        for place, ping in zip(self._reader.ping_places, pings, strict=True):
            if place > done:
                self.write(b"".join(pongs))
                self._hand_on(messages[done:place])
                done, pongs = place, []
            pongs.append(control_frame(PONG, ping))
        self.write(b"".join(pongs))
        return messages[done:]

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
        super().resume_reading()

    def check_deadline(self, now: float) -> float | None:
        """Ping a peer that has been silent, and give up one that stays so."""
        if self.is_closing() or self._has_said_close:
            return None  # this has its own time limit
        if not self._socket.is_reading():
            self._heard_at = now
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

    def _check_answer(self, now: float, pinged_at: float) -> float | None:
        if now < pinged_at + self._keepalive.timeout_s:
            return pinged_at + self._keepalive.timeout_s
        unsent_bytes = self._socket.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:  # slow, and not there yet
            self._unsent_bytes, self._pinged_at = unsent_bytes, now
            return now + self._keepalive.timeout_s
        self._notes.write("no answer to a ping", peer=str(self._peer))
        self._socket.abort()
        return None
