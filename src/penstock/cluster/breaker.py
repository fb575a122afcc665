"""Circuit breaker and backoff of a peer: callers are refused at once, and it is tried again ever more rarely.

Time and randomness are handed in.
"""

from collections.abc import Callable


class Backoff:
    """Exponential backoff with jitter: each delay is between half of a step and all of it; steps double."""

    __slots__ = ("_least_s", "_most_s", "_random", "_step_s")

    def __init__(self, random: Callable[[], float], least_s: float = 0.1, most_s: float = 5.0) -> None:
        self._random = random
        self._least_s = least_s
        self._most_s = most_s
        self._step_s = least_s

    def next_delay(self) -> float:
        """Seconds until the next attempt, from `least_s` to `most_s`."""
        step = self._step_s
        self._step_s = min(step * 2, self._most_s)
        return max(self._least_s, step * (1 + self._random()) / 2)

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._step_s = self._least_s


class Breaker:
    """Circuit breaker: opens after failures in a row or silence, then admits one probe in each interval."""

    __slots__ = ("_failures", "_limit", "_next_probe_at", "_probe_s", "is_open")

    def __init__(self, failures: int = 5, probe_s: float = 1.0) -> None:
        self._limit = failures
        self._probe_s = probe_s
        self._failures = 0
        self._next_probe_at = 0.0
        self.is_open = False

    def on_success(self) -> None:
        """Close: the peer has responded."""
        self._failures = 0
        self.is_open = False

    def on_failure(self, now: float) -> None:
        """Count a failure; the last one that is allowed in a row opens."""
        self._failures += 1
        if self._failures >= self._limit:
            self._open(now)

    def on_silence(self, now: float) -> None:
        """Open: nothing was heard for too long."""
        self._open(now)

    def admits(self, now: float) -> bool:
        """Return whether a call may be tried now; of those while it is open, one in each interval."""
        if not self.is_open:
            return True
        if now < self._next_probe_at:
            return False
        self._next_probe_at = now + self._probe_s
        return True

    def _open(self, now: float) -> None:
        if not self.is_open:
            self.is_open = True
            self._next_probe_at = now + self._probe_s
