"""Detection of takeover fights: clients that share a client identifier.

Two of them take the session from each other forever, because each reconnects as soon as it was
disconnected. Both look healthy to themselves, so only the server can report it. Memory is bounded, by
count and by identifier length.
"""

from msgspec import Struct

from penstock.core.runtime.bounded_map import BoundedMap
from penstock.core.runtime.clock import Clock

TAKEOVERS = 5
WINDOW_S = 10.0
"""This many takeovers within this time are a fight; a client that changes its network makes one."""
QUIET_S = 60.0
"""Pause between two reports about one identifier."""
CLIENTS_REMEMBERED = 10_000
"""Identifiers whose last take-overs are known, less than 10 MB; of more the oldest are forgotten."""


class TakeoverFight(Struct, frozen=True):
    """A fight for one session."""

    client_id: str
    addresses: tuple[str, str]
    """Addresses of the connection that lost the session and of the one that has it."""
    count: int
    """Takeovers since the last report, or since a quiet time."""


class TakeoverRecord:
    """The last take-overs of one session."""

    __slots__ = ("addresses", "count", "reported_at", "times")

    def __init__(self) -> None:
        self.times: list[float] = []  # of the last ones
        self.count = 0
        self.addresses = ("", "")  # of the last one
        self.reported_at = -float("inf")


class TakeoverFightDetector:
    """Counts takeovers by client identifier."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the hash of the identifier, which may be 64 KiB long.
        self._contests: BoundedMap[int, TakeoverRecord] = BoundedMap(CLIENTS_REMEMBERED)

    def note(self, client_id: str, old: str, new: str) -> TakeoverFight | None:
        """Count a takeover; return a fight if it is to be reported.

        Both are addresses as text, host and port.
        """
        now = self._clock.monotonic()
        contest = self._contest(client_id)
        if contest.times and now - contest.times[-1] > WINDOW_S:
            contest.count = 0  # there was a rest
        contest.times.append(now)
        del contest.times[:-TAKEOVERS]
        contest.count += 1
        contest.addresses = (old, new)
        if not _is_fight(contest, now) or now - contest.reported_at < QUIET_S:
            return None
        flapping = TakeoverFight(client_id, contest.addresses, contest.count)
        contest.reported_at, contest.count = now, 0
        return flapping

    def _contest(self, client_id: str) -> TakeoverRecord:
        key = hash(client_id)
        contest = self._contests.use(key)
        if contest is None:
            contest = TakeoverRecord()
            self._contests.put(key, contest)
            self._contests.take_stale()
        return contest


def _is_fight(contest: TakeoverRecord, now: float) -> bool:
    return len(contest.times) == TAKEOVERS and now - contest.times[0] <= WINDOW_S
