"""Our client and a server, joined in memory, and what each of them meant and saw.

The server is our own, or that of another library (`h2`), which checks everything that the client writes.
"""

from typing import Protocol

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    PingAckReceived,
    RequestReceived,
    SettingsAcknowledged,
    StreamEnded,
)
from h2.events import StreamReset as ForeignReset
from h2.settings import SettingCodes, Settings
from msgspec import Struct, field

from penstock.wire.http2 import (
    BodyReceived,
    ClientConnection,
    Drained,
    ErrorCode,
    Event,
    Field,
    GoneAway,
    Limits,
    Ponged,
    RequestStarted,
    RequestUnprocessed,
    ResponseStarted,
    ServerConnection,
    StreamReset,
    TrailersReceived,
    encode_headers,
    encode_request,
)
from tests.wire.http2.pair import PATTERN

OK: Field = (b":status", b"200")


class Call(Struct, eq=False):
    """One request: what both sides meant and what both saw."""

    id: int
    fields: list[Field]
    asked: bytearray = field(default_factory=bytearray)
    has_asked: bool = False
    is_known: bool = False  # to the server
    heard_fields: list[Field] | None = None
    heard: bytearray = field(default_factory=bytearray)
    has_heard: bool = False
    held_bytes: int = 0  # by the server
    head: list[Field] | None = None
    answered: bytearray = field(default_factory=bytearray)
    trailers: list[Field] | None = None
    reset_by_server: ErrorCode | None = None
    is_stopped: bool = False  # as the server sees it: the client has reset it
    seen_head: tuple[Field, ...] | None = None
    seen: bytearray = field(default_factory=bytearray)
    seen_trailers: tuple[Field, ...] | None = None
    unread_bytes: int = 0  # by the client
    has_ended: bool = False  # as the client sees it
    reset_by_client: bool = False
    seen_reset: int | None = None
    is_unprocessed: bool = False

    @property
    def may_answer(self) -> bool:
        """The server can still do something for it."""
        is_over = self.trailers is not None or self.reset_by_server is not None or self.is_stopped
        return self.is_known and not is_over

    @property
    def may_ask(self) -> bool:
        """The client thinks that it is open."""
        is_over = self.has_ended or self.reset_by_client or self.seen_reset is not None
        return not (is_over or self.is_unprocessed)


class Server(Protocol):
    """The other side."""

    def feed(self, data: bytes, now: float) -> None: ...
    def drain(self) -> bytes: ...
    def respond(self, call: Call) -> None: ...
    def send(self, call: Call, data: bytes) -> int: ...
    def finish(self, call: Call) -> None: ...
    def reset(self, call: Call, code: ErrorCode) -> None: ...
    def consume(self, call: Call) -> None: ...
    def ping(self, payload: bytes) -> None: ...


class OurServer:
    """`ServerConnection`."""

    def __init__(self, calls: dict[int, Call], limits: Limits) -> None:
        self.http2 = ServerConnection(limits)
        self.pongs: list[bytes] = []
        self._calls = calls

    def feed(self, data: bytes, now: float) -> None:
        for event in self.http2.feed(data, now):
            match event:
                case RequestStarted(stream_id=id, head=head, is_last=is_last):
                    call = self._calls[id]
                    assert not call.is_known
                    call.is_known, call.has_heard = True, is_last
                    call.heard_fields = list(head.fields)
                case BodyReceived(stream_id=id, data=body, is_last=is_last):
                    call = self._calls[id]
                    assert not call.has_heard
                    call.heard += body
                    call.held_bytes += len(body)
                    call.has_heard = is_last
                case StreamReset(stream_id=id):
                    self._calls[id].is_stopped = True
                case Drained(stream_id=id):
                    assert self.http2.waiting_bytes(id) == 0
                case Ponged(payload=payload):
                    self.pongs.append(payload)
                case _:
                    raise AssertionError(event)
        assert self.http2.error is None, self.http2.error

    def drain(self) -> bytes:
        return self.http2.drain()

    def respond(self, call: Call) -> None:
        assert call.head is not None
        self.http2.respond(call.id, encode_headers([OK, *call.head]))

    def send(self, call: Call, data: bytes) -> int:
        self.http2.send(call.id, data)
        return len(data)

    def finish(self, call: Call) -> None:
        assert call.trailers is not None
        self.http2.finish(call.id, encode_headers(call.trailers))

    def reset(self, call: Call, code: ErrorCode) -> None:
        self.http2.reset(call.id, code)

    def consume(self, call: Call) -> None:
        self.http2.consumed(call.id, call.held_bytes)
        call.held_bytes = 0

    def ping(self, payload: bytes) -> None:
        self.http2.ping(payload)


