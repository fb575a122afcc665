"""Ledger: the record of every message that was not delivered, with subscriber and reason.

Counts are exact forever; rows are merged into ranges of sequences and bounded, oldest first. A publish
without a matching subscription is not a loss and not recorded.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from penstock.core.runtime.clock import Clock
from penstock.model import Policy, Reason
from penstock.runs import Run

ROWS_A_STEP = 500
"""Most rows that are dropped in one step after the limit was lowered."""


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
    """Losses of one session and topic since the last report.

    Above the limit, one entry without topic and client sums up the rest.
    """

    topic: str
    client_id: str
    reason: Reason
    first: int
    last: int
    count: int


MOST_NEWS = 10_000
"""Most entries that are reported one by one; a crowd that is cut off could lose a million in a second."""

LOSSES = (
    Reason.OUTBOX_FULL,
    Reason.OFFLINE_QUEUE_FULL,
    Reason.BLOCK_TIMEOUT,
    Reason.PACKET_TOO_LARGE,
    Reason.FAILED,
)
"""Reasons that an operator should look into; the others are requested by clients, or ordinary."""


class Losses(Struct):
    """Involuntary losses since the last report, and the last subscriber that lost something."""

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


OnLost = Callable[[str, int, Reason, Policy | None], None]
"""Gets every loss once: the topic, the number of messages, the reason and the policy that decided."""

Range = tuple[str, int, int]
"""Consecutive messages of a topic: its name, the first sequence, their number."""


def _ignore(topic: str, count: int, reason: Reason, policy: Policy | None) -> None:
    """Stand in for a callback."""


def ranges_of(runs: Iterable[Run]) -> list[Range]:
    """Merge runs into ranges of each topic, in the order of their first messages.

    A queue of ten thousand messages is a few ranges, even if its topics alternate.
    """
    found: list[list[Any]] = []
    following: dict[str, list[Any]] = {}  # by topic, the range that the next message continues
    for run in runs:
        topic, first = run.topic, run.sequence
        known = following.get(topic)
        if known is not None and known[1] + known[2] == first:
            known[2] += run.count
        else:
            known = following[topic] = [topic, first, run.count]
            found.append(known)
    return [(topic, first, count) for topic, first, count in found]


class Ledger:
    """Exact counts by reason, and the most recent rows."""

    def __init__(self, clock: Clock, rows_limit: int, on_lost: OnLost = _ignore) -> None:
        self._clock = clock
        self._rows_limit = rows_limit
        self._rows: dict[int, Row] = {}  # by numbers that follow one another, oldest first
        self._open: dict[tuple[str, str, Reason], Row] = {}
        self._number = 0
        self.counts: dict[Reason, int] = {}
        self.rows_forgotten = 0
        self.is_watched = False  # a subscriber or the log takes the news
        self._news: dict[tuple[str, str, Reason], News] = {}
        self._reported: dict[Reason, int] = {}  # of `counts`, as of the last `take_losses`
        self._last_loss = ("", "")  # whose, and of which topic
        self._on_lost = on_lost

    def resize(self, rows_limit: int) -> None:
        """Remember more or fewer rows from now on; `shed` forgets those that are too many."""
        self._rows_limit = rows_limit

    def shed(self) -> bool:
        """Drop some rows beyond the limit, oldest first. Returns whether there are more."""
        for _ in range(min(ROWS_A_STEP, len(self._rows) - self._rows_limit)):
            self._forget_oldest()
        return len(self._rows) > self._rows_limit

    def add(
        self, run: Run, client_id: str, reason: Reason, policy: Policy | None = None, setting: str = ""
    ) -> None:
        """Record that a session did not get a run."""
        self.add_range((run.topic, run.sequence, run.count), client_id, reason, policy, setting)

    def add_range(
        self, lost: Range, client_id: str, reason: Reason, policy: Policy | None = None, setting: str = ""
    ) -> None:
        """Record that a session did not get consecutive messages of a topic."""
        topic, first, count = lost
        self.counts[reason] = self.counts.get(reason, 0) + count
        if reason in LOSSES:
            self._last_loss = (client_id, topic)
            self._on_lost(topic, count, reason, policy)
        elif reason is Reason.EXPIRED:
            self._on_lost(topic, count, reason, policy)
        key = (client_id, topic, reason)
        now = self._clock.wall_us()
        last = first + count - 1
        if self.is_watched and not topic.startswith("$"):  # else news would be about news
            self._note_news(key, first, last, count)
        row = self._open.get(key)
        is_alike = row is not None and row.policy is policy and row.setting == setting
        if row is not None and is_alike and _widen(row, first, last):
            row.count += count
            row.last_at = now
            return
        self._begin(key, Row(topic, client_id, reason, policy, setting, first, last, count, now, now))

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

    def _note_news(self, key: tuple[str, str, Reason], first: int, last: int, count: int) -> None:
        client_id, topic, reason = key
        news = self._news.get(key)
        if news is None and len(self._news) >= MOST_NEWS:
            others = self._news.setdefault(("", "", reason), News("", "", reason, 0, 0, 0))
            others.count += count
        elif news is None:
            self._news[key] = News(topic, client_id, reason, first, last, count)
        else:
            news.first = min(news.first, first)
            news.last = max(news.last, last)
            news.count += count

    def take_news(self) -> list["News"]:
        """Return what was recorded since the last call, by session, topic and reason."""
        news, self._news = self._news, {}
        return list(news.values())

    def take_losses(self) -> Losses | None:
        """Return the losses since the last call, if there are any, for a periodic log line."""
        new = {reason: self.counts.get(reason, 0) - self._reported.get(reason, 0) for reason in LOSSES}
        lost = {reason: count for reason, count in new.items() if count}
        if not lost:
            return None
        self._reported = {reason: self.counts.get(reason, 0) for reason in LOSSES}
        reasons = " ".join(f"{reason}={count}" for reason, count in lost.items())
        return Losses(sum(lost.values()), reasons, *self._last_loss)

    @property
    def rows_known(self) -> int:
        """Number of rows."""
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
        """Return up to this many rows with their numbers, newest first, from before a number."""
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
