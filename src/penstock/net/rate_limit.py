"""Token bucket, for messages, bytes or connections.

Every call gets the time of a monotonic clock. Nothing is scheduled here: a bucket returns how long to wait,
its owner waits.
"""

_SLACK = 1e-6
"""Fraction of a token that may be missing because times are rounded."""


class TokenBucket:
    """Fills with `rate` tokens a second (more than 0) up to `burst`, and is full at first."""

    __slots__ = ("_burst", "_rate", "_tokens", "_updated_at")

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst  # below zero: a debt
        self._updated_at = 0.0

    def take(self, count: int, now: float) -> bool:
        """Take tokens if that many are there, otherwise none; more than `burst` never are."""
        self._fill(now)
        if self._tokens + _SLACK < count:
            return False
        self._tokens -= count
        return True

    def charge(self, count: int, now: float) -> None:
        """Take tokens for what has happened already, whether they are there or not."""
        self._fill(now)
        self._tokens -= count

    def give_back(self, count: int, now: float) -> None:
        """Put tokens back that were taken for what has not happened."""
        self._fill(now)
        self._tokens = min(self._tokens + count, self._burst)

    def wait_s(self, now: float) -> float:
        """Seconds until every debt is paid and a token is there; 0 if one is."""
        self._fill(now)
        missing = 1.0 - self._tokens
        return missing / self._rate if missing > _SLACK else 0.0

    def is_full(self, now: float) -> bool:
        """No different from a new one."""
        self._fill(now)
        return self._tokens >= self._burst

    def _fill(self, now: float) -> None:
        passed = now - self._updated_at
        if passed > 0:
            tokens = self._tokens + passed * self._rate
            self._tokens = tokens if tokens < self._burst else self._burst
            self._updated_at = now
