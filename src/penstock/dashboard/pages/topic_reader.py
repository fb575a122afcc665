"""Pagination through the messages of a topic by sequence.

A page is a range of sequences. Each of them is a message, or missing with a reason, or was not read; missing
ones are always reported. A page takes a bounded number of requests.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from penstock.client import Gap, History, Message, Missing

PAGE_SIZES = (20, 50, 100)
REQUESTS_PER_PAGE = 4
"""Maximum requests per page: a response ends after some megabytes or some time of searching."""
_SMALLER = 4
MISSING_REASONS = {
    "evicted": "evicted from memory, and not stored in the log",
    "expired": "message expired",
    "retention": "deleted from the log by retention",
    "never-stored": "could not be stored",
    "lost-uncommitted": "the server stopped before they were stored",
    "epoch-changed": "the server restarted without them",
    "damaged": "the log is damaged there",
    "not-authorized": "this user may not read them",
}


class HistoryClient(Protocol):
    """HTTP client, as far as it is needed here."""

    def messages(
        self,
        topic: str,
        *,
        after: str | None = None,
        after_sequence: int | None = None,
        start: datetime | str | None = None,
        last: int | None = None,
        limit: int | None = None,
    ) -> History: ...


class Page(Struct, frozen=True, kw_only=True):
    """Range of sequences of a topic, and its messages."""

    first: int
    last: int
    """Last sequence of the range, inclusive."""
    messages: tuple[Message, ...] = ()
    """Sorted by sequence."""
    missing: tuple[Missing, ...] = ()
    gaps: tuple[Gap, ...] = ()
    is_at_head: bool = False
    """No newer messages exist."""
    is_unfinished: bool = False
    """The request limit ended the page early."""


def newest_page(client: HistoryClient, topic: str, size: int) -> Page:
    """Page with the newest messages.

    Raises:
        PenstockError: the server is unreachable or the topic is unknown.
    """
    wanted = size
    for _ in range(REQUESTS_PER_PAGE):
        history = client.messages(topic, last=wanted, limit=wanted)
        if history.statement.is_at_head or _span_of(history) >= wanted:
            break  # the newest, or only overtaken by what was published in the meantime
        wanted = max(wanted // _SMALLER, 1)  # large messages: the response ended before the newest
    sequences = [each.sequence for each in history.messages]
    sequences += [each.last for each in history.statement.missing]
    last = max(sequences, default=0)
    return _page_of([history], max(last - wanted + 1, 1), last)


def _span_of(history: History) -> int:
    """Number of sequences that a response covers, with those that it reports as missing."""
    missing = ((each.first or each.last, each.last) for each in history.statement.missing)
    spans = [(each.sequence, each.sequence) for each in history.messages] + list(missing)
    return max(last for _, last in spans) - min(first for first, _ in spans) + 1 if spans else 0


def page_from(client: HistoryClient, topic: str, first: int, size: int) -> Page:
    """Page that starts with a sequence.

    Raises:
        PenstockError: the server is unreachable or the topic is unknown.
    """
    first = max(first, 1)
    last = first + size - 1
    histories = [client.messages(topic, after_sequence=first - 1, limit=size)]
    while len(histories) < REQUESTS_PER_PAGE and not _reaches(histories[-1], last):
        histories.append(client.messages(topic, after=histories[-1].statement.next, limit=size))
    return _page_of(histories, first, last)


def find_time(client: HistoryClient, topic: str, at: datetime) -> int | None:
    """Sequence of the first message at or after a time; None if there is none.

    Raises:
        PenstockError: the server is unreachable or the topic is unknown.
    """
    return _first_of(client, topic, at)


def find_oldest(client: HistoryClient, topic: str) -> int | None:
    """Sequence of the oldest message that still exists; None if there is none.

    Raises:
        PenstockError: the server is unreachable or the topic is unknown.
    """
    return _first_of(client, topic, "earliest")


def _first_of(client: HistoryClient, topic: str, start: datetime | str) -> int | None:
    history = client.messages(topic, start=start, limit=1)
    for _ in range(REQUESTS_PER_PAGE):
        if history.messages or history.statement.is_at_head:
            break
        history = client.messages(topic, after=history.statement.next, limit=1)
    return history.messages[0].sequence if history.messages else None


def first_around(sequence: int, size: int) -> int:
    """First sequence of a page with a given sequence in its middle."""
    return max(sequence - size // 2, 1)


def first_before(page: Page, size: int) -> int:
    """First sequence of the page before."""
    return max(page.first - size, 1)


def _reaches(history: History, last: int) -> bool:
    """True if all sequences up to `last` were read."""
    seen = [each.sequence for each in history.messages] + [each.last for each in history.statement.missing]
    return history.statement.is_at_head or max(seen, default=0) >= last


def _page_of(histories: Sequence[History], first: int, last: int) -> Page:
    end = histories[-1].statement
    missing = (each for history in histories for each in history.statement.missing)
    messages = {each.sequence: each for history in histories for each in history.messages}
    is_at_head = end.is_at_head and max(messages, default=0) <= last
    return Page(
        first=first,
        last=last,
        messages=tuple(messages[each] for each in sorted(messages) if first <= each <= last),
        missing=tuple(part for each in missing if (part := _between(each, first, last)) is not None),
        gaps=tuple(gap for history in histories for gap in history.statement.gaps),
        is_at_head=is_at_head,
        is_unfinished=not _reaches(histories[-1], last),
    )


def _between(missing: Missing, first: int, last: int) -> Missing | None:
    """Part of a missing range that lies on a page."""
    begin, end = max(missing.first or first, first), min(missing.last, last)
    return Missing(missing.topic, begin, end, missing.reason) if begin <= end else None


def page_title(page: Page) -> str:
    """Title of a page."""
    if not page.messages:
        return f"No messages from {page.first:,} to {page.last:,}"
    shown = page.messages
    return f"Messages {shown[0].sequence:,} to {shown[-1].sequence:,}"


def missing_notes(page: Page) -> list[str]:
    """Missing messages of a page and the reasons, one sentence each."""
    notes = [_missing_in_words(each) for each in page.missing]
    notes += [
        f"Offsets {gap.first:,} to {gap.last:,} of the log cannot be read, of any topic: "
        f"{MISSING_REASONS.get(gap.reason, gap.reason)} ({gap.reason})."
        for gap in page.gaps
    ]
    if page.is_unfinished:
        notes.append("The page ends early: the rest exceeds the request limit of one page.")
    return notes


def _missing_in_words(missing: Missing) -> str:
    reason = f"{MISSING_REASONS.get(missing.reason, missing.reason)} ({missing.reason})"
    if missing.first == missing.last:
        return f"Message {missing.last:,} is missing: {reason}."
    return f"Messages {missing.first:,} to {missing.last:,} are missing: {reason}."


class Reader(Struct):
    """Position of a browser in the messages of a topic: live at the end, or on a fixed page.

    Methods that send requests raise what the client raises.
    """

    topic: str
    size: int = PAGE_SIZES[0]
    is_following: bool = True
    """The newest messages are shown as they arrive."""
    page: Page | None = None
    """Page that was shown last."""
    chosen: int | None = None
    """Sequence of the message that is shown in full."""
    note: str = ""
    """Message about a position that was not found."""
    wanted: int | None = None
    """Sequence of the message to show next; kept until the server has responded."""

    @property
    def message(self) -> Message | None:
        """Message that is shown in full, if it is on the page."""
        messages = () if self.page is None else self.page.messages
        return next((each for each in messages if each.sequence == self.chosen), None)

    def refresh(self, client: HistoryClient) -> Page:
        """Return the page to show; a fixed page is requested once."""
        if self.wanted is not None:
            self.go_to_sequence(client, self.wanted)
        if self.is_following or self.page is None:
            self.page = newest_page(client, self.topic, self.size)
        return self.page

    def follow(self) -> None:
        """Go to the end and follow it."""
        self.is_following, self.chosen, self.note, self.wanted = True, None, "", None

    def pause(self, chosen: int | None = None) -> None:
        """Stay on the current page."""
        self.is_following, self.chosen, self.note = False, chosen, ""

    def show_from(self, client: HistoryClient, first: int) -> None:
        """Show the page that starts with a sequence."""
        self.pause()
        self.page = page_from(client, self.topic, first, self.size)
        self.wanted = None

    def show_older(self, client: HistoryClient) -> None:
        """Show the page before."""
        if self.page is not None:
            self.show_from(client, first_before(self.page, self.size))

    def show_newer(self, client: HistoryClient) -> None:
        """Show the page after, or follow the end after the last one."""
        if self.page is None or self.page.is_at_head:
            self.follow()
        else:
            self.show_from(client, self.page.last + 1)

    def resize(self, client: HistoryClient, size: int) -> None:
        """Show more or fewer messages per page."""
        self.size = size
        if not self.is_following and self.page is not None:
            chosen = self.chosen
            self.show_from(client, self.page.first)
            self.chosen = chosen

    def go_to_sequence(self, client: HistoryClient, sequence: int) -> None:
        """Show a message in full, and those around it."""
        self.show_from(client, first_around(sequence, self.size))
        self.chosen = sequence
        if self.message is None:
            self.note = f"Message {sequence:,} does not exist."

    def go_to_time(self, client: HistoryClient, at: datetime) -> None:
        """Show the first message at or after a time, and those around it."""
        self._go_to(client, find_time(client, self.topic, at), f"No message at or after {at:%F %T} UTC.")

    def go_to_oldest(self, client: HistoryClient) -> None:
        """Show the oldest messages."""
        oldest = find_oldest(client, self.topic)
        self.show_from(client, 1 if oldest is None else oldest)

    def _go_to(self, client: HistoryClient, sequence: int | None, otherwise: str) -> None:
        if sequence is None:
            self.note = otherwise
        else:
            self.go_to_sequence(client, sequence)
