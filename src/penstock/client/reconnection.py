"""When a client tries again: how often, after how long, and after which errors."""

from collections.abc import Callable
from random import random

from msgspec import Struct

from penstock.client.errors import ConnectionLost, ConnectionRefused
from penstock.errors import ShuttingDown, StorageUnavailable

_MOST_DOUBLINGS = 64
_WORTH_A_TRY = (ConnectionLost, ConnectionRefused, ShuttingDown, StorageUnavailable)


class Reconnection(Struct, frozen=True, kw_only=True):
    """How a client tries again: the delay doubles up to a limit, and a random part of it is added.

    ```python
    penstock.connect("localhost:5672", reconnection=Reconnection(initial_s=0.2, attempts=10))
    ```
    """

    initial_s: float = 1.0
    max_s: float = 30.0
    jitter: float = 0.1
    """The largest part of the delay that is added to it, so that not all clients come at once."""
    attempts: int | None = None
    """How often in a row, before it gives up; 0 never tries again, None does not give up."""

    def __post_init__(self) -> None:
        if self.initial_s < 0 or self.max_s < 0 or self.jitter < 0 or (self.attempts or 0) < 0:
            raise ValueError("delays, jitter and attempts are not negative")

    def may_try(self, attempt: int) -> bool:
        """Whether there is an attempt of this number; the first is 0."""
        return self.attempts is None or attempt < self.attempts

    def delay_s(self, attempt: int, random: Callable[[], float] = random) -> float:
        """How long to wait before an attempt; the first is 0."""
        delay_s = min(self.initial_s * 2.0 ** min(attempt, _MOST_DOUBLINGS), self.max_s)
        return delay_s + self.jitter * delay_s * random()


def is_worth_a_try(error: BaseException) -> bool:
    """Whether the same may succeed later, without anybody changing anything."""
    return isinstance(error, _WORTH_A_TRY)
