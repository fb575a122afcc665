"""Our server and another library's client, joined in memory, and what each of them meant and saw.

The client (`h2`) checks everything that the server writes: frames, header blocks, states and windows.
"""

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    PingAckReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    TrailersReceived,
)
from h2.events import Event as ClientEvent
from h2.events import StreamReset as ClientReset
from h2.exceptions import NoAvailableStreamIDError, TooManyStreamsError
from h2.settings import SettingCodes
from msgspec import Struct, field

from penstock.wire.http2 import (
    BodyReceived,
    Drained,
    ErrorCode,
    Field,
    Limits,
    Ponged,
    RequestStarted,
    ServerConnection,
    StreamReset,
    encode_headers,
)
from tests.wire.http2.raw_client import ACK, SETTINGS, frames_of

REQUEST: list[Field] = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/service/Method"),
    (b":authority", b"localhost"),
]
PATTERN = bytes(range(251)) * 800


class Call(Struct, eq=False):
    """One stream: what both sides meant and what both saw."""

    id: int
    fields: list[Field]
    asked: bytearray = field(default_factory=bytearray)
    has_asked: bool = False
    heard: bytearray = field(default_factory=bytearray)
    has_heard: bool = False
    held_bytes: int = 0
    is_known: bool = False  # to the server's owner
    head: list[Field] | None = None
    answered: bytearray = field(default_factory=bytearray)
    trailers: list[Field] | None = None
    seen_head: list[Field] | None = None
    seen: bytearray = field(default_factory=bytearray)
    seen_trailers: list[Field] | None = None
    has_ended: bool = False  # as the client sees it
    reset_by_client: bool = False
    reset_by_server: ErrorCode | None = None
    seen_reset: int | None = None
    is_over: bool = False  # as the server's owner sees it


