"""The figures of one topic: tiles, and three charts of the last two minutes.

The poller knows the busiest topics only, so the one that is looked at is asked for by its name.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

import streamlit as st

from penstock.dashboard.asking import ask
from penstock.dashboard.charts import show_lines
from penstock.dashboard.colours import ACCENT, LATENCY_MS, OUTCOMES, PERCENTILES, SATURATION, Outcome
from penstock.dashboard.figures import Figures, TopicFigures, read_figures
from penstock.dashboard.history import History, Pick
from penstock.dashboard.live import REFRESH_S
from penstock.dashboard.panels import Tile, show_heading, show_tiles
from penstock.dashboard.poll import current
from penstock.dashboard.units import count, milliseconds, per_second, percent

_HISTORY = "topic-history"

PickOfTopic = Callable[[TopicFigures], float]

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


@st.fragment(run_every=REFRESH_S)
def show_numbers(topic: str) -> None:
    """Draw the figures of a topic as they are now, and as they were."""
    ask(lambda: _show(topic))


def _show(topic: str) -> None:
    history = _history_of(topic)
    with current().source.connect() as client:
        figures = read_figures(client.metrics(topics=(topic,)))
    history.add(monotonic(), datetime.now(UTC), figures)
    show_tiles(_tiles_of(topic, history))
    _show_charts(topic, history)


def _show_charts(topic: str, history: History) -> None:
    depth, latency, rates = st.columns(3)
    restarts = history.restarts()
    with depth:
        show_heading("Fullest outbox", "messages")
        waiting = history.values(_number_of(topic, lambda now: now.queue_depth))
        show_lines(
            "topic-depth", {"waiting": waiting}, {"waiting": ACCENT}, restarts=restarts, are_counts=True
        )
    with latency:
        show_heading("Latency", "ms")
        times = {name: history.values(_number_of(topic, pick)) for name, pick in LATENCIES.items()}
        show_lines("topic-latency", times, PERCENTILES, restarts=restarts)
    with rates:
        show_heading("Messages", "per second")
        counted = {name: history.rates(_number_of(topic, pick)) for name, pick in COUNTERS.items()}
        show_lines("topic-rates", counted, OUTCOMES, restarts=restarts)


def _history_of(topic: str) -> History:
    """What this browser has seen of a topic; another topic begins anew."""
    known = st.session_state.get(_HISTORY)
    if known is None or known[0] != topic:
        known = st.session_state[_HISTORY] = (topic, History())
    history: History = known[1]
    return history


def _number_of(topic: str, pick: PickOfTopic) -> Pick:
    """Takes a number of one topic out of the figures; nothing is known of a topic without messages."""

    def found(figures: Figures) -> float:
        return pick(figures.topics.get(topic, TopicFigures()))

    return found


def _tiles_of(topic: str, history: History) -> list[Tile]:
    """What is known of a topic now."""
    now = history.last.figures.topics.get(topic, TopicFigures())

    def rate(outcome: Outcome) -> str:
        return f"{per_second(history.rate(_number_of(topic, COUNTERS[outcome])))} per second"

    latency = now.latency_ms
    return [
        Tile(
            "topic-depth",
            "Fullest outbox",
            count(now.queue_depth),
            note=f"{percent(now.saturation)} of {count(now.queue_max_size)}",
            level=SATURATION.level(now.saturation),
        ),
        Tile("topic-subscribers", "Subscribers", count(now.subscriber_count)),
        Tile("topic-batch", "Average batch", f"{now.batch_size_avg:,.1f}", note="messages together"),
        Tile(
            "topic-latency",
            "Average latency",
            milliseconds(latency.avg),
            note=f"p95 {milliseconds(latency.p95)}, p99 {milliseconds(latency.p99)}",
            level=LATENCY_MS["avg"].level(latency.avg),
        ),
        Tile("topic-published", "Published", count(now.messages_published), note=rate(Outcome.PUBLISHED)),
        Tile("topic-delivered", "Delivered", count(now.messages_delivered), note=rate(Outcome.DELIVERED)),
        Tile(
            "topic-dropped",
            "Dropped",
            count(now.messages_dropped),
            note=f"{count(now.messages_expired)} expired",
        ),
    ]
