"""A broker without sockets: named clients on a stage, and time that passes when a test says so.

A client does what a door does for it, and no more: it connects, sends again what was on its way, resumes,
and tells core when its socket is full.
"""

from collections.abc import Callable

from msgspec.structs import replace

from penstock.core.access.access import Access, OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Arrival, Broker, PublishReceipt
from penstock.core.delivery.inflight import AWAITS_ACK
from penstock.core.ports.connection import Encoding
from penstock.core.ports.log import Log
from penstock.core.ports.state import StateStore
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings
from penstock.core.subscriptions.subscription import Options
from penstock.model import Door, Policy, Will
from penstock.runs import NEVER
from penstock.storage.memory import MemoryLog
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.connection import MemoryConnection
from tests.support.disk import Disk
from tests.support.encodings import Delivered, PlainEncoding, as_plain
from tests.support.samples import make_run

WIDE = 65_535
"""A window that does not get in the way."""


class Stage:
    """One broker with its clock, its loop and its clients."""

    def __init__(
        self,
        settings: CoreSettings | None = None,
        *,
        access: Access | None = None,
        log: MemoryLog | None = None,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        """Set the stage. A disk that was used before brings back what was committed to it."""
        self.settings = settings or CoreSettings()
        self.clock = clock or ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        memory = log or MemoryLog(self.settings.log.memory_bytes)
        mounted = memory if disk is None else disk.mount(self.scheduler, self.clock)
        self.log: Log = mounted
        self.state: StateStore = mounted.state
        self.broker = Broker(
            self.settings, access or OpenAccess(), self.log, self.state, self.clock, self.scheduler
        )
        self.node = self.broker._node

    def client(
        self,
        client_id: str,
        *,
        user: str | None = None,
        clean: bool = True,
        expiry: float = 0.0,
        window: int = WIDE,
        will: Will | None = None,
        wire: object = "plain",
        reencode: Callable[[Encoding], Encoding] | None = None,
        room_bytes: int | None = None,
    ) -> "Client":
        """A client that has just connected. `room_bytes` is what its socket takes until it is read."""
        arrival = Arrival(Identity(user, client_id), Door.MQTT, clean, expiry, window, will, wire)
        return Client(self, arrival, reencode or as_plain, room_bytes)

    def settle(self) -> None:
        """Turn the loop until nothing is left to do now."""
        self.scheduler.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, then reap once, as the server does every second."""
        self.scheduler.advance(seconds)
        self.broker.reap()
        self.settle()

    @property
    def oldest_queued_offset(self) -> int | None:
        """The oldest offset that is queued or in flight."""
        found: list[int | None] = []
        self.broker.find_oldest_queued(found.append)
        self.settle()
        (oldest,) = found
        return oldest

    def why(self, topic: str, sequence: int, client_id: str) -> str | None:
        """The ledger's reason why a client did not get a message."""
        row = self.broker.ledger.why(topic, sequence, client_id)
        return None if row is None else str(row.reason)

    def losses(self, client_id: str | None = None) -> list[tuple[str, int, int, str]]:
        """The ledger's rows in short: topic, first, last, reason."""
        rows = self.broker.ledger.rows(client_id=client_id)
        return [(row.topic, row.first, row.last, str(row.reason)) for row in rows]


class Client:
    """One connection of a client, and the session behind it."""

    def __init__(
        self, stage: Stage, arrival: Arrival, reencode: Callable[[Encoding], Encoding], room_bytes: int | None
    ) -> None:
        self._broker = stage.broker
        self._clock = stage.clock
        self._room_bytes = room_bytes
        self._unread = 0
        self.client_id = arrival.identity.client_id
        self.connection = MemoryConnection(self._on_write)
        self.session: Session
        self.session, self.is_known = self._broker.connect(arrival, self.connection, reencode)
        self._send_again()
        self._broker.resume(self.session)

    # As a subscriber

    def subscribe(
        self,
        filter: str,
        qos: int = 0,
        *,
        no_local: bool = False,
        identifier: int = 0,
        limit_bytes: int = 0,
        policy: Policy = Policy.DROP_NEWEST,
        retain_handling: int = 0,
        encoding: Encoding | None = None,
    ) -> None:
        """Subscribe as MQTT does; a form of the test's own replaces the plain one."""
        if encoding is None:
            identifiers = (identifier,) if identifier else ()
            encoding = PlainEncoding(
                qos=qos, no_local=no_local, limit_bytes=limit_bytes, identifiers=identifiers
            )
        self._broker.subscribe(
            self.session,
            filter,
            Options(qos, no_local, False, identifier),
            encoding,
            policy=policy,
            retained=retain_handling < 2,
            retained_if_known=retain_handling == 0,
        )

    def unsubscribe(self, filter: str) -> bool:
        """Want a filter no more."""
        return self._broker.unsubscribe(self.session, filter)

    def take(self) -> list[Delivered]:
        """What arrived since the last call."""
        return self.connection.take()

    def take_payloads(self) -> list[bytes]:
        """The payloads of what arrived since the last call."""
        return self.connection.take_payloads()

    def take_and_acknowledge(self) -> list[bytes]:
        """The payloads of what arrived since the last call, each acknowledged if it wants that."""
        taken = self.take()
        for delivered in taken:
            if delivered.number:
                self.acknowledge(delivered.number)
        return [delivered.payload for delivered in taken]

    def acknowledge(self, number: int) -> bool:
        """Complete a delivery, whatever step it waits for. Returns False if its number is unknown."""
        awaited = self._broker.awaited_step(self.session, number)
        assert self._broker.acknowledge(self.session, (number,), awaited or AWAITS_ACK) == 1
        return awaited is not None

    def refuse(self, number: int) -> bool:
        """Refuse a delivery."""
        return self._broker.refuse(self.session, number)

    def receive(self, number: int) -> bool:
        """Take over a QoS 2 delivery: its message is done, its number is not."""
        return self._broker.confirm_receipts(self.session, (number,)) == [True]

    def pause(self) -> None:
        """Stop reading: the socket is full."""
        self._broker.pause(self.session)

    def unpause(self) -> None:
        """Read everything: the socket is empty."""
        self._unread = 0
        self._broker.unpause(self.session)

    # As a publisher

    def publish(
        self, topic: str, *payloads: bytes, qos: int = 0, retain: bool = False, ttl: float = NEVER
    ) -> PublishReceipt:
        """Publish payloads of one length as one run."""
        return self._broker.publish(make_run(topic, *payloads, qos=qos, retain=retain, ttl=ttl), self.session)

    # Going

    def disconnect(self, *, expiry: float | None = None) -> None:
        """Say goodbye and go."""
        self._broker.disconnect(self.session, self.connection, is_graceful=True, expiry=expiry)

    def drop(self) -> None:
        """Go without a word."""
        self._broker.disconnect(self.session, self.connection, is_graceful=False)

    def _on_write(self, data: bytes) -> None:
        self._unread += len(data)
        if self._room_bytes is not None and self._unread >= self._room_bytes:
            self._broker.pause(self.session)

    def _send_again(self) -> None:
        """In-flight first, with the same numbers, as every door owes it."""
        if self.session.inflight is None:
            return
        now, parts = self._clock.monotonic(), list[bytes]()
        may_read = self._broker.access.may_read
        for number, pending in self.session.inflight.entries.items():
            if pending is not None and may_read(self.session.identity, pending.run.topic):
                for before, after, _ in pending.encoding.frames((pending.run,), now, again=True):
                    parts += (before, number.to_bytes(2, "big"), after)
        if parts:
            self.connection.write(b"".join(parts))


def as_tagged(identifier: int) -> Callable[[Encoding], Encoding]:
    """A way to remake plain forms for another wire that can be seen in what arrives."""

    def reencode(encoding: Encoding) -> Encoding:
        assert isinstance(encoding, PlainEncoding)
        return replace(encoding, identifiers=(identifier,))

    return reencode
