"""Log throttle: a limit per second for log lines that clients can cause; the rest is counted.

Any client can fail as often as it likes. Each failure is worth a line, but not a full disk.
"""

from collections.abc import Callable
from typing import Any

LINES_PER_SECOND = 10
SHOWN_CHARACTERS = 200


def shortened(text: str) -> str:
    """Cut a text that a client chose to the length of a log line."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


class ThrottledLog:
    """A log with a limit per second; the next line reports how many were left out."""

    def __init__(self, log: Any, monotonic: Callable[[], float], limit: int = LINES_PER_SECOND) -> None:
        self._log = log
        self._monotonic = monotonic
        self._limit = limit
        self._second = 0
        self._written = 0
        self._left_out = 0

    def write(self, event: str, **details: object) -> None:
        """Log one event, unless the limit is reached; empty details are left out."""
        self._write(self._log.info, event, details)

    def write_failure(self, event: str, **details: object) -> None:
        """Log an error of the server, with the exception being handled."""
        self._write(self._log.exception, event, details)

    def _write(self, write: Callable[..., object], event: str, details: dict[str, object]) -> None:
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written == self._limit:
            self._left_out += 1
            return
        self._written += 1
        counted = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        write(event, **{key: value for key, value in details.items() if value != ""}, **counted)