class Pair:
    """Moves bytes between the two as it is told."""

    def __init__(self, limits: Limits) -> None:
        self.server = ServerConnection(limits)
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.client.initiate_connection()
        self.calls: dict[int, Call] = {}
        self.pings: list[bytes] = []
        self.pongs: list[bytes] = []
        self._up = b""  # on its way to the server
        self._down = b""
        self._unread: list[tuple[int, int]] = []  # bytes that the client has not made room for again
        self._written_bytes = self._seen_bytes = 0  # of all that goes down
        self._stops: list[int] = []
        self._has_windows = True  # as large as at first
        self._unconfirmed = 1  # settings of the client
        self._now = 0.0

    # What the client does.

    def ask(self, fields: list[Field], *, is_last: bool) -> None:
        """Open a stream, if the client thinks it may."""
        try:
            stream_id = self.client.get_next_available_stream_id()
            self.client.send_headers(stream_id, REQUEST + fields, end_stream=is_last)
        except (TooManyStreamsError, NoAvailableStreamIDError):
            return
        self.calls[stream_id] = Call(stream_id, fields, has_asked=is_last)

    def add(self, call: Call, size: int, *, is_last: bool) -> None:
        """Send some of a request's body, as much as there is room for."""
        if call.has_asked or call.reset_by_client or call.seen_reset is not None:
            return
        room = self.client.local_flow_control_window(call.id)
        data = PATTERN[len(call.asked) % 251 :][
            : max(0, min(size, room, self.client.max_outbound_frame_size))
        ]
        self.client.send_data(call.id, data, end_stream=is_last)
        call.asked += data
        call.has_asked = is_last

    def cancel(self, call: Call) -> None:
        """Reset a stream from the client's side."""
        is_done = call.has_asked and call.has_ended
        if not (is_done or call.reset_by_client or call.seen_reset is not None):
            self.client.reset_stream(call.id, ErrorCode.CANCEL)
            call.reset_by_client = True

    def change(self, code: SettingCodes, value: int) -> None:
        """Change a setting of the client, if all it has sent are confirmed.

        It takes any confirmation for that of the oldest change of each setting, whenever that was sent.
        """
        if not self._unconfirmed:
            self.client.update_settings({code: value})
            self._unconfirmed += 1
            self._has_windows = self._has_windows and code is not SettingCodes.INITIAL_WINDOW_SIZE

    def read(self) -> None:
        """Make room for all that the client has seen."""
        for stream_id, size in self._unread:
            self.client.acknowledge_received_data(size, stream_id)
        self._unread.clear()

    def ping(self, payload: bytes) -> None:
        """Send a ping from the client."""
        self.client.ping(payload)
        self.pings.append(payload)

    # What the server's owner does.

    def respond(self, call: Call, fields: list[Field]) -> None:
        """Begin an answer."""
        if call.is_known and not call.is_over and call.head is None:
            call.head = [(b":status", b"200"), *fields]
            self.server.respond(call.id, encode_headers(call.head))

    def send(self, call: Call, size: int) -> None:
        """Send some of an answer, whether there is room or not."""
        if call.head is not None and not call.is_over and call.trailers is None:
            data = PATTERN[len(call.answered) % 251 :][:size]
            waiting = self.server.send(call.id, data)
            assert waiting == self.server.waiting_bytes(call.id)
            call.answered += data

    def finish(self, call: Call, fields: list[Field]) -> None:
        """End an answer.

        It has trailers wherever a window may be below zero: there the client takes no empty frame, though it
        needs no room.
        """
        if call.head is not None and not call.is_over and call.trailers is None:
            call.trailers = fields = fields if self._has_windows else fields or [(b"grpc-status", b"0")]
            self.server.finish(call.id, encode_headers(fields))

    def reset(self, call: Call, code: ErrorCode) -> None:
        """Reset a stream from the server's side, if it is not over."""
        if call.is_known and not call.is_over and call.trailers is None:
            self.server.reset(call.id, code)
            call.reset_by_server, call.is_over = code, True

    def consume(self, call: Call) -> None:
        """Be done with all that came."""
        self.server.consumed(call.id, call.held_bytes)
        call.held_bytes = 0

    # What the network does.

    def go_up(self, size: int | None = None) -> int:
        """Bring bytes to the server, and tell how many."""
        self._up += self.client.data_to_send()
        chunk, self._up = self._up[:size], (b"" if size is None else self._up[size:])
        self._now += 0.01
        for event in self.server.feed(chunk, self._now):
            self._on_server_event(event)
        assert self.server.error is None, self.server.error
        return len(chunk)

    def go_down(self, size: int | None = None) -> int:
        """Bring bytes to the client, and tell how many."""
        self._down += self._drain()
        chunk, self._down = self._down[:size], (b"" if size is None else self._down[size:])
        start, self._seen_bytes = self._seen_bytes, self._seen_bytes + len(chunk)
        cuts = [stop - start for stop in self._stops if start < stop < self._seen_bytes]
        for begin, end in zip([0, *cuts], [*cuts, len(chunk)], strict=True):
            for event in self.client.receive_data(chunk[begin:end]):
                self._on_client_event(event)
        return len(chunk)

    def _drain(self) -> bytes:
        """What the server writes; the client has to see confirmed settings before it sees what follows."""
        data, place = self.server.drain(), self._written_bytes
        for kind, flags, _, payload in frames_of(data):
            place += 9 + len(payload)
            if kind == SETTINGS and flags & ACK:
                self._stops.append(place)
        self._written_bytes = place
        return data

    def settle(self) -> None:
        """Move everything and make room for everything, until nothing happens any more."""
        for _ in range(1_000):
            self.read()
            for call in self.calls.values():
                self.consume(call)
                self._open(call)
            if not self.go_up() + self.go_down():
                return
        raise AssertionError("it never ends")

    def _open(self, call: Call) -> None:
        is_open = not (call.has_ended or call.reset_by_client or call.seen_reset is not None)
        if is_open and self.client.remote_flow_control_window(call.id) < 10_000:
            self.client.increment_flow_control_window(100_000, call.id)

    def _on_server_event(self, event: object) -> None:
        assert not isinstance(event, Ponged)
        call = self.calls[event.stream_id]  # type: ignore[attr-defined]
        if isinstance(event, RequestStarted):
            assert not call.is_known
            call.is_known = True
            head = event.head
            assert [(b":method", head.method), (b":scheme", head.scheme), (b":path", head.path)] == REQUEST[
                :3
            ]
            assert head.authority == b"localhost"
            assert list(head.fields) == call.fields
            call.has_heard = event.is_last
        elif isinstance(event, BodyReceived):
            assert call.is_known
            assert not call.has_heard
            call.heard += event.data
            call.held_bytes += len(event.data)
            call.has_heard = event.is_last
        elif isinstance(event, StreamReset):
            assert call.reset_by_client
            assert event.code == ErrorCode.CANCEL
            call.is_over = True
        else:
            assert isinstance(event, Drained)
            assert self.server.waiting_bytes(call.id) == 0

    def _on_client_event(self, event: ClientEvent) -> None:
        if isinstance(event, PingAckReceived):
            self.pongs.append(event.ping_data)
        elif isinstance(event, SettingsAcknowledged):
            self._unconfirmed -= 1
        call = self.calls.get(getattr(event, "stream_id", None) or 0)
        if call is None:
            return
        if isinstance(event, ResponseReceived):
            call.seen_head = [(key, value) for key, value in event.headers]
        elif isinstance(event, DataReceived):
            call.seen += event.data
            self._unread.append((call.id, event.flow_controlled_length))
        elif isinstance(event, TrailersReceived):
            call.seen_trailers = [(key, value) for key, value in event.headers]
        elif isinstance(event, StreamEnded):
            call.has_ended = True
        elif isinstance(event, ClientReset):
            call.seen_reset = event.error_code
