"""Topics page: search among all topics, then metrics, messages and retained value of one.

The poller knows the busiest topics only, so the metrics of the shown topic are requested by its name.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from time import monotonic

import streamlit as st
from msgspec import Struct

from penstock.client import HttpClient, Message
from penstock.common.text import count_text, milliseconds_text, percent_text, rate_text
from penstock.dashboard.charts import show_lines
from penstock.dashboard.pages.payloads import preview
from penstock.dashboard.pages.topic_messages import payload_summary, show_messages, show_payload
from penstock.dashboard.poller import History, Pick, current_poller
from penstock.dashboard.responses import ApiClient, Metrics, TopicMetrics, decode_metrics, decode_response
from penstock.dashboard.style import ACCENT, LATENCY_MS, OUTCOMES, PERCENTILES, SATURATION, Outcome
from penstock.dashboard.widgets import (
    REFRESH_S,
    Columns,
    Tile,
    ask_server,
    millisecond_text,
    number_columns,
    show_grid,
    show_heading,
    show_tiles,
)

SHOWN_TOPICS = 50
"""Topics per page of the search."""
_WILDCARDS = "+#"
_TEXT, _BEFORE, _TABLE, _CHOSEN = "topic-search", "topic-search-before", "topic-found", "topic-chosen"
FINDER_COLUMNS = {
    "Topic": st.column_config.TextColumn(width="large"),
    **number_columns("Published", "Last sequence", "Subscribers", "In memory"),
}
FINDER_ROWS = 14
HELP = "Part of the name, or a filter such as `plant/+/temperature` or `plant/#`."
_HISTORY = "topic-history"
PickOfTopic = Callable[[TopicMetrics], float]
LATENCIES: dict[str, PickOfTopic] = {
    "avg": lambda now: now.latency_ms.avg,
    "p95": lambda now: now.latency_ms.p95,
    "p99": lambda now: now.latency_ms.p99,
}
COUNTERS: dict[Outcome, PickOfTopic] = {
    Outcome.PUBLISHED: lambda now: now.messages_published,
    Outcome.DELIVERED: lambda now: now.messages_delivered,
    Outcome.DROPPED: lambda now: now.messages_dropped,
}
RETAINED_REFRESH_S = 5.0


class TopicRow(Struct, frozen=True):
    """Topic as the server lists it."""

    name: str
    sequence: int
    published: int
    subscribers: int
    retained: bool
    ring_messages: int
    kept: bool


class FoundTopics(Struct, frozen=True):
    """Page of matching topics."""

    topics: list[TopicRow]
    next: str | None
    """Name after which the next page starts; None on the last page."""
    matching: int
    """Number of matches on all pages."""


def show() -> None:
    """Draw the topic that the address names, or the search."""
    topic = st.query_params.get("topic")
    if topic:
        _show_topic(topic)
    else:
        show_finder()


def _show_topic(topic: str) -> None:
    name, other = st.columns([5, 1], vertical_alignment="center")
    with name.container(key="topic-name"):
        st.html(f'<h3 style="margin:0;overflow-wrap:anywhere;white-space:pre-wrap">{escape(topic)}</h3>')
    other.button("All topics", icon=":material/arrow_back:", width="stretch", on_click=st.query_params.clear)
    show_metrics(topic)
    show_retained(topic)
    show_messages(topic)


def is_filter(text: str) -> bool:
    """True if a text is a topic filter: topic names contain no wildcards."""
    return any(wildcard in text for wildcard in _WILDCARDS)


def find_topics(
    client: ApiClient, text: str = "", after: str | None = None, limit: int = SHOWN_TOPICS
) -> FoundTopics:
    """Find topics whose name contains a text or matches a filter, sorted by name.

    Raises:
        PenstockError: the server is unreachable or refuses the filter.
    """
    text = text.strip()
    query = {"filter" if is_filter(text) else "search": text} if text else {}
    return decode_response(client.get("/api/v1/topics", after=after, limit=limit, **query), FoundTopics)


def match_count(found: FoundTopics, text: str) -> str:
    """Number of topics, or of matches, in words."""
    topics = f"{found.matching:,} {'topic' if found.matching == 1 else 'topics'}"
    if not text.strip():
        return topics
    return f"{topics} {'matches' if found.matching == 1 else 'match'}"


@st.fragment
def show_finder() -> None:
    """Draw the search and its results; a click on a row opens the topic."""
    st.text_input(
        "Find a topic",
        key=_TEXT,
        placeholder="part of the name, or a filter with + and #",
        help=HELP,
        icon=":material/search:",
        on_change=_first_page,
    )
    ask_server(_search)


def _first_page() -> None:
    """Return to the first page after the text changed."""
    st.session_state[_BEFORE] = []


def _search() -> None:
    before: list[str] = st.session_state.setdefault(_BEFORE, [])
    with current_poller().source.connect() as client:
        found = _find(client, before)
    _show_count(found, before)
    if not found.topics:
        return
    names = [topic.name for topic in found.topics]
    show_grid(
        "found-topics",
        f"{_TABLE}-{st.session_state[_TEXT]}-{len(before)}",
        found_columns(found),
        visible_rows=FINDER_ROWS,
        config=FINDER_COLUMNS,
        on_choice=lambda row: _open(names[row]),
    )
    if st.session_state.pop(_CHOSEN, False):
        st.rerun()  # redraw the whole page for the opened topic


def _open(topic: str) -> None:
    st.query_params.from_dict({"topic": topic})
    st.session_state[_CHOSEN] = True


def _find(client: HttpClient, before: list[str]) -> FoundTopics:
    return find_topics(client, st.session_state[_TEXT], before[-1] if before else None)


def _show_count(found: FoundTopics, before: list[str]) -> None:
    words, back, on = st.columns([6, 1, 1], vertical_alignment="center")
    with words.container(key="topic-count"):
        st.caption(f"{match_count(found, st.session_state[_TEXT])} · click a row to open it")
    back.button("Previous", disabled=not before, width="stretch", on_click=_turn_back, args=(before,))
    on.button(
        "Next", disabled=found.next is None, width="stretch", on_click=before.append, args=(found.next,)
    )


def _turn_back(before: list[str]) -> None:
    before.pop()


def found_columns(found: FoundTopics) -> Columns:
    """Search results as a table."""
    return {
        "Topic": [topic.name for topic in found.topics],
        "Published": [topic.published for topic in found.topics],
        "Last sequence": [topic.sequence for topic in found.topics],
        "Subscribers": [topic.subscribers for topic in found.topics],
        "In memory": [topic.ring_messages for topic in found.topics],
        "Retained": ["yes" if topic.retained else "" for topic in found.topics],
        "In the log": ["yes" if topic.kept else "" for topic in found.topics],
    }


@st.fragment(run_every=REFRESH_S)
def show_metrics(topic: str) -> None:
    """Draw the metrics of a topic, now and over the last two minutes."""
    ask_server(lambda: _show_metrics(topic))


def _show_metrics(topic: str) -> None:
    history = _history_of(topic)
    with current_poller().source.connect() as client:
        metrics = decode_metrics(client.metrics(topics=(topic,)))
    history.add(monotonic(), datetime.now(UTC), metrics)
    show_tiles(_tiles_of(topic, history))
    _show_charts(topic, history)


def _show_charts(topic: str, history: History) -> None:
    depth, latency, rates = st.columns(3)
    restarts = history.restarts()
    with depth:
        show_heading("Fullest outbox", "messages")
        queued = history.values(_number_of(topic, lambda now: now.queue_depth))
        show_lines("topic-depth", {"queued": queued}, {"queued": ACCENT}, restarts=restarts, are_counts=True)
    with latency:
        show_heading("Latency", "ms")
        times = {name: history.values(_number_of(topic, pick)) for name, pick in LATENCIES.items()}
        show_lines("topic-latency", times, PERCENTILES, restarts=restarts)
    with rates:
        show_heading("Messages", "per second")
        counted = {name: history.rates(_number_of(topic, pick)) for name, pick in COUNTERS.items()}
        show_lines("topic-rates", counted, OUTCOMES, restarts=restarts)


def _history_of(topic: str) -> History:
    """Metrics history of a topic in this browser; another topic starts a new one."""
    known = st.session_state.get(_HISTORY)
    if known is None or known[0] != topic:
        known = st.session_state[_HISTORY] = (topic, History())
    history: History = known[1]
    return history


def _number_of(topic: str, pick: PickOfTopic) -> Pick:
    """Selects a number of one topic; a topic without messages has none."""

    def found(metrics: Metrics) -> float:
        return pick(metrics.topics.get(topic, TopicMetrics()))

    return found


def _tiles_of(topic: str, history: History) -> list[Tile]:
    """Tiles of a topic."""
    now = history.last.metrics.topics.get(topic, TopicMetrics())

    def rate(outcome: Outcome) -> str:
        return f"{rate_text(history.rate(_number_of(topic, COUNTERS[outcome])))} per second"

    latency = now.latency_ms
    return [
        Tile(
            "topic-depth",
            "Fullest outbox",
            count_text(now.queue_depth),
            note=f"{percent_text(now.saturation)} of {count_text(now.queue_max_size)}",
            level=SATURATION.level(now.saturation),
        ),
        Tile("topic-subscribers", "Subscribers", count_text(now.subscriber_count)),
        Tile("topic-batch", "Average batch", f"{now.batch_size_avg:,.1f}", note="messages per delivery"),
        Tile(
            "topic-latency",
            "Average latency",
            milliseconds_text(latency.avg),
            note=f"p95 {milliseconds_text(latency.p95)}, p99 {milliseconds_text(latency.p99)}",
            level=LATENCY_MS["avg"].level(latency.avg),
        ),
        Tile(
            "topic-published", "Published", count_text(now.messages_published), note=rate(Outcome.PUBLISHED)
        ),
        Tile(
            "topic-delivered", "Delivered", count_text(now.messages_delivered), note=rate(Outcome.DELIVERED)
        ),
        Tile(
            "topic-dropped",
            "Dropped",
            count_text(now.messages_dropped),
            note=f"{count_text(now.messages_expired)} expired",
        ),
    ]


@st.fragment(run_every=RETAINED_REFRESH_S)
def show_retained(topic: str) -> None:
    """Draw the retained value of a topic, if any."""
    ask_server(lambda: _show_retained(topic))


def _show_retained(topic: str) -> None:
    message = _find_retained(topic)
    with st.container(key="retained-value"):
        if message is None:
            st.caption("No retained value.")
            return
        when = f"{millisecond_text(message.published_at)} UTC, sequence {message.sequence:,}"
        with st.expander(f"Retained value · {payload_summary(preview(message.payload))} · {when}"):
            show_payload(message.payload)


def _find_retained(topic: str) -> Message | None:
    """Retained message of a topic, or None."""
    with current_poller().source.connect() as client:
        return next(iter(client.retained(filter=topic)), None)
