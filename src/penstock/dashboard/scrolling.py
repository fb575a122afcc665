"""Pages of one topic's history, by sequence: following its end, turning back, and finding a place in it.

A page is a range of sequences. Each of them is a message that is shown, or missing with a reason, or was not
looked at; whatever is missing is told. Nothing here asks for more than a few bounded answers.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from penstock.client import Gap, History, Message, Missing

PAGE_SIZES = (20, 50, 100)
ROUNDS = 4
"""How many answers one page may take: an answer ends after some megabytes, and after a while of looking."""

_SMALLER = 4

REASONS = {
    "evicted": "left memory, and no log keeps this topic",
    "expired": "lifetime over",
    "retention": "left the log, which keeps messages only for so long",
    "never-stored": "could not be stored",
    "lost-uncommitted": "the server stopped before they were stored",
    "epoch-changed": "the server has begun anew without them",
    "damaged": "the log is damaged there",
    "not-authorized": "this user may not read this",
}


class Reading(Protocol):
    """A client, as far as it is needed here."""

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
    """A range of sequences of a topic, and what is known of them."""

    first: int
    last: int
    """What the page stands for; both ends belong to it."""
    messages: tuple[Message, ...] = ()
    """In the order of their sequences."""
    missing: tuple[Missing, ...] = ()
    gaps: tuple[Gap, ...] = ()
    is_at_head: bool = False
    """There is nothing newer."""
    is_unfinished: bool = False
    """The server had more to look at than one page may ask for."""


def follow(client: Reading, topic: str, size: int) -> Page:
    """The newest messages.

    Raises:
        PenstockError: the server is away, or knows no such topic.
    """
    wanted = size
    for _ in range(ROUNDS):
        history = client.messages(topic, last=wanted, limit=wanted)
        if history.statement.is_at_head or wanted == 1:
            break
        wanted = max(wanted // _SMALLER, 1)  # large ones: an answer ended before it came to the newest
    sequences = [each.sequence for each in history.messages]
    sequences += [each.last for each in history.statement.missing]
    last = max(sequences, default=0)
    return _page_of([history], max(last - wanted + 1, 1), last)


def turn_to(client: Reading, topic: str, first: int, size: int) -> Page:
    """The messages from one sequence on.

    Raises:
        PenstockError: the server is away, or knows no such topic.
    """
    first = max(first, 1)
    last = first + size - 1
    histories = [client.messages(topic, after_sequence=first - 1, limit=size)]
    while len(histories) < ROUNDS and not _reaches(histories[-1], last):
        histories.append(client.messages(topic, after=histories[-1].statement.next, limit=size))
    return _page_of(histories, first, last)


def find_time(client: Reading, topic: str, at: datetime) -> int | None:
    """The sequence of the first message at a time or after it; None if there is none.

    Raises:
        PenstockError: the server is away, or knows no such topic.
    """
    return _first_of(client, topic, at)


def find_oldest(client: Reading, topic: str) -> int | None:
    """The sequence of the oldest message that is still there; None if there is none.

    Raises:
        PenstockError: the server is away, or knows no such topic.
    """
    return _first_of(client, topic, "earliest")


def _first_of(client: Reading, topic: str, start: datetime | str) -> int | None:
    history = client.messages(topic, start=start, limit=1)
    for _ in range(ROUNDS):
        if history.messages or history.statement.is_at_head:
            break
        history = client.messages(topic, after=history.statement.next, limit=1)
    return history.messages[0].sequence if history.messages else None


def first_around(sequence: int, size: int) -> int:
    """Where a page begins that has a sequence in its middle."""
    return max(sequence - size // 2, 1)


def first_before(page: Page, size: int) -> int:
    """Where the page before begins."""
    return max(page.first - size, 1)


def _reaches(history: History, last: int) -> bool:
    """Whether all sequences up to one were looked at."""
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
    """The part of a range that lies on a page."""
    begin, end = max(missing.first or first, first), min(missing.last, last)
    return Missing(missing.topic, begin, end, missing.reason) if begin <= end else None


# In words


def title_of(page: Page) -> str:
    """What is shown."""
    if not page.messages:
        return f"No messages from {page.first:,} to {page.last:,}"
    shown = page.messages
    return f"Messages {shown[0].sequence:,} to {shown[-1].sequence:,}"


def absences(page: Page) -> list[str]:
    """What is missing on a page and why, a sentence each."""
    said = [_missing_in_words(each) for each in page.missing]
    said += [
        f"Offsets {gap.first:,} to {gap.last:,} of the log cannot be read, whose ever they were: "
        f"{REASONS.get(gap.reason, gap.reason)} ({gap.reason})."
        for gap in page.gaps
    ]
    if page.is_unfinished:
        said.append("The page ends early: there is more between here and its end than one page may ask for.")
    return said


def _missing_in_words(missing: Missing) -> str:
    reason = f"{REASONS.get(missing.reason, missing.reason)} ({missing.reason})"
    if missing.first == missing.last:
        return f"Message {missing.last:,} is missing: {reason}."
    return f"Messages {missing.first:,} to {missing.last:,} are missing: {reason}."
