"""How long a connection may take: for a request, for the next one, for reading what it asked for."""

from penstock.doors.base import LATE_S
from penstock.doors.http.settings import HttpSettings

CLOSING_TIMEOUT_S = 5.0
"""How long the last bytes may take to leave, and the peer to close its side."""
GRACE_S = 0.5
"""How long whoever waits between requests may still begin one when the server stops, and be told so."""
HURRY_S = 2.0
"""How long the rest of a body, or of an answer, may take when the server stops."""


class Patience:
    """Since when one connection does what it does, and when that has been long enough."""

    __slots__ = (
        "_settings",
        "answer_s",
        "closing_since",
        "full_bytes",
        "full_since",
        "has_asked",
        "idle_since",
        "received_bytes",
        "since",
    )

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self.since = 0.0
        """When the request that comes has begun, or reading it was gone on with."""
        self.received_bytes = 0
        """What it has brought since then."""
        self.idle_since = 0.0
        self.has_asked = False
        """A request was complete."""
        self.full_since = 0.0
        """When the peer had too much to read, or read some of it."""
        self.full_bytes = 0
        self.answer_s: float | None = None
        """How long the peer may read nothing of its answer, where that is not what others have."""
        self.closing_since: float | None = None

    def restart(self, now: float) -> None:
        """A request begins, or goes on after it had to wait for us."""
        self.since, self.received_bytes = now, 0

    def request_due(self) -> float:
        """When the request has to be there; what it has brought so far earns it time."""
        return self.since + self._request_s + self.received_bytes / self._settings.body_rate_bytes

    def next_request_due(self) -> float:
        """When the next request has to begin; the first has less time."""
        return self.idle_since + (self._settings.keep_alive_s if self.has_asked else self._request_s)

    @property
    def _request_s(self) -> float:
        """How long a request may take: who is looked at too late is cut in time all the same."""
        timeout_s = self._settings.request_timeout_s
        return max(timeout_s - LATE_S, timeout_s / 2)

    def closing_due(self) -> float:
        """When the last bytes have to be away, if these are the last."""
        return 0.0 if self.closing_since is None else self.closing_since + CLOSING_TIMEOUT_S

    def note_full(self, now: float, unread_bytes: int) -> None:
        """From now on the peer has to read something of what it has."""
        self.full_since, self.full_bytes = now, unread_bytes

    def full_due(self, now: float, unread_bytes: int) -> float:
        """When the peer has to have read something; every byte that it reads counts."""
        if unread_bytes < self.full_bytes:
            self.note_full(now, unread_bytes)
        timeout_s = self._settings.write_timeout_s if self.answer_s is None else self.answer_s
        return self.full_since + timeout_s
