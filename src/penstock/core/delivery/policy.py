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


class Limits(Struct):
    """Shared limits: queues of a kind share one object, so that a change reaches all of them."""

    messages: int
    bytes: int

    def change(self, messages: int, size: int) -> None:
        """Let more or less wait from now on."""
        self.messages, self.bytes = messages, size


class OwnLimits:
    """The limits of a subscriber that wants fewer messages to wait than may; those of all still hold."""

    __slots__ = ("_most", "_of_all")

    def __init__(self, most: int, of_all: Limits) -> None:
        self._most = most
        self._of_all = of_all

    @property
    def messages(self) -> int:
        """The fewer of the two."""
        return min(self._most, self._of_all.messages)

    @property
    def bytes(self) -> int:
        """As everybody."""
        return self._of_all.bytes


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
