"""Shared buffer: outboxes borrow from one budget when a burst exceeds what each has of its own.

Dynamic threshold, as in network switches: an outbox may borrow as long as it has no more than is left for the
others. One alone gets half of the budget, two get a third each. So a subscriber that pauses a moment loses
nothing, many stuck ones share a bounded amount, and a stuck one never takes all.
"""

from weakref import WeakSet

from penstock.core.delivery.policy import Limits

OWN_MESSAGES = 10_000
OWN_BYTES = 8 * 1024 * 1024
"""Part of every outbox that needs no budget."""
ENTRY_BYTES = 300
"""Cost of an entry beside its bytes: the objects of a message, or of a run of messages."""
STEP_MESSAGES, STEP_BYTES = 4_000, 1024 * 1024
"""Outboxes borrow in steps, so that the budget is asked about once for many messages."""


class SharedBuffer:
    """Budget that the outboxes of all subscribers share."""

    def __init__(self, messages: int, size: int, shared: int) -> None:
        self.most = Limits(messages, size)
        self._allowances: WeakSet[Allowance] = WeakSet()
        self._size = shared
        self.free = shared  # below zero when there is less than before

    @property
    def borrowed(self) -> int:
        """Bytes that outboxes have borrowed."""
        return self._size - self.free

    def configure(self, messages: int, size: int, shared: int) -> None:
        """Let more or less wait from now on; what waits already stays allowed, up to the new limits."""
        self.most.change(messages, size)
        self.free += shared - self._size
        self._size = shared
        for allowance in self._allowances:
            allowance.refresh()

    def allow(self, messages: int | None = None) -> "Allowance":
        """Return the limits of a new outbox, which wants no more than this many messages."""
        allowance = Allowance(self, messages)
        self._allowances.add(allowance)
        return allowance


class Allowance:
    """Limits of one outbox at this moment: its own part, and what it has borrowed."""

    __slots__ = ("__weakref__", "_buffer", "_entries", "_wanted", "borrowed", "bytes", "messages")

    def __init__(self, buffer: SharedBuffer, wanted: int | None) -> None:
        self._buffer = buffer
        self._wanted = wanted
        self.borrowed = 0
        self.messages = self.bytes = self._entries = 0
        self.refresh()

    @property
    def _most_messages(self) -> int:
        most = self._buffer.most.messages
        return most if self._wanted is None else min(self._wanted, most)

    @property
    def reach(self) -> tuple[int, int]:
        """Messages and bytes that could wait here, with what could be borrowed now."""
        spare = max((self._buffer.free - self.borrowed) // 2, 0)
        messages = min(self.messages + spare // ENTRY_BYTES, self._most_messages)
        return messages, min(self.bytes + spare, self._buffer.most.bytes)

    def refresh(self) -> None:
        """Follow changed limits."""
        messages, size = max(self.messages, OWN_MESSAGES), max(self.bytes, OWN_BYTES)
        self._set(min(messages, self._most_messages), min(size, self._buffer.most.bytes), self._entries)

    def grow(self, messages: int, size: int, entries: int) -> bool:
        """Borrow room for this much, up to the limits; nothing if too little is left."""
        free = self._buffer.free
        if self.borrowed >= free:
            return False
        allowed = min(_round_up(messages, STEP_MESSAGES), self._most_messages)
        allowed_bytes = min(_round_up(size, STEP_BYTES), self._buffer.most.bytes)
        allowed, allowed_bytes = max(allowed, self.messages), max(allowed_bytes, self.bytes)
        entries += max(allowed - messages, 0)  # each may come alone
        cost = _cost(allowed_bytes, entries)
        if cost > free - (cost - self.borrowed):
            return False
        self._set(allowed, allowed_bytes, entries)
        return True

    def settle(self, messages: int, size: int, entries: int) -> None:
        """Return what an outbox with this much in it no longer needs."""
        if self.borrowed:
            allowed = min(self.messages, max(OWN_MESSAGES, _round_up(messages, STEP_MESSAGES)))
            size = min(self.bytes, max(OWN_BYTES, _round_up(size, STEP_BYTES)))
            self._set(allowed, size, entries + max(allowed - messages, 0))

    def _set(self, messages: int, size: int, entries: int) -> None:
        cost = _cost(size, entries)
        self._buffer.free -= cost - self.borrowed
        self.messages, self.bytes, self._entries, self.borrowed = messages, size, entries, cost

    def __del__(self) -> None:
        self._buffer.free += self.borrowed


def _cost(size: int, entries: int) -> int:
    return max(size - OWN_BYTES, 0) + max(entries - OWN_MESSAGES, 0) * ENTRY_BYTES


def _round_up(amount: int, step: int) -> int:
    return -(-amount // step) * step
