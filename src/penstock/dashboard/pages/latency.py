"""How long messages take from their first byte read to the last written, and how late the loop is."""

import streamlit as st

from penstock.dashboard.charts import show_bars, show_lines
from penstock.dashboard.colours import LATENCY_MS, LOOP_LAG_MS, PERCENTILES, SERIES, Level
from penstock.dashboard.figures import Figures, TopicFigures
from penstock.dashboard.history import History, Pick
from penstock.dashboard.live import live
from penstock.dashboard.panels import Cell, Tile, show_heading, show_table, show_tiles
from penstock.dashboard.poll import View
from penstock.dashboard.tables import latency_cells, topic_cell
from penstock.dashboard.units import NOTHING, count, milliseconds

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
                "Which of the times",
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
    show_tiles(tiles(view.figures))


@live
def _topic_lines(view: View) -> None:
    chosen = str(st.session_state.get(CHOICE, "p95"))
    slowest = slowest_of_late(view.history, LINES)
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
        "avg": view.history.values(lambda figures: figures.loop_lag_ms.avg),
        "p99": view.history.values(lambda figures: figures.loop_lag_ms.p99),
    }
    show_lines("loop-lag", lines, PERCENTILES, restarts=view.history.restarts())


@live
def _topics(view: View) -> None:
    topics = view.figures.topics
    show_heading(
        "By topic", f"the slowest {ROWS} of {count(len(topics))}" if len(topics) > ROWS else "slowest first"
    )
    rows: list[list[Cell | str]] = [
        [
            topic_cell(topic),
            _level_word(topics[topic]),
            count(topics[topic].messages_delivered),
            *latency_cells(topics[topic]),
        ]
        for topic in slowest_topics(view.figures, ROWS)
    ]
    columns = ("topic", "", "delivered", *NAMES)
    show_table("latency", columns, rows, numbers=4, empty="Nothing was delivered yet.")


@live
def _bars(view: View) -> None:
    show_heading("Across topics", "ms")
    topics = view.figures.topics
    rows = {
        topic: {name: float(getattr(topics[topic].latency_ms, name)) for name in NAMES}
        for topic in slowest_topics(view.figures, BARS)
    }
    show_bars("latency-bars", rows, PERCENTILES, unit="ms")


def tiles(figures: Figures) -> list[Tile]:
    """How the server as a whole is."""
    times, lag = figures.latency_ms, figures.loop_lag_ms
    is_known = times.entries is None or times.entries > 0
    tiles = [
        Tile(
            f"latency-{name}",
            f"Latency, {name}",
            milliseconds(value) if is_known else NOTHING,
            note="" if is_known else "nothing left of late",
            level=LATENCY_MS[name].level(value),
        )
        for name in NAMES
        for value in (float(getattr(times, name)),)
    ]
    worst = worst_level(figures)
    return [
        *tiles,
        Tile(
            "latency-topics",
            "Topics too slow",
            count(topics_above(figures)),
            note=str(worst),
            level=worst,
        ),
        Tile("loop-lag-avg", "Loop lag, avg", milliseconds(lag.avg), level=LOOP_LAG_MS.level(lag.avg)),
        Tile("loop-lag-p99", "Loop lag, p99", milliseconds(lag.p99), level=LOOP_LAG_MS.level(lag.p99)),
    ]


def topic_level(topic: TopicFigures) -> Level:
    """The worst of what the three times of a topic say."""
    levels = [LATENCY_MS[name].level(float(getattr(topic.latency_ms, name))) for name in NAMES]
    return max(levels, key=list(Level).index)


def _level_word(topic: TopicFigures) -> Cell:
    """How a topic is, as a field of a table."""
    level = topic_level(topic)
    return Cell(str(level), level)


def worst_level(figures: Figures) -> Level:
    """The worst that can be said of a topic."""
    return max(map(topic_level, figures.topics.values()), key=list(Level).index, default=Level.GOOD)


def topics_above(figures: Figures) -> int:
    """How many topics are not as quick as they should be."""
    return sum(topic_level(topic) is not Level.GOOD for topic in figures.topics.values())


def slowest_topics(figures: Figures, limit: int) -> list[str]:
    """The topics whose messages take longest."""
    timed = [(topic.latency_ms.p99, name) for name, topic in figures.topics.items() if topic.latency_ms.p99]
    return [name for _, name in sorted(timed, reverse=True)[:limit]]


def slowest_of_late(history: History, limit: int) -> list[str]:
    """The topics that took longest in all that is remembered, by name: they seldom change."""
    worst: dict[str, float] = {}
    for sample in history:
        for name, topic in sample.figures.topics.items():
            worst[name] = max(worst.get(name, 0.0), topic.latency_ms.p99)
    ranked = sorted((name for name in worst if worst[name]), key=lambda name: (-worst[name], name))
    return sorted(ranked[:limit])


def _latency_pick(topic: str, name: str) -> Pick:
    """One of the times of a topic."""
    nothing = TopicFigures()
    return lambda figures: float(getattr(figures.topics.get(topic, nothing).latency_ms, name))


def _total_pick(name: str) -> Pick:
    """One of the times of all topics."""
    return lambda figures: float(getattr(figures.latency_ms, name))
