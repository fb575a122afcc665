"""One client of `/ws`: a socket that speaks in messages on one side, a session of core on the other.

Requests are answered in the order in which they came. Publishes go to core as many as one read brought;
whatever else follows them waits until they have their answers. Of subscriptions, which may bring a long past,
only so many are made in one turn of the loop that nobody else notices.
"""

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.core.broker import Arrival
from penstock.core.identity import Identity
from penstock.core.rate import TokenBucket
from penstock.core.sessions import Ending, Session
from penstock.doors.base import Peer
from penstock.doors.gate import Why
from penstock.doors.web.socket.intake import Intake
from penstock.doors.web.socket.link import Link
from penstock.doors.web.socket.replies import (
    ENDINGS,
    PONG,
    SLOW_TEXT,
    Error,
    Info,
    Pong,
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
from penstock.doors.web.socket.slow import Patience
from penstock.doors.web.socket.subscriptions import Subscriptions
from penstock.doors.websocket.encoding import CloseCode, Pinged
from penstock.errors import PenstockError, ShuttingDown
from penstock.model import Door

if TYPE_CHECKING:
    from penstock.doors.web.socket.door import SocketDoor
    from penstock.doors.websocket.message_socket import MessageSocket
    from penstock.doors.websocket.messages import Messages

Item = Subscribe | Unsubscribe | Publish | bytes
"""What is still to be done for a message, or the answer to it."""
TURN_BYTES = 64 * 1024
"""How much the changes of one connection may send in one turn of the loop before others have theirs."""
CHANGE_BYTES = 4 * 1024
"""What a change is taken to cost at least."""
CLOSING_S: dict[Ending, float] = {Ending.SLOW: 30.0, Ending.SHUTTING_DOWN: 1.0}
"""How long the last bytes of a connection may take, where that is not the same as everywhere."""


class Client(Struct):
    """A client that was let in, and all that is done for it."""

    session: Session
    intake: Intake
    subscriptions: Subscriptions
    patience: Patience


class SocketConnection(Link):
    """What stands between one WebSocket and core."""

    __slots__ = (
        "_bucket",
        "_client",
        "_identity",
        "_waiting",
        "is_counted",
        "is_held",
        "notes",
        "peer",
    )

    def __init__(self, door: "SocketDoor", peer: Peer, identity: Identity) -> None:
        """Args:
        identity: who it is, with the client id that nobody else has.
        """
        super().__init__(door)
        self.peer = peer
        self._identity = identity
        self._client: Client | None = None  # which refers back here, until it has left
        settings = door.settings
        self._bucket = TokenBucket(settings.rate_per_s, settings.burst) if settings.rate_per_s else None
        self._waiting: list[Item] = []  # read, but its turn has not come
        self.is_held = False
        self.is_counted = False  # by the guard of its address
        self.notes = 0

    @property
    def client_id(self) -> str:
        """How it is known."""
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
                Arrival(self._identity, Door.WEB), self, reform=lambda form: form
            )
        except PenstockError as error:
            self._turn_away(error)
            return
        form = self.door.deflated_form if socket.is_deflated else self.door.form
        self._client = Client(
            session, Intake(self, session), Subscriptions(self, session, form), Patience(self.door, session)
        )
        self.reply(Info(f"Connected with client_id: {self.client_id}"))
        self.door.broker.resume(session)

    def messages_received(self, messages: "Messages", size_bytes: int) -> None:
        """Act on everything that one read brought."""
        client, door = self._client, self.door
        door.counters.bytes_received += size_bytes
        if client is None:
            return
        if size_bytes >= TURN_BYTES // 2:  # the loop would read on as long as there is more
            self.gate.shut(Why.TURN)
            door.loop.call_soon(self.gate.open, Why.TURN)
        tick = door.broker.tick
        is_alone = tick.open_alone(door.loop.time())
        try:
            requests = [self._read(message) for message in messages]
            if self._waiting:
                self._waiting += requests
            else:
                self._serve(client, requests)
        finally:  # a turn that was begun must end, or everyone waits for ever
            if is_alone:
                tick.flush()
            else:
                tick.forget_read()

    def pause_writing(self) -> None:
        """Nothing more fits into the socket."""
        if self._client is not None:
            self.door.broker.pause(self._client.session)
            if self.door.slow_after_s:
                self._client.patience.on_full()

    def resume_writing(self) -> None:
        """Something fits again."""
        client = self._client
        self.gate.open(Why.ANSWERS)
        if client is not None:
            self.door.broker.unpause(client.session)
            client.patience.on_free()

    def closed(self, error: Exception | None) -> None:
        """The socket is gone, or the client has said that it will be."""
        client = self._let_go()
        try:
            if client is not None:
                self.door.broker.disconnect(client.session, self, is_graceful=error is None)
        finally:
            self.door.on_lost(self)
            self.detach()

    # Core's sink

    def hold(self, *, is_unacknowledged: bool) -> None:
        """A slow subscriber makes this publisher wait: it gets no answers and is not read from."""
        self.is_held = True
        self.gate.shut(Why.HELD)

    def release(self) -> None:
        """It need not wait any more."""
        self.is_held = False
        self.gate.open(Why.HELD)
        if self._client is not None:
            self._client.intake.settle()

    def close(self, reason: str) -> None:
        """Core ends the connection; it may be in the middle of a delivery."""
        ending = Ending(reason)
        client = self._let_go()
        if client is None:
            return
        if ending is Ending.SLOW:
            self._on_slow(client)
        self.end(*ENDINGS[ending], CLOSING_S.get(ending))
        if client.session.sink is self:
            self.door.broker.pause(client.session)  # what is published until then cannot reach it
            self.door.loop.call_soon(
                partial(self.door.broker.disconnect, client.session, self, is_graceful=False)
            )

    def _on_slow(self, client: Client) -> None:
        """Say what it is cut for, to everyone whom that concerns."""
        door, outbox = self.door, client.session.outbox
        limits = door.broker.settings.outbox
        if client.patience.has_run_out:
            limit = {"slow_after_ms": door.settings.slow_after_ms}
        elif outbox is not None and outbox.is_short_of_bytes:
            limit = {"outbox_bytes": limits.bytes}
        else:
            limit = {"outbox_messages": limits.messages}
        self.reply(Error("SLOW_CONSUMER", SLOW_TEXT, {"client_id": self.client_id, **limit}))
        door.on_slow(self, limit, self._socket.get_write_buffer_size())

    # Requests

    def _read(self, message: str | bytes | Pinged) -> Item:
        """What a message asks for; if we can answer that already, the answer."""
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
            counters.malformed_packets += bad.code == "INVALID_JSON"
            return frame_of(complaint_of(bad))
        if isinstance(request, Publish):
            return request
        counters.control_packets_received += 1
        if isinstance(request, Ping):
            return PONG if request.request_id is None else frame_of(Pong(request.request_id))
        return request

    def _serve(self, client: Client, requests: list[Item]) -> None:
        with self.gathering():
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
            if client.intake.is_waiting or budget_bytes <= 0:
                self._waiting = requests[place:]
                self.gate.shut(Why.ORDER)
                if not client.intake.is_waiting:
                    self.go_on_soon()
                return
            budget_bytes -= self._change(client, request)
        self._publish(client, gathered)

    def _change(self, client: Client, request: Subscribe | Unsubscribe) -> int:
        """Change what is subscribed to; answer about how many bytes that has sent."""
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
        """Publish messages, and answer what came between them."""
        if self._client is None or not gathered:
            return
        answers = [item for item in gathered if isinstance(item, bytes)]
        if not client.intake.is_waiting and len(answers) == len(gathered):
            self.say(*answers)
        else:
            client.intake.take(gathered)

    def go_on_soon(self) -> None:
        """Everything has its answer: what had to wait for that can go on."""
        if self._waiting:
            self.door.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        requests, self._waiting = self._waiting, []
        if self._client is not None and requests:
            self.gate.open(Why.ORDER)
            self._serve(self._client, requests)

    # Ending

    def _turn_away(self, error: PenstockError) -> None:
        self.reply(refusal_of(error, None))
        is_stopping = isinstance(error, ShuttingDown)
        self.end(*(ENDINGS[Ending.SHUTTING_DOWN] if is_stopping else (CloseCode.TRY_AGAIN_LATER, str(error))))

    def _let_go(self) -> Client | None:
        """Nothing more is done for the client; answers who that was, once."""
        client, self._client = self._client, None
        if client is not None:
            self._waiting = []
            client.patience.stop()
        return client

    def say_goodbye(self) -> None:
        """The server stops: say so, if core has not; who has been told to go has little time left."""
        client = self._let_go()
        self.end(*ENDINGS[Ending.SHUTTING_DOWN], CLOSING_S[Ending.SHUTTING_DOWN])
        if client is not None:
            self.door.broker.disconnect(client.session, self, is_graceful=True)
