"""One MQTT connection: packets in, calls to core, and its end.

It is an asyncio protocol and core's connection port at once. Reading and writing never wait: a chunk is
worked off in steps, and beyond a share of the turn in later turns (`net/turn_shares.py`). The way out is in
`outbound.py`. What the packets mean is in `connect.py` and `handlers.py`; publishes come in runs and go to
core from here, through `inbound.py` if they want a response.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, cast

from penstock.core.sessions.session import Ending, Session
from penstock.doors.mqtt.handlers import HANDLERS, on_unexpected
from penstock.doors.mqtt.inbound import Inbound
from penstock.doors.mqtt.outbound import Outbound
from penstock.doors.mqtt.reason_codes import (
    ENDINGS,
    ResponsePacket,
    encode_within,
    ends_connection,
    in_words,
    reason_of,
)
from penstock.errors import PenstockError
from penstock.net.door import Peer
from penstock.net.rate_limit import TokenBucket
from penstock.net.read_pause import (
    BACKPRESSURE,
    COMMIT,
    NO_PAUSE,
    RATE_LIMIT,
    TURN,
    ReadPause,
)
from penstock.net.transport import CLOSED_TRANSPORT
from penstock.net.turn_shares import FIRST_WORK, Backlog, fitted
from penstock.runs import Run, Train
from penstock.wire.mqtt.ack_runs import AckRun, encode_ack_run
from penstock.wire.mqtt.packets import Disconnect, Version
from penstock.wire.mqtt.reader import Item
from penstock.wire.mqtt.reasons import (
    InvalidClientId,
    MqttWireError,
    ReasonCode,
    UnsupportedVersion,
)
from penstock.wire.mqtt.run_reader import RunReader

if TYPE_CHECKING:
    from penstock.doors.mqtt.auth import AuthExchange
    from penstock.doors.mqtt.door import MqttDoor

UNCOMMITTED_LIMIT = 1_000
"""Responses that may wait for a commit before the client is not read from."""
EARLY_LIMIT_BYTES = 64 * 1024
"""Bytes that are read while CONNECT waits for its response: a client that disconnects is noticed."""
CLOSING_TIMEOUT_S = 5.0
"""Time for the last bytes of a connection that is being closed."""
UNKNOWN = Peer("", 0)
"""Placeholder until the address is known."""


class Connection:
    """One socket on one side, a session of core on the other.

    An event loop takes it for a protocol by its methods: uvloop fills its buffers, asyncio gives it chunks.
    """

    __slots__ = (
        "_backlog",
        "_deadline",
        "_inbound",
        "_is_lost",
        "_keep_alive_s",
        "_last_seen",
        "_loop",
        "_reader",
        "_session",
        "_transport",
        "_uncommitted_responses",
        "_unfinished",
        "bucket",
        "door",
        "explains",
        "has_arrived",
        "is_blocked",
        "is_bridge",
        "is_closing",
        "is_counted",
        "is_undecided",
        "is_welcome",
        "limit_bytes",
        "lines_logged",
        "outbound",
        "peer",
        "proof",
        "read_pause",
        "refusal",
        "version",
        "wants_details",
        "write",
    )

    _transport: asyncio.Transport
    read_pause: ReadPause
    outbound: Outbound
    write: "Write"
    """Deliveries of core: that of `outbound`, without a call between."""

    def __init__(self, door: "MqttDoor", peer: Peer | None = None, *, has_arrived: bool = False) -> None:
        """Args:
        has_arrived: the address limits have already counted its arrival.
        """
        self.door = door
        self._loop = door.loop
        settings = door.settings
        self._reader = RunReader(
            door.limit_bytes,
            door.names,
            settings.topic_alias_maximum,
            settings.max_control_bytes,
            door.abilities,
        )
        self._reader.work_limit = FIRST_WORK
        self._backlog: Backlog | None = None
        self._unfinished: Iterator[None] | None = None  # a packet that takes more than one step
        self._session: Session | None = None
        self._inbound: Inbound | None = None
        self._uncommitted_responses = 0  # that wait for a commit
        self._deadline = 0.0  # for CONNECT, and for the last bytes
        self._keep_alive_s = self._last_seen = 0.0
        self._is_lost = False  # the socket is closed, and what was read before is worked off
        self.is_closing = self.is_blocked = False
        self.bucket: TokenBucket | None = None
        self.limit_bytes = 0
        self.version = Version.V311
        self.has_arrived = has_arrived
        self.is_bridge = False  # it asked for the subscription options of a bridge
        self.is_counted = False  # by the limits of its address
        self.is_undecided = False  # CONNECT or AUTH has no response; nothing behind it is worked off
        self.is_welcome = False  # it is accepted, and CONNACK leaves after the commit
        self.explains = True  # the client wants reasons in words, or did not say
        self.wants_details = False  # it said so, and learns what is wrong with its packets
        self.lines_logged = 0
        self.peer = peer or UNKNOWN
        self.proof: AuthExchange | None = None
        self.refusal: ReasonCode | None = None  # of an address that connects too often

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        if self.peer is UNKNOWN and (name := transport.get_extra_info("peername")):
            self.peer = Peer(*name[:2])
        self.read_pause = ReadPause(self._transport)
        self._transport.set_write_buffer_limits(high=self.door.settings.write_buffer_bytes)
        self.outbound = Outbound(self.door, self._transport, self.read_pause)
        self.write = self.outbound.write
        self._last_seen = self._loop.time()
        self._deadline = self._last_seen + self.door.settings.connect_timeout_s
        self.door.on_open(self, self._deadline)

    def get_buffer(self, size_hint: int) -> memoryview:
        if self.bucket is not None:
            return self.door.sip  # with a rate limit reads are small: what was read has to wait
        if self.door.shares.is_crowded:
            return self.door.small_buffer
        return self.door.large_buffer if self._reader.is_amid_large else self.door.buffer

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self.door.large_buffer[:size]))

    def data_received(self, data: bytes) -> None:
        """Process a chunk; a transport other than a socket calls it directly."""
        self._last_seen = now = self._loop.time()
        self.door.counters.bytes_received += len(data)
        shares = self.door.shares
        if self._backlog is not None:
            self._backlog.add(data)
            self._wait_for_turn()
            return
        start: int | None = 0
        is_late = shares.is_used_up or self.is_undecided
        if not is_late:
            began = shares.clock()
            with self.door.broker.turn(now):
                start = self._step(data, 0)
                while start is not None and not (self.is_undecided or shares.is_over(began)):
                    start = self._timed_step(data, start)
            shares.charge(began)
        if start is not None:
            self._backlog = Backlog(self, data, start)
            self._wait_for_turn(is_new=is_late)

    def eof_received(self) -> bool:
        """The client sends no more; the transport closes."""
        return False

    def pause_writing(self) -> None:
        self.outbound.pause(self._session)

    def resume_writing(self) -> None:
        self.outbound.resume(self._session)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = CLOSED_TRANSPORT
        self.outbound.close()
        self._is_lost = True
        if self._session is not None and self._backlog is not None:
            self.read_pause = ReadPause(CLOSED_TRANSPORT)
            self.door.shares.queue(self._backlog)  # it comes first, and may end with a DISCONNECT
        elif self.is_welcome and self.is_stranger and self._backlog is not None:
            self.read_pause = ReadPause(CLOSED_TRANSPORT)  # `accept` works off what came with CONNECT
        else:
            self._on_lost()

    def _on_lost(self) -> None:
        """Let go of the session of a closed socket, and leave the door. Idempotent."""
        self.is_closing = True
        self.outbound.stop()
        self._drop_input()
        self._drop_acks()
        session, self._session = self._session, None
        try:
            if session is not None:
                self.door.broker.disconnect(session, self, is_graceful=False)
        finally:
            self.door.on_lost(self)
            self.read_pause = NO_PAUSE

    def check_deadline(self, now: float) -> float | None:
        """Keep alive, the time for CONNECT, and the time for the last bytes after a close."""
        if self not in self.door.connections:
            return None
        if self.is_closing or self._session is None:
            if self.is_undecided:  # its CONNECT was read; the server's response is pending
                return now + self.door.settings.connect_timeout_s
            if now < self._deadline:
                return self._deadline
            self._transport.abort()
            return None
        if not self._keep_alive_s:
            return None
        if self.is_blocked or self.read_pause.is_paused_by(RATE_LIMIT | TURN):
            return now + self._keep_alive_s  # the server does not read: its keep alive is suspended
        if now < self._last_seen + self._keep_alive_s:
            return self._last_seen + self._keep_alive_s
        self.door.note("keep alive timeout", self)
        self.end(ReasonCode.KEEP_ALIVE_TIMEOUT)
        return self._deadline

    # Steps

    @property
    def may_step(self) -> bool:
        """Nothing is worked off behind a CONNECT that has no response."""
        return not self.is_undecided

    def take_step(self, data: bytes, start: int) -> int | None:
        """Work off some of the backlog, in a turn later than that of its read."""
        self._last_seen = now = self._loop.time()
        with self.door.broker.turn(now):
            return self._timed_step(data, start)

    def on_caught_up(self) -> None:
        """The backlog is worked off."""
        self._backlog = None
        if self._is_lost:
            self._on_lost()
        else:
            self.read_pause.resume(TURN)

    def _wait_for_turn(self, *, is_new: bool = False) -> None:
        """Queue the backlog, and read no more until it is worked off.

        Until CONNECT has its response nothing is worked off, and little is read.
        """
        assert self._backlog is not None
        if not self.is_undecided:
            self.door.shares.queue(self._backlog, is_new=is_new)
        if not self.is_undecided or len(self._backlog) > EARLY_LIMIT_BYTES:
            self.read_pause.pause(TURN)

    def _timed_step(self, data: bytes, start: int) -> int | None:
        """Take a step, with the deliveries of it and earlier ones if they are many, and fit the next one."""
        clock, reader = self.door.shares.clock, self._reader
        began = clock()
        rest = self._step(data, start)
        self.door.broker.flush_part(reader.work_limit)
        reader.work_limit = fitted(reader.work_limit, clock() - began)
        return rest

    def _step(self, data: bytes, start: int) -> int | None:
        """Work off some packets of a chunk, or a part of a large one."""
        reader = self._reader
        if self._unfinished is not None:
            self._continue(self._unfinished)
        else:
            items = reader.feed(data, start)
            start = reader.position
            if items:
                self._take(items)
            if reader.error is not None:
                self.on_wire_error(reader.error)
        if reader.error is not None or self.is_closing:
            return None
        return start if start < len(data) or self._unfinished is not None else None

    def _continue(self, steps: Iterator[None]) -> None:
        """Take one step of a packet with many filters; it is the last of those that were read."""
        is_over = next(steps, OVER) is OVER
        self._unfinished = None if is_over or self.is_closing else steps

    def _drop_input(self) -> None:
        self._unfinished = None
        if self._backlog is not None:
            self.door.shares.discard(self._backlog)
            self._backlog = None

    # Connection port of core

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        self.is_blocked = True
        if is_unacknowledged:
            self.read_pause.pause(BACKPRESSURE)
        if withholds_acks and self._inbound is not None:
            self._inbound.acks.block()

    def unblock(self) -> None:
        self.is_blocked = False
        self._last_seen = self._loop.time()
        self.read_pause.resume(BACKPRESSURE)
        if self._inbound is not None:
            self._inbound.acks.unblock()

    def close(self, reason: str) -> None:
        if self.is_stranger:  # a goodbye may not come before CONNACK (MQTT-3.14.0-1)
            self.leave()
            return
        self._session = None
        ending = Ending(reason)
        self.end(ENDINGS[ending], is_heard=ending is Ending.SHUTTING_DOWN)

    # Packets

    def _take(self, items: list[Item]) -> None:
        """Act on what was read, in order."""
        session = self._session
        if session is None:
            if not self.is_closing:  # behind CONNECT or AUTH nothing is read in the same step
                self.door.admission.take(self, items[0])
        elif self._reader.is_plain:
            self._publish(cast("list[Run | Train]", items), session)
        else:
            self._take_each(items, session)

    def _publish(self, items: list[Run | Train], session: Session) -> None:
        """Publish what wants no response: runs and trains, in order."""
        broker, runs = self.door.broker, list[Run]()
        for item in items:
            if isinstance(item, Run):
                runs.append(item)
                continue
            if runs:
                broker.publish_all(runs, session, self.on_refused)
                runs = []
            broker.publish_train(item, session, self.on_refused)
        if runs:
            broker.publish_all(runs, session, self.on_refused)
        if self.bucket is not None:
            self.charge(sum(item.count for item in items))

    def _take_each(self, items: list[Item], session: Session) -> None:
        if len(items) == 1:
            self._take_group(_qos_of(items[0]), items, session)
            return
        for qos, group in groupby(items, _qos_of):
            self._take_group(qos, list(group), session)
            if self.is_closing:
                return

    def _take_group(self, qos: int, items: list[Item], session: Session) -> None:
        if qos == 0:
            self._publish(cast("list[Run | Train]", items), session)
        elif qos == 1:
            self._take_in(session).take_level_one(cast("list[Run]", items))
        else:
            self._take_packets(items, session)

    def _take_in(self, session: Session) -> Inbound:
        if self._inbound is None:
            self._inbound = Inbound(self, session)
        return self._inbound

    def _take_packets(self, items: list[Item], session: Session) -> None:
        for item in items:
            if type(item) is Run:
                self._take_in(session).take_level_two(item)
            else:
                self.door.counters.control_packets_received += 1
                try:
                    steps = HANDLERS.get(type(item), on_unexpected)(self, item, session)
                    if steps is not None:
                        self._continue(steps)
                except MqttWireError as error:
                    self.on_wire_error(error)
            if self.is_closing:
                return

    def accept(self, session: Session, connack: bytes, keep_alive_s: float, aliases: int) -> None:
        """Accepted: send CONNACK, redeliver what was in flight, continue."""
        self._session = session
        self._reader.makes_trains = True
        self._keep_alive_s = keep_alive_s
        self._last_seen = self._loop.time()  # a password may have taken its time
        if keep_alive_s:
            self.door.watch(self, self._last_seen + keep_alive_s)
        self.limit_rate()
        if aliases:
            self.outbound.use_aliases(aliases, self.limit_bytes)
        self.door.counters.control_packets_sent += 1
        self.write(connack)
        if not self._is_lost:  # else nothing that is queued for it may leave
            self.outbound.begin(session, self.version)
        self.is_undecided = False
        self.read_pause.resume(COMMIT)
        if self._backlog is not None:
            self._wait_for_turn()
        elif self._is_lost and not self.is_closing:
            self._on_lost()

    def limit_rate(self) -> None:
        """Apply the current rate limit, once it is accepted."""
        if self._session is not None:
            self.bucket = self.door.bucket_of(self._session.client_id)

    def on_refused(self, run: Run, error: PenstockError) -> None:
        """A publish was not accepted; without a response of its own it may end the connection."""
        if self.is_closing:
            return
        self.door.on_refused(self, run, error)
        if not run.packet_id and ends_connection(error, Version.V5):
            self._loop.call_soon(self.end, reason_of(error), str(error))  # core has more of this chunk

    # Responses

    def respond(self, packet: ResponsePacket | AckRun) -> None:
        """Write the response to a request, or those to a run of acknowledgements."""
        if type(packet) is AckRun:
            self.outbound.control(encode_ack_run(packet, self.version), len(packet.packet_ids))
        else:
            self.outbound.control(self.encode(packet))

    def respond_after_commit(self, packet: ResponsePacket | AckRun, session: Session) -> None:
        """Write the response to a request when what was done for it outlives the server."""
        self._uncommitted_responses += _count_of(packet)
        self.door.broker.when_change_stored(session, partial(self._on_stored, packet))
        if self._uncommitted_responses > UNCOMMITTED_LIMIT:
            self.read_pause.pause(COMMIT)

    def _on_stored(self, packet: ResponsePacket | AckRun) -> None:
        self._uncommitted_responses -= _count_of(packet)
        if not self.is_closing:
            self.respond(packet)
            self.read_pause.resume(COMMIT)

    def encode(self, packet: ResponsePacket) -> bytes:
        """The bytes of a response; if the client does not take this many, the connection ends instead."""
        data = encode_within(packet, self.version, self.limit_bytes)
        if data is None:  # MQTT-3.1.2-24
            self.on_too_large()
        return data or b""

    # Rate limit

    def charge(self, count: int) -> None:
        """Count messages that cannot be refused against the client's rate; it waits as long as that takes."""
        assert self.bucket is not None
        self.bucket.charge(count, self.door.clock.monotonic())
        if not self.read_pause.is_paused_by(RATE_LIMIT):
            self._throttle()

    def _throttle(self) -> None:
        """Read nothing for as long as the client is ahead of its rate, if it still has one to keep."""
        wait_s = 0.0 if self.bucket is None else self.bucket.wait_s(self.door.clock.monotonic())
        self._last_seen = self._loop.time()
        if wait_s > 0:
            self.read_pause.pause(RATE_LIMIT)
            self._loop.call_later(wait_s, self._throttle)
        else:
            self.read_pause.resume(RATE_LIMIT)

    # Ending

    @property
    def user(self) -> str:
        """User name; empty before the connection is accepted, or without one."""
        return (self._session.identity.user or "") if self._session is not None else ""

    @property
    def client_id(self) -> str:
        """Client identifier; empty before acceptance."""
        return self._session.client_id if self._session is not None else ""

    @property
    def is_stranger(self) -> bool:
        """Neither accepted nor refused yet."""
        return self._session is None and not self.is_closing

    def on_wire_error(self, error: MqttWireError) -> None:
        """Refuse bytes that break the protocol, and close."""
        if self.is_closing:
            return
        self.door.on_wire_error(self, error)
        if self._session is None:
            self.version = self._reader.version
            self.door.admission.refuse_bytes(self, error, is_greeted=self._reader.is_greeted)
        else:
            # What is wrong with a CONNECT is for CONNACK to say; a second one is wrong by itself.
            is_second = isinstance(error, UnsupportedVersion | InvalidClientId)
            reason = ReasonCode.PROTOCOL_ERROR if is_second else error.reason
            self.end(reason, str(error) if self.wants_details else "")

    def on_too_large(self) -> None:
        if self._session is None:
            self.door.admission.refuse(self, ReasonCode.PACKET_TOO_LARGE)  # MQTT-3.14.0-1
        else:
            self.end(ReasonCode.PACKET_TOO_LARGE)

    def turn_away(self, connack: bytes) -> None:
        """The door did not let the client in."""
        if not self.is_closing:
            self.write(connack)
            self.leave(is_heard=True)

    def end(self, reason: ReasonCode, words: str = "", *, is_heard: bool = True) -> None:
        """Say why, as far as the client's version has words for it, and close."""
        if self.is_closing:
            return
        self.outbound.write_withheld()
        if self.version is Version.V5:
            goodbye = in_words(Disconnect(reason), words) if words else Disconnect(reason)
            self.outbound.send(encode_within(goodbye, self.version, self.limit_bytes) or b"")
            self.door.counters.control_packets_sent += 1
        self.leave(is_heard=is_heard)

    def leave(
        self, *, is_graceful: bool = False, expiry: float | None = None, is_heard: bool = False
    ) -> None:
        """Let go of the session and close when everything written has left; abort if that takes too long.

        Args:
            is_heard: wait for the client to close, too. Closing while it still sends would reset the
                connection, and take with it what the client has not read yet.
        """
        session, self._session = self._session, None
        self.is_undecided = False
        self._drop_input()
        if is_heard:
            self.is_blocked = False
            self.read_pause.resume_all()
        self.is_closing = True
        self.outbound.stop()
        self._drop_acks()
        self._reader.stop()
        if session is not None:
            self.door.broker.disconnect(session, self, is_graceful=is_graceful, expiry=expiry)
        if is_heard and self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        else:
            self._transport.close()
        if self._is_lost:  # and no step follows that would notice
            self._on_lost()
            return
        self._deadline = self._loop.time() + CLOSING_TIMEOUT_S
        self.door.watch(self, self._deadline)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._drop_input()
        self._transport.abort()
        if self._is_lost:
            self._on_lost()

    def _drop_acks(self) -> None:
        acks, self._inbound = self._inbound, None
        if acks is not None:
            acks.acks.close()


class Write(Protocol):
    """A function that writes bytes."""

    def __call__(self, data: bytes) -> None: ...


OVER = object()
"""Stands for the end of an iterator."""


def _qos_of(item: Item) -> int:
    """Group of a publish: those at QoS 0 and those at QoS 1 are published together, others alone."""
    return item.shape.qos if isinstance(item, (Run, Train)) else -1


def _count_of(packet: ResponsePacket | AckRun) -> int:
    """Return the number of packets of a response."""
    return len(packet.packet_ids) if type(packet) is AckRun else 1
