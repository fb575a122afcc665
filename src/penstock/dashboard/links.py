"""Addresses of pages that show one thing, to be linked from tables and shared with others."""

from urllib.parse import quote, urlencode

TOPICS, WHY, LAKE = "topics", "why", "lake"
"""Where the pages are, below the address of the dashboard."""
TOPIC_IN_LINK = r"topic=([^&]*)"
"""Finds the name of a topic in its link, as a browser does."""


def topic_link(topic: str, sequence: int | None = None) -> str:
    """The address of the page of one topic, or of one message of it."""
    asked = {"topic": topic} | ({} if sequence is None else {"sequence": str(sequence)})
    return f"/{TOPICS}?{_query(**asked)}"


def why_link(topic: str, sequence: int, client: str | None = None) -> str:
    """The address of the question what became of a message, for one client or for all."""
    asked = {"topic": topic, "sequence": str(sequence)}
    return f"/{WHY}?{_query(**asked, **({'client': client} if client else {}))}"


def _query(**values: str) -> str:
    return urlencode(values, quote_via=quote, safe="")
