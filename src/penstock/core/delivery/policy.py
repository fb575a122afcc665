"""Overflow policy of a full outbox. A pure function: recorded arrivals can be decided again."""

from typing import Protocol

from msgspec import Struct

from penstock.model import Policy


class Bounds(Protocol):
    """Limits of a queue at this moment."""

    @property
    def messages(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def reach(self) -> tuple[int, int]:
        """Messages and bytes that the limits could become now."""
        ...

    def grow(self, messages: int, size: int, entries: int) -> bool:
        """Allow up to this many messages and bytes, in so many entries, if that is possible."""
        ...

    def settle(self, messages: int, size: int, entries: int) -> None:
        """Allow no more than a queue with this much in it needs, if more was allowed."""


class Limits(Struct):
    """Fixed limits: queues of a kind share one object, so that a change reaches all of them."""

    messages: int
    bytes: int

    def change(self, messages: int, size: int) -> None:
        """Let more or less wait from now on."""
        self.messages, self.bytes = messages, size

    @property
    def reach(self) -> tuple[int, int]:
        """The limits themselves."""
        return self.messages, self.bytes

    def grow(self, messages: int, size: int, entries: int) -> bool:
        """Fixed limits never grow."""
        return False

    def settle(self, messages: int, size: int, entries: int) -> None:
        """Fixed limits stay."""


class Decision(Struct, frozen=True):
    """Decision: how many messages of the run are queued, and what else has to happen."""

    accept: int
    evict: bool = False
    block: bool = False
    close: bool = False


def fitting(messages: int, size: int, limits: Bounds, count: int, stride: int) -> int:
    """Return how many of `count` messages of `stride` bytes fit."""
    room = min(count, limits.messages - messages)
    left = limits.bytes - size
    if room * stride > left:
        room = left // stride if stride else 0
    return max(room, 0)


def decide(policy: Policy, count: int, fits: int) -> Decision:
    """Apply a policy to a run of `count` messages of which `fits` have room."""
    if fits >= count:
        return Decision(count)
    if policy is Policy.DROP_NEWEST:
        return Decision(fits)
    if policy is Policy.DROP_OLDEST:
        return Decision(count, evict=True)
    if policy is Policy.BLOCK:
        # What was already read is taken; the publisher waits before it sends more.
        return Decision(count, block=True)
    return Decision(0, close=True)
