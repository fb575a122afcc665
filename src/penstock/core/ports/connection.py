"""Ports of a door: the encoding of a class of subscribers, and the connection of a session."""

from collections.abc import Sequence
from typing import Protocol

from penstock.runs import Run, Shape

Frame = tuple[bytes, bytes, Run]
"""One message cut where its delivery number goes: before, after, and the run it is (of one message)."""


class Encoding(Protocol):
    """Encoding of a class of subscribers: equal encodings produce identical bytes.

    Encodings are values: hashable, and equal when they mean the same.
    """

    @property
    def qos(self) -> int:
        """The highest level of service; a message leaves at the lower of this and its own."""
        ...

    @property
    def no_local(self) -> bool:
        """Do not send a subscriber its own messages."""
        ...

    @property
    def is_retained(self) -> bool:
        """For values that were published before the subscription was made."""
        ...

    @property
    def has_cursor(self) -> bool:
        """Each message carries the position of its subscriber, so the order has to be kept."""
        ...

    @property
    def limit_bytes(self) -> int:
        """The largest frame this subscriber takes; 0 if it did not say."""
        ...

    def passes(self, shape: Shape, longest: int) -> bool:
        """Return whether frames of a shape leave as they came, at QoS 0, if none is longer than `longest`."""
        ...

    def encode(self, runs: Sequence[Run], now: float) -> bytes:
        """Encode all messages at QoS 0, joined. Messages above the size limit are left out."""
        ...

    def frames(self, runs: Sequence[Run], now: float, *, again: bool = False) -> list[Frame]:
        """All messages at QoS 1 or 2, each cut where its delivery number goes; too large ones left out."""
        ...

    def oversize(self, runs: Sequence[Run], now: float) -> list[Run]:
        """The messages that `encode` and `frames` leave out."""
        ...

    def merge(self, *others: "Encoding") -> "Encoding":
        """Return the encoding of a subscriber with all of these."""
        ...

    def as_retained(self) -> "Encoding":
        """The same for values that were published before the subscription was made."""
        ...


class ConnectionPort(Protocol):
    """The way out to a connected subscriber, and the way to block it when it publishes."""

    def write(self, data: bytes) -> None:
        """Send bytes; never waits. When the socket is full, the door calls `Broker.pause`."""
        ...

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """Block a publisher: withhold its acknowledgements, or read no more where there are none.

        Args:
            is_unacknowledged: read no more, because nothing else slows the publisher down.
            withholds_acks: acknowledge nothing meanwhile, committed or not.
        """
        ...

    def unblock(self) -> None:
        """Undo `block`."""
        ...

    def close(self, reason: str) -> None:
        """End the connection for one of the reasons of `sessions.Ending`; core detaches the session."""
        ...
