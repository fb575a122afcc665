"""Ordered acknowledgements: responses leave after the commit of their publishes, in the order of those.

A door adds one item for each chunk of publishes that it gives to core: the responses, in a form of its own.
Items wait for their own commit and for all items before them. Policy `block` withholds them beyond that.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from penstock.core.ports.log import Settled, Ticket

Item = TypeVar("Item")


class _Group(Generic[Item]):
    """Neighbouring items that wait for the same commit."""

    __slots__ = ("is_settled", "items", "ticket")

    def __init__(self, ticket: Ticket | None, items: list[Item]) -> None:
        self.ticket = ticket
        self.items = items
        self.is_settled = False


class OrderedAcks(Generic[Item]):
    """Responses of one publisher that are not written yet."""

    __slots__ = ("_is_closed", "_pending", "_ready", "_refuse", "_when_committed", "_write", "is_blocked")

    def __init__(
        self,
        when_committed: Callable[[Ticket | None, Settled], None],
        write: Callable[[list[Item]], None],
        refuse: Callable[[Item, Exception], Item],
    ) -> None:
        """Args:
        when_committed: the broker's; without a ticket it calls back after the flush of the turn.
        write: gets all items that may leave now, at least one.
        refuse: turns an item into refusals because its commit failed with this error.
        """
        self._when_committed = when_committed
        self._write = write
        self._refuse = refuse
        self._pending: deque[_Group[Item]] = deque()  # not committed, or behind one that is not
        self._ready: list[Item] = []  # committed, and withheld
        self.is_blocked = False
        self._is_closed = False

    def add(self, ticket: Ticket | None, item: Item) -> None:
        """Write an item after this commit and after all earlier items; ignored after `close`."""
        if self._is_closed:
            return
        pending = self._pending
        if pending and not (last := pending[-1]).is_settled and last.ticket == ticket:
            last.items.append(item)
            return
        group = _Group(ticket, [item])
        pending.append(group)
        self._when_committed(ticket, partial(self._on_settled, group))

    def block(self) -> None:
        """Withhold items from now on, committed or not. Idempotent."""
        self.is_blocked = True

    def unblock(self) -> None:
        """Write the withheld items, and later ones after their commit. Idempotent."""
        self.is_blocked = False
        self._write_ready()

    def close(self) -> None:
        """Drop all items and both callbacks, which refer to the connection. Idempotent."""
        self._is_closed = True
        self._pending.clear()
        self._ready.clear()
        self._write, self._refuse = _ignore_items, _keep_item

    def _on_settled(self, group: _Group[Item], failure: Exception | None) -> None:
        if failure is not None:
            group.items = [self._refuse(item, failure) for item in group.items]
        group.is_settled = True
        pending = self._pending
        while pending and pending[0].is_settled:
            self._ready += pending.popleft().items
        self._write_ready()

    def _write_ready(self) -> None:
        if self._ready and not self.is_blocked:
            items, self._ready = self._ready, []
            self._write(items)


def _ignore_items(items: list[Item]) -> None:
    """Stands for `write` after `close`."""


def _keep_item(item: Item, failure: Exception) -> Item:
    """Stands for `refuse` after `close`."""
    return item
