"""Topics by name, found by the server, a page at a time: there may be very many."""

from msgspec import Struct

from penstock.dashboard.answers import Asking, read_answer

SHOWN_TOPICS = 50
"""How many are shown at once."""

_WILDCARDS = "+#"


class TopicRow(Struct, frozen=True):
    """One topic as the server lists it."""

    name: str
    sequence: int
    published: int
    subscribers: int
    retained: bool
    ring_messages: int
    kept: bool


class FoundTopics(Struct, frozen=True):
    """One page of the topics that match."""

    topics: list[TopicRow]
    next: str | None
    """After which name the next page begins; None if this is the last one."""
    matching: int
    """On all pages."""


def is_filter(text: str) -> bool:
    """Whether a text is a topic filter: no topic has a wildcard in its name."""
    return any(wildcard in text for wildcard in _WILDCARDS)


def find_topics(
    client: Asking, text: str = "", after: str | None = None, limit: int = SHOWN_TOPICS
) -> FoundTopics:
    """The topics whose names hold a text, or match a filter; sorted by name.

    Raises:
        PenstockError: the server is away, or refuses the filter.
    """
    text = text.strip()
    asked = {"filter" if is_filter(text) else "search": text} if text else {}
    return read_answer(client.get("/api/v1/topics", after=after, limit=limit, **asked), FoundTopics)


def count_in_words(found: FoundTopics, text: str) -> str:
    """How many there are, or match."""
    topics = f"{found.matching:,} {'topic' if found.matching == 1 else 'topics'}"
    if not text.strip():
        return topics
    return f"{topics} {'matches' if found.matching == 1 else 'match'}"
