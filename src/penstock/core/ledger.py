"""What was not delivered, to whom and why.

Counts are exact for ever; rows are merged into ranges of sequences and bounded, oldest first. "No
subscription matched" is never written here: it can be derived, and it is not a loss.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from penstock.core.clock import Clock
from penstock.model import Policy, Reason, Run

ROWS_A_STEP = 500
"""How many are forgotten in one step when fewer than before may be remembered."""


class Row(Struct):
    """One range of messages of a topic that one session did not get."""

    topic: str
    client_id: str
    reason: Reason
    policy: Policy | None
    setting: str
    first: int
    last: int
    count: int
    first_at: int
    last_at: int


class News(Struct):
    """What one session did not get of one topic since the news were last told.

    If too many had losses to tell each of them, one without topic and client has what the others lost.
    """

    topic: str
    client_id: str
    reason: Reason
    first: int
    last: int
    count: int


MOST_NEWS = 10_000
"""Entries that are told one by one; in one second of a crowd that is cut off there could be a million."""

LOSSES = (
    Reason.OUTBOX_FULL,
    Reason.OWED_FULL,
    Reason.BLOCK_TIMEOUT,
    Reason.PACKET_TOO_LARGE,
    Reason.FAILED,
)
"""What somebody should look into; the other reasons are what clients asked for, or everyday life."""


class Losses(Struct, frozen=True):
    """What subscribers lost against their will since that was last told, and who lost something last."""

    count: int
    reasons: str
    client_id: str
    topic: str


def _widen(row: Row, first: int, last: int) -> bool:
    """Add a range that touches a row to it, at its front too: a queue may be given up from its end."""
    if row.last + 1 == first:
        row.last = last
    elif last + 1 == row.first:
        row.first = first
    else:
        return False
    return True


class Ledger:
    """Exact counts by reason, and the most recent rows."""

    def __init__(self, clock: Clock, rows_limit: int) -> None:
        self._clock = clock
        self._rows_limit = rows_limit
        self._rows: dict[int, Row] = {}  # by numbers that follow one another, oldest first
        self._open: dict[tuple[str, str, Reason], Row] = {}
        self._number = 0
        self.counts: dict[Reason, int] = {}
        self.rows_forgotten = 0
        self.is_watched = False  # someone listens to the news
        self._news: dict[tuple[str, str, Reason], News] = {}
        self._told: dict[Reason, int] = {}  # of `counts`, as of the last `take_losses`
        self._last_loss = ("", "")  # whose, and of which topic
        self.on_lost: Callable[[Run, Reason, Policy | None], None] = lambda run, reason, policy: None

    def resize(self, rows_limit: int) -> None:
        """Remember more or fewer rows from now on; `shed` forgets those that are too many."""
        self._rows_limit = rows_limit

    def shed(self) -> bool:
        """Forget some of the rows beyond the limit, oldest first; tell whether there are more."""
        for _ in range(min(ROWS_A_STEP, len(self._rows) - self._rows_limit)):
            self._forget_oldest()
        return len(self._rows) > self._rows_limit

    def add(
        self, run: Run, client_id: str, reason: Reason, policy: Policy | None = None, setting: str = ""
    ) -> None:
        """Record that a session did not get a run."""
        count = run.count
        self.counts[reason] = self.counts.get(reason, 0) + count
        if reason in LOSSES:
            self._last_loss = (client_id, run.topic)
            self.on_lost(run, reason, policy)
        elif reason is Reason.EXPIRED:
            self.on_lost(run, reason, policy)
        key = (client_id, run.topic, reason)
        now = self._clock.wall_us()
        if self.is_watched and not run.topic.startswith("$"):  # else news would be about news
            self._note_news(run, client_id, reason)
        last = run.sequence + count - 1
        row = self._open.get(key)
        is_alike = row is not None and row.policy is policy and row.setting == setting
        if row is not None and is_alike and _widen(row, run.sequence, last):
            row.count += count
            row.last_at = now
            return
        self._begin(
            key, Row(run.topic, client_id, reason, policy, setting, run.sequence, last, count, now, now)
        )

    def _begin(self, key: tuple[str, str, Reason], row: Row) -> None:
        self._number += 1
        self._open[key] = row
        self._rows[self._number] = row
        if len(self._rows) > self._rows_limit:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        forgotten = self._rows.pop(self._number - len(self._rows) + 1)
        self.rows_forgotten += 1
        key = (forgotten.client_id, forgotten.topic, forgotten.reason)
        if self._open.get(key) is forgotten:
            del self._open[key]

    def _note_news(self, run: Run, client_id: str, reason: Reason) -> None:
        key = (client_id, run.topic, reason)
        last = run.sequence + run.count - 1
        news = self._news.get(key)
        if news is None and len(self._news) >= MOST_NEWS:
            others = self._news.setdefault(("", "", reason), News("", "", reason, 0, 0, 0))
            others.count += run.count
        elif news is None:
            self._news[key] = News(run.topic, client_id, reason, run.sequence, last, run.count)
        else:
            news.first = min(news.first, run.sequence)
            news.last = max(news.last, last)
            news.count += run.count

    def take_news(self) -> list["News"]:
        """What was recorded since the last call, an entry for each session, topic and reason."""
        news, self._news = self._news, {}
        return list(news.values())

    def take_losses(self) -> Losses | None:
        """What was lost since the last call, if anything was; to be told once in a while."""
        new = {reason: self.counts.get(reason, 0) - self._told.get(reason, 0) for reason in LOSSES}
        lost = {reason: count for reason, count in new.items() if count}
        if not lost:
            return None
        self._told = {reason: self.counts.get(reason, 0) for reason in LOSSES}
        reasons = " ".join(f"{reason}={count}" for reason, count in lost.items())
        return Losses(sum(lost.values()), reasons, *self._last_loss)

    @property
    def rows_known(self) -> int:
        """How many rows are remembered."""
        return len(self._rows)

    @property
    def total(self) -> int:
        """All messages ever recorded here."""
        return sum(self.counts.values())

    def rows(self, *, topic: str | None = None, client_id: str | None = None) -> Iterator[Row]:
        """The rows that are remembered, oldest first."""
        for row in self._rows.values():
            if (topic is None or row.topic == topic) and (client_id is None or row.client_id == client_id):
                yield row

    def rows_before(self, number: int | None, limit: int) -> list[tuple[int, Row]]:
        """Up to so many rows with their numbers, newest first: those before a number, or the newest."""
        before = self._number + 1 if number is None else min(number, self._number + 1)
        oldest = self._number - len(self._rows) + 1
        numbers = range(before - 1, max(oldest, before - limit) - 1, -1)
        return [(each, self._rows[each]) for each in numbers]

    def why(self, topic: str, sequence: int, client_id: str) -> Row | None:
        """The row that explains why this session did not get this message, if there is one."""
        for row in self.rows(topic=topic, client_id=client_id):
            if row.first <= sequence <= row.last:
                return row
        return None
