"""Notices when clients fight for a session.

Two of them with one client identifier take it from each other for ever, because each comes back as soon
as it was thrown out. Both look healthy to themselves, so the server is the only one who can say it. What
is remembered is bounded, however many clients there are and however long their identifiers.
"""

from collections import OrderedDict

from msgspec import Struct

from penstock.core.clock import Clock

TAKEOVERS = 5
WINDOW_S = 10.0
"""So many take-overs within so many seconds are a fight; who merely moves to another network makes one."""
QUIET_S = 60.0
"""How long nothing more is said of an identifier after it was told of."""
CLIENTS_REMEMBERED = 10_000
"""Identifiers whose last take-overs are known, less than 10 MB; of more the oldest are forgotten."""


class Flapping(Struct, frozen=True):
    """A fight for one session."""

    client_id: str
    addresses: tuple[str, str]
    """Who lost the session, and who has it now."""
    count: int
    """Take-overs since it was last told of, or since there was a rest."""


class Contest:
    """The last take-overs of one session."""

    __slots__ = ("addresses", "count", "times", "told_at")

    def __init__(self) -> None:
        self.times: list[float] = []  # of the last ones
        self.count = 0
        self.addresses = ("", "")  # of the last one
        self.told_at = -float("inf")


class FlappingDetector:
    """Is told of every take-over, and tells when they are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the hash of the identifier, which may be 64 KiB long; the latest last.
        self._contests: OrderedDict[int, Contest] = OrderedDict()

    def note(self, client_id: str, old: str, new: str) -> Flapping | None:
        """A connection from `new` took a session from one at `old`; answer if that is a fight to be told of.

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
        if not _is_fight(contest, now) or now - contest.told_at < QUIET_S:
            return None
        flapping = Flapping(client_id, contest.addresses, contest.count)
        contest.told_at, contest.count = now, 0
        return flapping

    def _contest(self, client_id: str) -> Contest:
        key = hash(client_id)
        contest = self._contests.get(key)
        if contest is not None:
            self._contests.move_to_end(key)
            return contest
        if len(self._contests) >= CLIENTS_REMEMBERED:
            self._contests.popitem(last=False)
        contest = self._contests[key] = Contest()
        return contest


def _is_fight(contest: Contest, now: float) -> bool:
    return len(contest.times) == TAKEOVERS and now - contest.times[0] <= WINDOW_S
