"""Exactly-once forwards at their receiver: deduplication by number.

The origin stores a forward with its number before it is sent, and sends it again after every loss. The
receiver stores the last number of each origin in the commit that has the message.
"""

from collections.abc import Mapping

Route = tuple[int, int]
"""Shard that sends, and shard that receives."""


class MissingForwards(Exception):
    """Numbers were left out: taking these would lose those between."""


class ForwardNumbers:
    """Last numbers taken and committed, by route; all links of a process share them.

    Args:
        committed: what was stored with the messages, found again after a restart.
    """

    __slots__ = ("_committed", "_taken")

    def __init__(self, committed: Mapping[Route, int] | None = None) -> None:
        self._committed = dict(committed or {})
        self._taken = dict(self._committed)

    def take(self, route: Route, first: int, count: int) -> int:
        """Count forwards as taken; returns how many of the first ones were taken before, to be skipped.

        A route that is not known begins with any number: its receiver is new, or kept nothing.

        Raises:
            MissingForwards: the first number is not taken, nor the next one.
        """
        taken = self._taken.get(route, first - 1)
        if first > taken + 1:
            raise MissingForwards(f"forward {first} of {route} came after {taken}")
        self._taken[route] = max(taken, first + count - 1)
        return min(count, taken + 1 - first)

    def commit(self, route: Route, last: int) -> None:
        """Forwards up to this one are stored with their messages."""
        self._committed[route] = max(last, self._committed.get(route, 0))
        self._taken[route] = max(last, self._taken.get(route, 0))

    def rollback(self, route: Route) -> None:
        """Forwards that were taken are not stored, and will be sent again."""
        if route in self._committed:
            self._taken[route] = self._committed[route]
        else:
            self._taken.pop(route, None)

    def committed(self, route: Route) -> int:
        """The last number that is stored; 0 if there is none."""
        return self._committed.get(route, 0)
