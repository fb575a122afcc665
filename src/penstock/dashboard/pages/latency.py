"""Latency page: time from the first byte read to the last written, and lag of the event loop."""

import streamlit as st

from penstock.common.text import ABSENT, count_text, milliseconds_text
from penstock.dashboard.charts import show_bars, show_lines
from penstock.dashboard.pages.tables import latency_cells, topic_cell
from penstock.dashboard.poller import History, Pick, View
from penstock.dashboard.responses import Metrics, TopicMetrics
from penstock.dashboard.style import LATENCY_MS, LOOP_LAG_MS, PERCENTILES, SERIES, Level
from penstock.dashboard.widgets import Cell, Tile, live, show_heading, show_table, show_tiles

CHOICE = "latency-of"
BARS = 8
ROWS = 25
LINES = 5
NAMES = ("avg", "p95", "p99")


def show() -> None:
    """Draw the page."""
    _tiles()
    topics, everything, loop = st.columns([2, 1, 1])
    with topics:
        with st.container(horizontal=True, vertical_alignment="center", key="latency-choice"):
            show_heading("Slowest topics", "ms")
            st.segmented_control(
                "Latency",
                NAMES,
                default="p95",
                key=CHOICE,
                required=True,
                label_visibility="collapsed",
            )
        _topic_lines()
    with everything:
        _all_lines()
    with loop:
        _loop_lines()
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _topics()
    with right:
        _bars()


@live
def _tiles(view: View) -> None:
    show_tiles(tiles(view.metrics))


@live
def _topic_lines(view: View) -> None:
    chosen = str(st.session_state.get(CHOICE, "p95"))
    slowest = slowest_recently(view.history, LINES)
    lines = {topic: view.history.values(_latency_pick(topic, chosen)) for topic in slowest}
    colours = dict(zip(slowest, SERIES, strict=False))
    show_lines("latency-topics", lines, colours, restarts=view.history.restarts())


@live
def _all_lines(view: View) -> None:
    show_heading("All topics", "ms, of the last ten seconds")
    lines = {name: view.history.values(_total_pick(name)) for name in NAMES}
    show_lines("latency-all", lines, PERCENTILES, restarts=view.history.restarts())


@live
def _loop_lines(view: View) -> None:
    show_heading("Event loop lag", "ms, of the last ten seconds")
    lines = {
        "avg": view.history.values(lambda metrics: metrics.loop_lag_ms.avg),
        "p99": view.history.values(lambda metrics: metrics.loop_lag_ms.p99),
    }
    show_lines("loop-lag", lines, PERCENTILES, restarts=view.history.restarts())


@live
def _topics(view: View) -> None:
    topics = view.metrics.topics
    show_heading(
        "By topic",
        f"the slowest {ROWS} of {count_text(len(topics))}" if len(topics) > ROWS else "slowest first",
    )
    rows: list[list[Cell | str]] = [
        [
            topic_cell(topic, view.source.address),
            _level_word(topics[topic]),
            count_text(topics[topic].messages_delivered),
            *latency_cells(topics[topic]),
        ]
        for topic in slowest_topics(view.metrics, ROWS)
    ]
    columns = ("topic", "", "delivered", *NAMES)
    show_table("latency", columns, rows, numbers=4, empty="No messages delivered yet.")


@live
def _bars(view: View) -> None:
    show_heading("Across topics", "ms")
    topics = view.metrics.topics
    rows = {
        topic: {name: float(getattr(topics[topic].latency_ms, name)) for name in NAMES}
        for topic in slowest_topics(view.metrics, BARS)
    }
    show_bars("latency-bars", rows, PERCENTILES, unit="ms")


def tiles(metrics: Metrics) -> list[Tile]:
    """Tiles of the whole server."""
    times, lag = metrics.latency_ms, metrics.loop_lag_ms
    is_known = times.entries is None or times.entries > 0
    tiles = [
        Tile(
            f"latency-{name}",
            f"Latency, {name}",
            milliseconds_text(value) if is_known else ABSENT,
            note="" if is_known else "no messages recently",
            level=LATENCY_MS[name].level(value),
        )
        for name in NAMES
        for value in (float(getattr(times, name)),)
    ]
    worst = worst_level(metrics)
    return [
        *tiles,
        Tile(
            "latency-topics",
            "Topics too slow",
            count_text(topics_above(metrics)),
            note=str(worst),
            level=worst,
        ),
        Tile("loop-lag-avg", "Loop lag, avg", milliseconds_text(lag.avg), level=LOOP_LAG_MS.level(lag.avg)),
        Tile("loop-lag-p99", "Loop lag, p99", milliseconds_text(lag.p99), level=LOOP_LAG_MS.level(lag.p99)),
    ]


def topic_level(topic: TopicMetrics) -> Level:
    """Worst level of the three latencies of a topic."""
    levels = [LATENCY_MS[name].level(float(getattr(topic.latency_ms, name))) for name in NAMES]
    return max(levels, key=list(Level).index)


def _level_word(topic: TopicMetrics) -> Cell:
    """Level of a topic as a table field."""
    level = topic_level(topic)
    return Cell(str(level), level)


def worst_level(metrics: Metrics) -> Level:
    """Worst level of all topics."""
    return max(map(topic_level, metrics.topics.values()), key=list(Level).index, default=Level.GOOD)


def topics_above(metrics: Metrics) -> int:
    """Number of topics that are not good."""
    return sum(topic_level(topic) is not Level.GOOD for topic in metrics.topics.values())


def slowest_topics(metrics: Metrics, limit: int) -> list[str]:
    """Topics with the highest latency."""
    timed = [(topic.latency_ms.p99, name) for name, topic in metrics.topics.items() if topic.latency_ms.p99]
    return [name for _, name in sorted(timed, reverse=True)[:limit]]


def slowest_recently(history: History, limit: int) -> list[str]:
    """Topics with the highest latency in the whole history, sorted by name so that lines seldom change."""
    worst: dict[str, float] = {}
    for sample in history:
        for name, topic in sample.metrics.topics.items():
            worst[name] = max(worst.get(name, 0.0), topic.latency_ms.p99)
    ranked = sorted((name for name in worst if worst[name]), key=lambda name: (-worst[name], name))
    return sorted(ranked[:limit])


def _latency_pick(topic: str, name: str) -> Pick:
    """Selects one latency of a topic."""
    nothing = TopicMetrics()
    return lambda metrics: float(getattr(metrics.topics.get(topic, nothing).latency_ms, name))


def _total_pick(name: str) -> Pick:
    """Selects one latency of all topics."""
    return lambda metrics: float(getattr(metrics.latency_ms, name))