class ForeignServer:
    """The server of `h2`, with a window of any size for each stream."""

    def __init__(self, calls: dict[int, Call], window_bytes: int, streams: int) -> None:
        self.http2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        wanted = {
            SettingCodes.INITIAL_WINDOW_SIZE: window_bytes,
            SettingCodes.MAX_CONCURRENT_STREAMS: streams,
        }
        self.http2.local_settings = Settings(client=False, initial_values=wanted)
        self.http2.initiate_connection()
        self.pongs: list[bytes] = []
        self.is_settled = False
        self._calls = calls
        self._ended: set[int] = set()

    def feed(self, data: bytes, now: float) -> None:
        for event in self.http2.receive_data(data):
            call = self._calls.get(getattr(event, "stream_id", None) or 0)
            match event:
                case RequestReceived(headers=headers):
                    assert call is not None and not call.is_known
                    call.is_known = True
                    call.heard_fields = [
                        (name, value) for name, value in headers if not name.startswith(b":")
                    ]
                case DataReceived(data=body, flow_controlled_length=size):
                    assert call is not None
                    call.heard += body or b""
                    call.held_bytes += size or 0
                case StreamEnded():
                    assert call is not None
                    call.has_heard = True
                case ForeignReset():
                    assert call is not None
                    call.is_stopped = True
                case PingAckReceived(ping_data=payload):
                    self.pongs.append(payload or b"")
                case SettingsAcknowledged():
                    self.is_settled = True

    def drain(self) -> bytes:
        return self.http2.data_to_send()

    def respond(self, call: Call) -> None:
        assert call.head is not None
        self.http2.send_headers(call.id, [OK, *call.head])

    def send(self, call: Call, data: bytes) -> int:
        room = min(self.http2.local_flow_control_window(call.id), self.http2.max_outbound_frame_size)
        data = data[: max(0, room)]
        if data:
            self.http2.send_data(call.id, data)
        return len(data)

    def finish(self, call: Call) -> None:
        if call.trailers:
            self.http2.send_headers(call.id, call.trailers, end_stream=True)
        else:
            self.http2.end_stream(call.id)

    def reset(self, call: Call, code: ErrorCode) -> None:
        self.http2.reset_stream(call.id, code)

    def consume(self, call: Call) -> None:
        """Be done with what came; a window below that of the settings has to be opened by hand."""
        if call.held_bytes:
            self.http2.acknowledge_received_data(call.held_bytes, call.id)
            call.held_bytes = 0
        if call.may_answer and not call.has_heard and self.http2.remote_flow_control_window(call.id) < 100:
            self.http2.increment_flow_control_window(20_000, call.id)

    def ping(self, payload: bytes) -> None:
        self.http2.ping(payload)


