"""Redelivery: in-flight messages of a session, sent again on its next connection.

They keep their packet identifiers, are marked as duplicates, and leave in their original order
(MQTT-4.4.0-1). New messages wait for the last of them. Not more leaves at a time than socket and client
accept.
"""

from collections import deque
from collections.abc import Callable

from penstock.core.delivery.inflight import Inflight, Pending
from penstock.model import Reason
from penstock.wire.mqtt.encode import encode_packet
from penstock.wire.mqtt.packets import PubRel, Version

CHUNK_BYTES = 64 * 1024


class Redelivery:
    """The deliveries that have not been sent on this connection yet; false when there are none."""

    __slots__ = ("_inflight", "_may_read", "_numbers", "_version", "given_up")

    def __init__(self, inflight: Inflight, version: Version, may_read: Callable[[str], bool]) -> None:
        self._inflight = inflight
        self._numbers = deque(inflight.entries)
        self._version = version
        self._may_read = may_read
        self.given_up: list[tuple[Pending, Reason]] = []

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def take(self, now: float) -> bytes:
        """The next packets, about a chunk of them; nothing while the client's window is full."""
        parts: list[bytes] = []
        size = 0
        while self._numbers and size < CHUNK_BYTES:
            number = self._numbers[0]
            pending = self._inflight.entries.get(number, self)
            if isinstance(pending, Pending) and not self._has_room:  # MQTT-3.3.4-9
                break
            self._numbers.popleft()
            if isinstance(pending, Pending) and not self._may_read(pending.run.topic):
                self._inflight.give_up(number, pending)  # the rules have changed meanwhile
                self.given_up.append((pending, Reason.NOT_AUTHORIZED))
                pending = self._inflight.entries.get(number, self)
            if pending is None:
                parts.append(encode_packet(PubRel(number), self._version))
            elif isinstance(pending, Pending):
                parts += self._encode(number, pending, now)
            size += len(parts[-1]) if parts else 0
        return b"".join(parts)

    @property
    def _has_room(self) -> bool:
        """The client takes one more; what waits here is not on its way on this connection."""
        return len(self._inflight) - len(self._numbers) < self._inflight.limit

    def _encode(self, number: int, pending: Pending, now: float) -> list[bytes]:
        frames = pending.encoding.frames((pending.run,), now, again=True)
        if not frames:  # the client takes smaller packets than before
            self._inflight.complete(number)
            self.given_up.append((pending, Reason.PACKET_TOO_LARGE))
        return [piece for before, after, _ in frames for piece in (before, number.to_bytes(2, "big"), after)]
