"""gRPC over connections of h2's: calls with whatever metadata one likes, and messages in the order they came.

Honest libraries refuse to send what an intruder sends, and tell what has come when they please. Here the
answer to a call shows that everything is there which the server wrote before it.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import NoAvailableStreamIDError, ProtocolError
from h2.settings import SettingCodes

from penstock.wire.grpc import MessageReader, Status, encode_message

PATIENCE_S = 30.0
LARGEST_WINDOW = 2**31 - 1
LARGEST_BYTES = 64 * 1024 * 1024

Metadata = Sequence[tuple[bytes, bytes]]


class Conversation:
    """One call, as far as it has come."""

    def __init__(self, channel: "Channel", stream_id: int) -> None:
        self.status: Status | None = None
        """How it ended; None while it goes on."""
        self.text = ""
        self._messages: deque[bytes] = deque()
        self._reader = MessageReader(LARGEST_BYTES)
        self._channel = channel
        self._stream_id = stream_id
        self._news = asyncio.Event()

    def send(self, message: bytes, *, is_last: bool = False) -> None:
        """Say something more."""
        self._channel.write(self._stream_id, encode_message(message), is_last=is_last)

    def send_as_it_is(self, data: bytes) -> None:
        """Put bytes into the body that may be no message."""
        self._channel.write(self._stream_id, data, is_last=False)

    @property
    def has_news(self) -> bool:
        """Whether there is a message, or an end."""
        return bool(self._messages) or self.status is not None

    def cancel(self) -> None:
        """Want no more of it."""
        self._channel.cancel(self._stream_id)
        self.end(Status.CANCELLED)

    def take_all(self) -> list[bytes]:
        """What has come since the last call."""
        taken = list(self._messages)
        self._messages.clear()
        return taken

    async def take(self) -> bytes | None:
        """The next message; None if there is none any more."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._messages and self.status is None:
                self._news.clear()
                await self._news.wait()
        return self._messages.popleft() if self._messages else None

    async def ending(self) -> Status:
        """How the call ends."""
        async with asyncio.timeout(PATIENCE_S):
            while self.status is None:
                self._news.clear()
                await self._news.wait()
        return self.status

    # What the channel tells

    def receive(self, data: bytes) -> None:
        self._messages += self._reader.feed(data)
        assert self._reader.error is None, self._reader.error
        self._news.set()

    def read_fields(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in fields:
            if name == b"grpc-status":
                self.status = Status(int(value))
            elif name == b"grpc-message":
                self.text = value.decode()
        self._news.set()

    def end(self, status: Status) -> None:
        """It is over, and with this if the server has not said how."""
        self.status = status if self.status is None else self.status
        self._news.set()


class Channel(asyncio.Protocol):
    """One connection, on which calls are made."""

    def __init__(self, authority: str) -> None:
        sent_as_they_are: dict[str, Any] = {
            "validate_outbound_headers": False,
            "normalize_outbound_headers": False,
        }
        self._http2 = H2Connection(H2Configuration(header_encoding=None, **sent_as_they_are))
        self._authority = authority.encode()
        self._conversations: dict[int, Conversation] = {}
        self._unsent: dict[int, tuple[bytes, bool]] = {}  # what waits for the server's windows
        self._transport: asyncio.Transport
        self.is_lost = False

    @classmethod
    async def open(cls, port: int, context: ssl.SSLContext | None = None) -> "Channel":
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(
            lambda: cls(f"127.0.0.1:{port}"), "127.0.0.1", port, ssl=context
        )
        return channel

    def call(self, path: str, metadata: Metadata, *messages: bytes, is_last: bool = True) -> Conversation:
        """Begin a call, with its first messages."""
        if self.is_lost:
            return self._refused()
        head = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", self._authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *metadata,
        ]
        try:
            stream_id = self._http2.get_next_available_stream_id()
            self._http2.send_headers(stream_id, head)
        except (ProtocolError, NoAvailableStreamIDError):
            return self._refused()
        conversation = self._conversations[stream_id] = Conversation(self, stream_id)
        self.write(stream_id, b"".join(map(encode_message, messages)), is_last=is_last)
        return conversation

    def _refused(self) -> Conversation:
        """A call on a connection that the server has had enough of."""
        conversation = Conversation(self, 0)
        conversation.end(Status.UNAVAILABLE)
        return conversation

    async def ask(self, path: str, metadata: Metadata, message: bytes) -> tuple[Status, bytes]:
        """Make a call that has one answer."""
        conversation = self.call(path, metadata, message)
        answer = await conversation.take()
        return await conversation.ending(), answer or b""

    def write(self, stream_id: int, data: bytes, *, is_last: bool) -> None:
        before, _ = self._unsent.pop(stream_id, (b"", False))
        self._unsent[stream_id] = (before + data, is_last)
        self._send_what_fits()

    def cancel(self, stream_id: int) -> None:
        if self._conversations.pop(stream_id, None) is not None and not self.is_lost:
            self._unsent.pop(stream_id, None)
            with suppress(ProtocolError):  # the server has ended it meanwhile
                self._http2.reset_stream(stream_id, ErrorCodes.CANCEL)
            self._flush()

    def close(self) -> None:
        """End the connection without a word."""
        self._transport.abort()
        self.connection_lost(None)

    def _send_what_fits(self) -> None:
        for stream_id, (data, is_last) in list(self._unsent.items()):
            self._unsent.pop(stream_id)
            try:
                rest = self._send(stream_id, data, is_last=is_last)
            except ProtocolError:
                continue  # the server has ended that call
            if rest:
                self._unsent[stream_id] = (rest, is_last)
        self._flush()

    def _send(self, stream_id: int, data: bytes, *, is_last: bool) -> bytes:
        """Send as much as the server has room for; the rest is answered."""
        while data:
            room = self._http2.local_flow_control_window(stream_id)
            part = data[: min(room, self._http2.max_outbound_frame_size)]
            if not part:
                return data
            self._http2.send_data(stream_id, part)
            data = data[len(part) :]
        if is_last:
            self._http2.end_stream(stream_id)
        return b""

    def _flush(self) -> None:
        if not self.is_lost:
            self._transport.write(self._http2.data_to_send())

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._http2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = LARGEST_WINDOW
        self._http2.initiate_connection()
        self._http2.increment_flow_control_window(LARGEST_WINDOW - 65_535)
        self._flush()

    def data_received(self, data: bytes) -> None:
        for event in self._http2.receive_data(data):
            self._react(event)
        self._send_what_fits()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        conversations, self._conversations = self._conversations, {}
        for conversation in conversations.values():
            conversation.end(Status.UNAVAILABLE)

    def _react(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.connection_lost(None)
        stream_id: Any = getattr(event, "stream_id", None)
        conversation = self._conversations.get(stream_id)
        if isinstance(event, DataReceived):
            self._http2.acknowledge_received_data(event.flow_controlled_length, stream_id)
        if conversation is None or isinstance(event, WindowUpdated):
            return
        if isinstance(event, DataReceived):
            conversation.receive(event.data)
        elif isinstance(event, ResponseReceived | TrailersReceived):
            conversation.read_fields(cast("Iterable[tuple[bytes, bytes]]", event.headers))
        elif isinstance(event, StreamEnded | StreamReset):
            conversation.end(Status.INTERNAL if isinstance(event, StreamEnded) else Status.CANCELLED)
            del self._conversations[stream_id]
