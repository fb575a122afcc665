"""Timeouts of one HTTP connection: for a request, between requests, for reading a response, for closing."""

from penstock.core.runtime.deadlines import LATE_S
from penstock.net.http.settings import HttpSettings

CLOSING_TIMEOUT_S = 5.0
"""Time for the last bytes to be sent, and for the peer to close its side."""
GRACE_S = 0.5
"""At shutdown, time for an idle client to begin a request and get a refusal."""
HURRY_S = 2.0
"""At shutdown, time for the rest of a body or of a response."""


class ConnectionTimeouts:
    """Start times of one connection's activities, and the deadlines that follow from them."""

    __slots__ = (
        "_settings",
        "closing_since",
        "full_bytes",
        "full_since",
        "has_asked",
        "idle_since",
        "received_bytes",
        "response_s",
        "since",
    )

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self.since = 0.0
        """When the current request began, or reading it resumed."""
        self.received_bytes = 0
        """Bytes received since then."""
        self.idle_since = 0.0
        self.has_asked = False
        """At least one request was complete."""
        self.full_since = 0.0
        """When the peer got too much to read, or had last read enough of it."""
        self.full_bytes = 0
        self.response_s: float | None = None
        """Time that the peer may leave this response unread, if not the default."""
        self.closing_since: float | None = None

    def restart(self, now: float) -> None:
        """A request begins, or reading it resumes."""
        self.since, self.received_bytes = now, 0

    def request_due(self) -> float:
        """Deadline of the current request; received bytes extend it."""
        return self.since + self._request_s + self.received_bytes / self._settings.body_rate_bytes

    def next_request_due(self) -> float:
        """Deadline for the next request to begin; the first has less time."""
        return self.idle_since + (self._settings.keep_alive_s if self.has_asked else self._request_s)

    @property
    def _request_s(self) -> float:
        """Time for a request, less what the check may be late."""
        timeout_s = self._settings.request_timeout_s
        return max(timeout_s - LATE_S, timeout_s / 2)

    def closing_due(self) -> float:
        """Deadline for the last bytes, if the connection is closing."""
        return 0.0 if self.closing_since is None else self.closing_since + CLOSING_TIMEOUT_S

    def note_full(self, now: float, unread_bytes: int) -> None:
        """Start the time in which the peer has to read enough."""
        self.full_since, self.full_bytes = now, unread_bytes

    def full_due(self, now: float, unread_bytes: int) -> float:
        """Deadline for the peer to read enough, which extends it.

        Enough is the minimum rate over the usual time; a byte now and then would hold memory forever. A
        response with a time of its own is for readers that pause, and there any byte is enough.
        """
        settings, is_usual = self._settings, self.response_s is None
        timeout_s = settings.write_timeout_s if self.response_s is None else self.response_s
        enough_bytes = settings.write_rate_bytes * timeout_s if is_usual else 1
        if self.full_bytes - unread_bytes >= max(enough_bytes, 1):
            self.note_full(now, unread_bytes)
        return self.full_since + timeout_s