class ClientPair:
    """Moves bytes between the two as it is told."""

    def __init__(self, server: Server, calls: dict[int, Call], limits: Limits | None = None) -> None:
        self.client = ClientConnection(limits)
        self.server = server
        self.calls = calls
        self.pongs: list[bytes] = []
        self.goodbyes: list[GoneAway] = []
        self._up = self._down = b""
        self._now = 0.0

    # The owner of the client

    def ask(self, fields: list[Field], *, is_last: bool, size: int | None = None) -> Call | None:
        """Start a request, whole if it has a size, unless too many are open."""
        if not self.client.free_streams:
            return None
        block = encode_request(b"POST", b"/service/Method", b"localhost", fields)
        body = PATTERN[: size or 0]
        # The call has to be known before the server hears of it, which is not before bytes are moved.
        id = (
            self.client.request(block, is_last=is_last)
            if size is None
            else self.client.request_whole(block, body)
        )
        call = self.calls[id] = Call(id, fields, has_asked=is_last or size is not None)
        call.asked += body
        return call

    def add(self, call: Call, size: int, *, is_last: bool) -> None:
        """Send some of a request, whether there is room or not."""
        if call.has_asked or not call.may_ask:
            return
        data = PATTERN[len(call.asked) % 251 :][:size]
        assert self.client.send(call.id, data) == self.client.waiting_bytes(call.id)
        call.asked += data
        if is_last:
            self.client.finish(call.id)
            call.has_asked = True

    def cancel(self, call: Call) -> None:
        """Reset a stream from the client's side."""
        if call.may_ask:
            self.client.reset(call.id)
            call.reset_by_client = True

    def read(self, call: Call) -> None:
        """Be done with all that came."""
        self.client.consumed(call.id, call.unread_bytes)
        call.unread_bytes = 0

    # The owner of the server

    def respond(self, call: Call, fields: list[Field]) -> None:
        """Begin a response."""
        if call.may_answer and call.head is None:
            call.head = fields
            self.server.respond(call)

    def send(self, call: Call, size: int) -> None:
        """Send some of a response."""
        if call.may_answer and call.head is not None:
            data = PATTERN[len(call.answered) % 251 :][:size]
            call.answered += data[: self.server.send(call, data)]

    def finish(self, call: Call, fields: list[Field]) -> None:
        """End a response."""
        if call.may_answer and call.head is not None:
            call.trailers = fields
            self.server.finish(call)

    def stop(self, call: Call, code: ErrorCode) -> None:
        """Reset a stream from the server's side."""
        if call.may_answer:
            call.reset_by_server = code
            self.server.reset(call, code)

    # The network

    def go_up(self, size: int | None = None) -> int:
        """Bring bytes to the server, and return how many."""
        self._up += self.client.drain()
        chunk, self._up = self._up[:size], (b"" if size is None else self._up[size:])
        self._now += 0.01
        self.server.feed(chunk, self._now)
        return len(chunk)

    def go_down(self, size: int | None = None) -> int:
        """Bring bytes to the client, and return how many."""
        self._down += self.server.drain()
        chunk, self._down = self._down[:size], (b"" if size is None else self._down[size:])
        self._now += 0.01
        for event in self.client.feed(chunk, self._now):
            self._on_event(event)
        assert self.client.error is None, self.client.error
        return len(chunk)

    def settle(self) -> None:
        """Move everything and make room for everything, until nothing happens any more."""
        for _ in range(3_000):
            for call in self.calls.values():
                self.read(call)
                self.server.consume(call)
            if not self.go_up() + self.go_down():
                return
        raise AssertionError("it never ends")

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Ponged):
            self.pongs.append(event.payload)
            return
        if isinstance(event, GoneAway):
            self.goodbyes.append(event)
            return
        call = self.calls[event.stream_id]  # type: ignore[attr-defined]
        assert call.may_ask or call.reset_by_client
        match event:
            case ResponseStarted(head=head, is_last=is_last):
                assert head.status == 200
                assert call.seen_head is None
                call.seen_head, call.has_ended = head.fields, is_last
            case BodyReceived(data=data, is_last=is_last):
                assert call.seen_head is not None
                call.seen += data
                call.unread_bytes += len(data)
                call.has_ended = is_last
            case TrailersReceived(fields=fields):
                assert call.seen_head is not None
                call.seen_trailers, call.has_ended = fields, True
            case StreamReset(code=code):
                call.seen_reset = code
            case RequestUnprocessed():
                call.is_unprocessed = True
            case _:
                assert isinstance(event, Drained)
                assert self.client.waiting_bytes(call.id) == 0


def check(call: Call) -> None:
    """Both sides have seen what the other meant, or the beginning of it if one has cut it short."""
    assert call.asked.startswith(call.heard)
    assert call.answered.startswith(call.seen)
    assert call.heard_fields in (None, call.fields)
    if call.reset_by_client:
        return
    if call.reset_by_server is not None:
        was_refused = call.reset_by_server is ErrorCode.REFUSED_STREAM and call.seen_head is None
        assert call.is_unprocessed is was_refused
        assert call.seen_reset == (None if was_refused else call.reset_by_server)
        assert not call.has_ended
        return
    if not call.is_known:  # our server refuses what is too much before its owner hears of it
        assert call.is_unprocessed
        return
    assert call.seen_reset is None
    assert not call.is_unprocessed
    assert call.seen_head == (None if call.head is None else tuple(call.head))
    assert call.seen == call.answered
    assert call.seen_trailers == (tuple(call.trailers) if call.trailers else None)
    assert call.has_ended is (call.trailers is not None)
    if call.trailers is None:
        assert call.heard == call.asked
        assert call.has_heard is call.has_asked
