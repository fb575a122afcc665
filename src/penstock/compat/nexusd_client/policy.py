"""How often, and how soon, a lost connection is tried again."""

from dataclasses import KW_ONLY, dataclass
from random import random

from grpc import StatusCode

RETRIED = frozenset({StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED})
"""The statuses after which it makes sense to try again; after others the daemon would say the same."""
HIGHEST_POWER = 62
HIGHEST_MULTIPLIER = 100.0
"""Delays are at their maximum long before, and numbers stay numbers."""


@dataclass(frozen=True)
class ReconnectionPolicy:
    """Delays grow from `initial_delay_ms` to `max_delay_ms`, with something random on top.

    Raises:
        ValueError: a number is negative, or `multiplier` not between 1 and 100.
    """

    max_retries: int = 0
    """Attempts one after another until it is given up; 0 for ever."""
    initial_delay_ms: int = 1000
    max_delay_ms: int = 30000
    exponential_backoff: bool = True
    jitter_factor: float = 0.1
    _: KW_ONLY
    enabled: bool = True
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        numbers = (self.max_retries, self.initial_delay_ms, self.max_delay_ms, self.jitter_factor)
        if min(numbers) < 0 or not 1 <= self.multiplier <= HIGHEST_MULTIPLIER:
            raise ValueError(f"not a policy: {self}")

    @property
    def max_attempts(self) -> int:
        """`max_retries` by its other name."""
        return self.max_retries

    @property
    def jitter(self) -> float:
        """`jitter_factor` by its other name."""
        return self.jitter_factor

    def delay_ms(self, attempt: int, chance: float | None = None) -> float:
        """How long to wait before an attempt, of which the first is 0; `chance` stands for what is random."""
        power = min(attempt, HIGHEST_POWER) if self.exponential_backoff else 0
        delay = min(self.initial_delay_ms * self.multiplier**power, self.max_delay_ms)
        return delay + self.jitter_factor * delay * (random() if chance is None else chance)

    def allows(self, attempt: int) -> bool:
        """Whether there is an attempt of that number, of which the first is 0."""
        return self.enabled and (self.max_retries == 0 or attempt < self.max_retries)


class ReconnectConfig(ReconnectionPolicy):
    """A `ReconnectionPolicy`, told in the words of older programs; its defaults are the same."""

    def __init__(
        self,
        enabled: bool = True,
        initial_delay_ms: int = 1000,
        max_delay_ms: int = 30000,
        multiplier: float = 2.0,
        max_attempts: int = 0,
        jitter: float = 0.1,
    ) -> None:
        super().__init__(
            max_attempts, initial_delay_ms, max_delay_ms, True, jitter, enabled=enabled, multiplier=multiplier
        )
