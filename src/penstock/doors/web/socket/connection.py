"""One client of `/ws`: a WebSocket of messages on one side, a session of core on the other.

Responses have the order of the requests. The publishes of one step go to core together; other requests wait
until they have their responses. Subscriptions may replay much, so their number in one turn of the loop is
limited. Responses leave together after the requests of a read, or before the next event. A client that
does not read its responses is not read from.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival
from penstock.core.sessions.session import Ending, Session
from penstock.doors.web.socket.inbound import Inbound
from penstock.doors.web.socket.replies import (
    ENDINGS,
    PONG,
    SLOW_TEXT,
    Error,
    Info,
    Pong,
    Reply,
    complaint_of,
    failure_of,
    frame_of,
    rate_error,
    refusal_of,
)
from penstock.doors.web.socket.requests import (
    BadMessage,
    Ping,
    Publish,
    Subscribe,
    Unsubscribe,
    read_request,
    request_id_of,
)
from penstock.doors.web.socket.slow_client import SlowClientTimer
from penstock.doors.web.socket.subscriptions import Subscriptions
from penstock.errors import PenstockError, ShuttingDown
from penstock.model import Door
from penstock.net.door import Peer
from penstock.net.rate_limit import TokenBucket
from penstock.net.read_pause import BACKPRESSURE, NO_PAUSE, ORDER, UNREAD_RESPONSES, ReadPause
from penstock.wire.websocket.encoding import CloseCode, Pinged

if TYPE_CHECKING:
    import asyncio

    from penstock.doors.web.socket.door import SocketDoor
    from penstock.net.websocket.message_socket import MessageSocket
    from penstock.wire.websocket.messages import Messages

Item = Subscribe | Unsubscribe | Publish | bytes
"""A request that waits, or the response to one."""
NOT_JSON = ("INVALID_JSON", "INTERNAL")
"""Codes of messages that cannot be read: no JSON, or a binary frame."""
WRITE_BUFFER_BYTES = 64 * 1024
UNREAD_LIMIT_BYTES = 256 * 1024
"""Bytes that a client may leave unread before it is not read from."""
TURN_BYTES = 64 * 1024
"""Bytes that subscriptions of one connection may send in one turn of the loop."""
CHANGE_BYTES = 4 * 1024
"""Assumed cost of a change at least."""
CLOSING_S: dict[Ending, float] = {Ending.SLOW: 30.0, Ending.SHUTTING_DOWN: 1.0}
"""Time for the last bytes of a connection, where it is not the default."""


class Client:
    """An accepted client and its parts."""

    __slots__ = ("inbound", "session", "slow_timer", "subscriptions")

    def __init__(
        self,
        session: Session,
        inbound: Inbound,
        subscriptions: Subscriptions,
        slow_timer: SlowClientTimer,
    ) -> None:
        self.session = session
        self.inbound = inbound
        self.subscriptions = subscriptions
        self.slow_timer = slow_timer


class SocketConnection:
    """One WebSocket on one side, a session of core on the other."""

    __slots__ = (
        "_bucket",
        "_client",
        "_identity",
        "_is_gathering",
        "_is_over",
        "_replies",
        "_socket",
        "_waiting",
        "door",
        "is_counted",
        "lines_logged",
        "peer",
        "read_pause",
    )

    has_arrived = True  # the address limits have counted it when the HTTP listener accepted it
    _socket: "MessageSocket"

    def __init__(self, door: "SocketDoor", peer: Peer, identity: Identity) -> None:
        """Args:
        identity: the user, with a unique client id.
        """
        self.door = door
        self.read_pause = NO_PAUSE
        self._replies: list[bytes] = []  # leave with the next write
        self._is_gathering = False
        self._is_over = False  # nothing more leaves
        self.peer = peer
        self._identity = identity
        self._client: Client | None = None  # which refers back here, until it has left
        settings = door.settings
        self._bucket = TokenBucket(settings.rate_per_s, settings.burst) if settings.rate_per_s else None
        self._waiting: list[Item] = []  # read, but its turn has not come
        self.is_counted = False  # by the guard of its address
        self.lines_logged = 0

    @property
    def user(self) -> str:
        """User name; empty without one."""
        return self._identity.user or ""

    @property
    def client_id(self) -> str:
        """Its unique client id."""
        return self._identity.client_id

    # The socket

    def opened(self, socket: "MessageSocket") -> None:
        """The handshake is done."""
        self.attach(socket)
        if not self.door.on_open(self):
            self.end(CloseCode.POLICY_VIOLATION, "Too many connections from this address")
            return
        try:
            session, _ = self.door.broker.connect(
                Arrival(self._identity, Door.WEB), self, reencode=lambda form: form
            )
        except PenstockError as error:
            self._refuse(error)
            return
        form = self.door.deflated_form if socket.is_deflated else self.door.encoding
        self._client = Client(
            session,
            Inbound(self, session),
            Subscriptions(self, session, form),
            SlowClientTimer(self.door, session),
        )
        self.reply(Info(f"Connected with client_id: {self.client_id}"))
        self.door.broker.resume(session)

    def messages_received(self, messages: "Messages", size_bytes: int) -> None:
        """Act on everything that one step brought."""
        client, door = self._client, self.door
        door.counters.bytes_received += size_bytes
        if client is None:
            return
        with door.broker.turn(door.loop.time()):
            requests = [self._read(message) for message in messages]
            if self._waiting:
                self._waiting += requests
            else:
                self._serve(client, requests)
            door.broker.flush_part(len(requests))

    def pause_writing(self) -> None:
        """Nothing more fits into the socket."""
        if self._client is not None:
            self.door.broker.pause(self._client.session)
            if self.door.slow_after_s:
                self._client.slow_timer.on_full()

    def resume_writing(self) -> None:
        """Something fits again."""
        client = self._client
        self.read_pause.resume(UNREAD_RESPONSES)
        if client is not None:
            self.door.broker.unpause(client.session)
            client.slow_timer.on_free()

    def closed(self, error: Exception | None) -> None:
        """The socket is closed, or the client has sent a close frame."""
        client = self._detach_client()
        try:
            if client is not None:
                self.door.broker.disconnect(client.session, self, is_graceful=error is None)
        finally:
            self.door.on_lost(self)
            self.detach()

    # Writing

    def attach(self, socket: "MessageSocket") -> None:
        """Begin to write to a socket."""
        self._socket = socket
        self.read_pause = ReadPause(cast("asyncio.Transport", socket))
        socket.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def detach(self) -> None:
        """The socket is closed; further writes are ignored."""
        self._is_over = True
        self.read_pause = NO_PAUSE

    def write(self, data: bytes) -> None:
        """Send events: those of its own messages after the responses to them."""
        client = self._client
        if client is not None and client.inbound.awaited and client.inbound.withhold(data):
            return
        if self._replies or self._is_over:
            self.send(data)
        else:
            self.door.counters.bytes_sent += len(data)
            self._socket.write(data)

    def send(self, data: bytes) -> None:
        """Send bytes, after pending responses; ignored after the end."""
        if self._is_over:
            return
        if self._replies:
            data = b"".join((*self._replies, data))
            self._replies.clear()
        self.door.counters.bytes_sent += len(data)
        self._socket.write(data)

    def reply(self, reply: Reply) -> None:
        """Send a response, at once or with those being gathered; ignored after the end."""
        self.send_frames(frame_of(reply))

    def send_frames(self, *frames: bytes) -> None:
        """The same with frames."""
        if self._is_over:
            return
        self._replies += frames
        if not self._is_gathering:
            self._send_replies()

    @contextmanager
    def joined_writes(self) -> Iterator[None]:
        """Join responses until the block ends."""
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._send_replies()

    def _send_replies(self) -> None:
        if not self._replies:
            return
        self.door.counters.control_packets_sent += len(self._replies)
        self.send(b"")
        if self._socket.get_write_buffer_size() > UNREAD_LIMIT_BYTES:
            self.read_pause.pause(UNREAD_RESPONSES)

    # Core's connection

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """A slow subscriber or disk makes this publisher wait: it is not read from."""
        self.read_pause.pause(BACKPRESSURE)
        if withholds_acks and self._client is not None:
            self._client.inbound.acks.block()
            self._client.inbound.release()  # it may be its own slow subscriber

    def unblock(self) -> None:
        """It need not wait any more."""
        self.read_pause.resume(BACKPRESSURE)
        if self._client is not None:
            self._client.inbound.acks.unblock()

    def close(self, reason: str) -> None:
        """Core ends the connection."""
        ending = Ending(reason)
        client = self._detach_client()
        if client is None:
            return
        if ending is Ending.SLOW:
            self._on_slow(client)
        self.end(*ENDINGS[ending], CLOSING_S.get(ending))

    def _on_slow(self, client: Client) -> None:
        """Report a slow client to itself and to the log."""
        door, outbox = self.door, client.session.outbox
        limits = outbox.limits if outbox is not None else door.broker.settings.outbox
        if client.slow_timer.has_run_out:
            limit = {"slow_after_ms": door.settings.slow_after_ms}
        elif outbox is not None and outbox.is_short_of_bytes:
            limit = {"outbox_bytes": limits.bytes}
        else:
            limit = {"outbox_messages": limits.messages}
        self.reply(Error("SLOW_CONSUMER", SLOW_TEXT, {"client_id": self.client_id, **limit}))
        door.on_slow(self, limit, self._socket.get_write_buffer_size())

    def check_deadline(self, now: float) -> float | None:
        """It has no deadlines here: the entrance sends pings."""
        return None

    # Requests

    def _read(self, message: str | bytes | Pinged) -> Item:
        """Parse a message, or return the response if it is already known."""
        counters = self.door.counters
        if isinstance(message, Pinged):
            counters.control_packets_received += 1
            return message.pong
        if self._bucket is not None and not self._bucket.take(1, now := self.door.clock.monotonic()):
            return frame_of(rate_error(self._bucket.wait_s(now), request_id_of(message)))
        try:
            request = read_request(message)
        except BadMessage as bad:
            counters.wire_errors += 1
            counters.malformed_packets += bad.code in NOT_JSON
            return frame_of(complaint_of(bad))
        if isinstance(request, Publish):
            return request
        counters.control_packets_received += 1
        if isinstance(request, Ping):
            return PONG if request.request_id is None else frame_of(Pong(request.request_id))
        return request

    def _serve(self, client: Client, requests: list[Item]) -> None:
        with self.joined_writes():
            self._act_on(client, requests)

    def _act_on(self, client: Client, requests: list[Item]) -> None:
        """Carry out requests in order; neighbours that are published go to core together."""
        gathered: list[Publish | bytes] = []
        budget_bytes = TURN_BYTES
        for place, request in enumerate(requests):
            if isinstance(request, Publish | bytes):
                gathered.append(request)
                continue
            self._publish(client, gathered)
            gathered = []
            if self._client is None:  # core has ended it meanwhile
                return
            if client.inbound.is_waiting or budget_bytes <= 0:
                self._waiting = requests[place:]
                self.read_pause.pause(ORDER)
                if not client.inbound.is_waiting:
                    self.resume_soon()
                return
            budget_bytes -= self._change(client, request)
        self._publish(client, gathered)

    def _change(self, client: Client, request: Subscribe | Unsubscribe) -> int:
        """Subscribe or unsubscribe; return about how many bytes that has sent."""
        counters = self.door.counters
        sent_before = counters.bytes_sent
        try:
            if isinstance(request, Subscribe):
                client.subscriptions.subscribe(request)
            else:
                client.subscriptions.unsubscribe(request)
        except Exception:
            self.door.on_failure(self)
            self.reply(failure_of(request.request_id))
        return max(counters.bytes_sent - sent_before, CHANGE_BYTES)

    def _publish(self, client: Client, gathered: list[Publish | bytes]) -> None:
        """Publish messages, with the responses between them in order."""
        if self._client is None or not gathered:
            return
        responses = [item for item in gathered if isinstance(item, bytes)]
        if not client.inbound.is_waiting and len(responses) == len(gathered):
            self.send_frames(*responses)
        else:
            client.inbound.take(gathered)

    def resume_soon(self) -> None:
        """Resume waiting requests: every publish has its response."""
        if self._waiting:
            self.door.loop.call_soon(self._resume)

    def _resume(self) -> None:
        requests, self._waiting = self._waiting, []
        if self._client is not None and requests:
            self.read_pause.resume(ORDER)
            self._serve(self._client, requests)

    # Ending

    def end(self, code: CloseCode, text: str, timeout_s: float | None = None) -> None:
        """Send what is left to be said, and close; `timeout_s` limits how long that may take."""
        self._send_replies()
        self._is_over = True
        self._socket.close(code, text, timeout_s)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._socket.abort()

    def _refuse(self, error: PenstockError) -> None:
        self.reply(refusal_of(error, None))
        is_stopping = isinstance(error, ShuttingDown)
        self.end(*(ENDINGS[Ending.SHUTTING_DOWN] if is_stopping else (CloseCode.TRY_AGAIN_LATER, str(error))))

    def _detach_client(self) -> Client | None:
        """Detach the client, and return it, once."""
        client, self._client = self._client, None
        if client is not None:
            self._waiting = []
            client.inbound.release()
            client.inbound.acks.close()
            client.slow_timer.stop()
        return client

    def close_for_shutdown(self) -> None:
        """Close at shutdown, unless core has done so; a client that is closing gets little time."""
        client = self._detach_client()
        self.end(*ENDINGS[Ending.SHUTTING_DOWN], CLOSING_S[Ending.SHUTTING_DOWN])
        if client is not None:
            self.door.broker.disconnect(client.session, self, is_graceful=True)
