"""Messages between a subscription and the application, and how far the application has come.

A message counts as seen when the application asks for the one after it, never earlier: what it was dealing
with when it died comes again. How much may wait here is not decided here, but by what is asked of the server.
"""

from collections import deque

from penstock.client.dialect import Arrived
from penstock.client.values import ReceivedMessage


class Inbox:
    """Messages that wait for the application, in their order."""

    def __init__(self, cursor: str | None) -> None:
        self.cursor = cursor
        """Behind all that was seen."""
        self._waiting: deque[ReceivedMessage] = deque()
        self._behind = cursor  # all that came
        self._unseen = 0  # taken, and perhaps still being dealt with

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def put(self, arrived: Arrived) -> None:
        """Messages have come, or a cursor behind all that came."""
        before, behind = self._behind, arrived.cursor
        runs = arrived.runs
        for index, run in enumerate(runs):
            is_last = index == len(runs) - 1
            self._waiting.extend(run.messages(before, behind if is_last else before))
        self._behind = behind
        if not self._waiting and not self._unseen:
            self.cursor = behind

    def take(self) -> ReceivedMessage:
        """The next message; there has to be one."""
        message = self._waiting.popleft()
        self._unseen += 1
        return message

    def take_many(self, limit: int) -> list[ReceivedMessage]:
        """As many as wait, up to a limit."""
        return [self.take() for _ in range(min(limit, len(self._waiting)))]

    def confirm(self, message: ReceivedMessage, count: int = 1) -> None:
        """The application has seen a message, and the `count` - 1 that it took before it."""
        self._unseen -= count
        self.cursor = message.cursor
