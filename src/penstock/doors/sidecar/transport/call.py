"""One gRPC call on HTTP/2: messages in, messages out, and its end.

Nothing is buffered here for a slow client: sent data waits with its HTTP/2 stream, and the handler is
paused. Data of the client that is not taken is not returned to its window, so that there is at most a
window of it.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.core.access.identity import Identity
from penstock.doors.sidecar.transport.method import (
    HIGH_WATER_BYTES,
    EndCause,
    Handler,
    Metadata,
    Streaming,
    Unary,
)
from penstock.net.log_throttle import shortened
from penstock.wire.grpc import (
    HEAD,
    OK_TRAILERS,
    PREFIX_BYTES,
    CallFault,
    MessageReader,
    Status,
    encode_message,
    encode_refusal,
    encode_trailers,
)
from penstock.wire.http2 import Envelope, ErrorCode

if TYPE_CHECKING:
    from penstock.doors.sidecar.transport.connection import Connection
    from penstock.doors.sidecar.transport.request_headers import Request

OK: Final = Status.OK
"""A constant of this module: Python 3.11 takes long to look up a member of an enum."""
UNARY: Final = Envelope(HEAD, OK_TRAILERS)
"""Surrounds the one message of a response that went well."""
TOO_MUCH = "too many messages are on their way; try again"
_NOT_ONE = "the body of this call has to be one message"


def _prefix(size: int) -> bytes:
    """Prefix of a message of this size, as `encode_message` writes it."""
    return b"\0" + size.to_bytes(4, "big", signed=True)


class Deadline:
    """A call that ends by itself at some time."""

    __slots__ = ("call",)

    def __init__(self, call: "Http2Call") -> None:
        self.call = call


class Http2Call:
    """One stream of a connection: a `Call` of methods."""

    __slots__ = (
        "_has_ended",
        "_has_responded",
        "_is_admitted",
        "_is_delivering",
        "_messages",
        "_method",
        "_reader",
        "_request",
        "_stream_id",
        "_unfinished_bytes",
        "_unread",
        "connection",
        "deadline",
        "handler",
        "identity",
        "is_over",
        "is_paused",
        "is_reading_paused",
        "metadata",
        "path",
        "peer",
        "timer",
    )

    def __init__(
        self, connection: "Connection", stream_id: int, request: "Request", deadline: float | None
    ) -> None:
        assert request.method is not None
        self.path = request.path
        self.metadata: Metadata = request.metadata
        self.peer = connection.peer
        self.deadline = deadline
        self.identity: Identity | None = None
        self.handler: Handler | None = None
        self.is_over = False
        self.connection = connection
        self._stream_id = stream_id
        self._request = request
        self._method = request.method
        self._reader: MessageReader | None = None
        self._messages: deque[bytes] | None = None  # whole, and not taken yet
        self._unread: bytearray | None = None  # received during a pause
        self._unfinished_bytes = 0
        self._has_ended = False  # the client sends no more
        self._has_responded = False
        self._is_admitted = False
        self.is_reading_paused = False  # its handler wants no messages
        self._is_delivering = False
        self.is_paused = False  # its handler is paused
        self.timer: Deadline | None = None

    # From the client

    def begin(self) -> None:
        """The call is authenticated: start the method."""
        if self.is_over:
            return
        self._is_admitted = True
        try:
            if type(self._method) is Streaming:
                self._begin_stream(self._method)
            if self._unread is not None and not self.is_reading_paused:
                self._read_on()
        except Exception:  # an error of one call must not affect others
            self.connection.on_failure(self)

    def _begin_stream(self, method: Streaming) -> None:
        handler = method.begin(self)
        if self.is_over:
            return  # it was ended elsewhere
        self.handler = handler
        self.is_paused = False  # another handler was notified
        if self.connection.is_full:
            self.pause()

    def take(self, data: bytes, is_last: bool) -> None:
        """Process some of the body."""
        if not self._is_admitted or self.is_reading_paused:
            if self._unread is None:
                self._unread = bytearray()  # a list of small parts would weigh ten times as much
            self._unread += data
            self._has_ended |= is_last
            return
        self._has_ended = is_last
        if is_last and self._reader is None and type(self._method) is Unary:
            # Nearly always: all of the body at once, and that is one message as it is.
            size = len(data) - PREFIX_BYTES
            if data[:PREFIX_BYTES] == _prefix(size) and size <= self.connection.limit_bytes:
                self._method.begin(self, data[PREFIX_BYTES:])
                return
        self._read(data)

    def _read_on(self) -> None:
        unread, self._unread = self._unread, None
        if unread is not None:
            self._read(bytes(unread))

    def _read(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            reader = self._reader = MessageReader(self.connection.limit_bytes, self._request.encoding)
            self._messages = deque()
        assert self._messages is not None
        whole = reader.feed(data)
        self._messages += whole
        if self._has_ended:
            reader.finish()
        self.connection.http2.consumed(self._stream_id, len(data))
        if reader.held_bytes and (whole or not self._unfinished_bytes):
            self.connection.await_rest(self._stream_id)
        self._count_unfinished(reader)
        if type(self._method) is Unary:
            self._take_only(self._method, reader)
        else:
            self._deliver()

    def _count_unfinished(self, reader: MessageReader) -> None:
        """Bound what all calls hold of messages that are not whole."""
        more = reader.held_bytes - self._unfinished_bytes
        self._unfinished_bytes += more
        if not self.connection.door.count_unfinished(more):
            reader.error = CallFault(Status.RESOURCE_EXHAUSTED, TOO_MUCH)

    @property
    def is_unfinished(self) -> bool:
        """A message has begun to come, and is not whole."""
        return bool(self._unfinished_bytes)

    def _take_only(self, method: Unary, reader: MessageReader) -> None:
        messages = self._messages
        assert messages is not None
        if reader.error is not None:
            self.fail(reader.error)
        elif len(messages) > 1 or (self._has_ended and not messages):
            self.fail(CallFault(Status.INTERNAL, _NOT_ONE))
        elif self._has_ended:
            method.begin(self, messages.popleft())

    def _deliver(self) -> None:
        """Give messages to the handler, as long as it takes them."""
        messages, reader = self._messages, self._reader
        if self._is_delivering or messages is None or reader is None:
            return
        self._is_delivering = True
        try:
            while messages and not self.is_reading_paused and not self.is_over:
                assert self.handler is not None
                self.handler.message_received(messages.popleft())
        finally:
            self._is_delivering = False
        if messages or self.is_reading_paused or self.is_over:
            return
        if reader.error is not None:
            self.fail(reader.error)
        elif self._has_ended and self._unread is None:
            self._reader = None  # so that it is notified once
            assert self.handler is not None
            self.handler.messages_ended()

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        if not self.is_reading_paused:
            return
        self.is_reading_paused = False
        if self._is_admitted and not self.is_over:
            self.connection.attempt(self, self._resume)

    def _resume(self) -> None:
        self._deliver()
        if not self.is_reading_paused and not self.is_over:
            self._read_on()

    # To the client

    def send(self, messages: bytes) -> None:
        if self.is_over:
            return
        http2 = self.connection.http2
        if not self._has_responded:
            self._has_responded = True
            http2.respond(self._stream_id, HEAD)
        waiting_bytes = http2.send(self._stream_id, messages)
        self.connection.on_sent(len(messages))
        if waiting_bytes > HIGH_WATER_BYTES and not self.is_paused:
            self.pause()

    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        if self.is_over:
            return
        http2, stream_id = self.connection.http2, self._stream_id
        if self._has_responded:
            is_fine = status is OK and not text
            http2.finish(stream_id, OK_TRAILERS if is_fine else encode_trailers(status, text))
        else:
            http2.respond(stream_id, encode_refusal(status, text), is_last=True)
        self.connection.on_sent(0)
        self._leave(status)

    def respond(self, message: bytes) -> None:
        if self.is_over:
            return
        if self._has_responded:
            self.send(encode_message(message))
            self.finish()
            return
        connection = self.connection
        connection.http2.respond_whole(self._stream_id, UNARY, _prefix(len(message)) + message)
        connection.on_sent(len(message))
        self._leave(OK)

    def pause(self) -> None:
        """Pause the handler."""
        if self.handler is not None and not self.is_paused:
            self.is_paused = True
            self.handler.pause_writing()

    def resume(self) -> None:
        """Resume the handler, if nothing that it sent waits."""
        if self.is_paused and not self.is_over and not self.connection.http2.waiting_bytes(self._stream_id):
            self.is_paused = False
            if self.handler is not None:
                self.handler.resume_writing()

    # The end

    def fail(self, fault: CallFault) -> None:
        """The client has broken the protocol within its call."""
        self.connection.door.note("call refused", self.connection, str(fault), path=shortened(self.path))
        self.end(EndCause.BROKEN, fault.status, str(fault))

    def give_up(self) -> None:
        """The rest of a message does not come."""
        text = "a message was not complete in time"
        self.end(EndCause.BROKEN, Status.DEADLINE_EXCEEDED, text)

    def cancel(self) -> None:
        """The client does not want it any more."""
        self.end(EndCause.CANCELLED)

    def expire(self) -> None:
        """The client does not want to wait any longer."""
        self.end(EndCause.DEADLINE, Status.DEADLINE_EXCEEDED, "deadline exceeded")

    def end(self, cause: EndCause, status: Status | None = None, text: str = "") -> None:
        """End the call, and send its status if the client is connected."""
        if self.is_over:
            return
        handler = self.handler
        if status is None:
            self._leave(Status.CANCELLED)
        elif self.connection.http2.waiting_bytes(self._stream_id):
            self.connection.http2.reset(self._stream_id, ErrorCode.CANCEL)  # it would not read a status
            self._leave(status)
            self.connection.on_sent(0)
        else:
            self.finish(status, text)
        if handler is not None:
            handler.ended(cause)

    def _leave(self, status: Status) -> None:
        """Let go of everything, so that nothing of a call that is over stays but how it ended."""
        self.is_over = True
        self.connection.door.ended[status] += 1
        self.handler = None
        self._messages = self._unread = self._reader = None
        if held_bytes := self._unfinished_bytes + self._request.heavy_bytes:
            self.connection.door.count_unfinished(-held_bytes)
        self.connection.on_over(self._stream_id, self)
