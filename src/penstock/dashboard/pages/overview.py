"""Overview page: state of the server, message rates, topics and slow subscribers."""

import streamlit as st

from penstock.common.text import count_text, duration_text, percent_text, rate_text, size_text
from penstock.dashboard.charts import show_lines
from penstock.dashboard.pages.tables import (
    SLOW_COLUMNS,
    TOPIC_IN_LINK,
    reason_rows,
    slow_rows,
    storage_rows,
    topic_columns,
)
from penstock.dashboard.poller import RATE_WINDOW_S, History, Pick, View
from penstock.dashboard.responses import DoorMetrics, Metrics
from penstock.dashboard.style import ACCENT, DOORS, DROP_RATE, OTHER_DOORS, OUTCOMES, SERIES, Level, Outcome
from penstock.dashboard.widgets import (
    HEAD_PX,
    Tile,
    live,
    number_columns,
    show_heading,
    show_nothing,
    show_table,
    show_tiles,
)

COUNTERS: dict[Outcome, Pick] = {
    Outcome.PUBLISHED: lambda metrics: metrics.total.total_published,
    Outcome.DELIVERED: lambda metrics: metrics.total.total_delivered,
    Outcome.DROPPED: lambda metrics: metrics.total.total_dropped,
}
TOPIC_ROWS = 500
"""Topics in the table; it is sent every second, so a browser must keep up with it."""
VISIBLE_ROWS, ROW_PX = 12, 29
TOPIC_COLUMNS = {
    "topic": st.column_config.LinkColumn(width="medium", display_text=TOPIC_IN_LINK),
    **number_columns("subscribers", "depth", "published", "delivered", "dropped"),
    "latency": st.column_config.NumberColumn("avg latency", format="%.2f ms"),
}


def show() -> None:
    """Draw the page."""
    _tiles()
    _charts()
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _topics()
    with right:
        _details()


@live
def _tiles(view: View) -> None:
    show_tiles(tiles(view.history))


@live
def _charts(view: View) -> None:
    history, restarts = view.history, view.history.restarts()
    outcomes, incoming, outgoing, clients = st.columns(4)
    with outcomes:
        show_heading("Messages", "per second")
        rates = {outcome: history.rates(pick) for outcome, pick in COUNTERS.items()}
        show_lines("outcomes", rates, OUTCOMES, restarts=restarts)
    doors = list(view.metrics.doors) or list(DOORS)
    colours = {door: DOORS.get(door, OTHER_DOORS) for door in doors}
    with incoming:
        show_heading("Published by door", "messages per second")
        rates_in = {door: history.rates(_door_pick(door, "published")) for door in doors}
        show_lines("doors-in", rates_in, colours, restarts=restarts)
    with outgoing:
        show_heading("Delivered by door", "messages per second")
        rates_out = {door: history.rates(_door_pick(door, "delivered")) for door in doors}
        show_lines("doors-out", rates_out, colours, restarts=restarts)
    with clients:
        show_heading("Subscribers", "now")
        now = {
            "subscribers": history.values(lambda metrics: metrics.total.active_subscribers),
            "clients": history.values(lambda metrics: metrics.total.connected_clients),
        }
        both = {"subscribers": ACCENT, "clients": SERIES[1]}
        show_lines("subscribers", now, both, restarts=restarts, are_counts=True)


@live
def _topics(view: View) -> None:
    show_heading("Topics", topics_note(view.metrics))
    columns = topic_columns(view.metrics, TOPIC_ROWS)
    with st.container(key="table-topics"):
        if not columns["topic"]:
            show_nothing("No topics yet: nothing was published or subscribed to.")
            return
        rows = min(len(columns["topic"]), VISIBLE_ROWS)
        st.dataframe(
            columns,
            key="topics",
            hide_index=True,
            height=rows * ROW_PX + HEAD_PX,
            row_height=ROW_PX,
            column_config=TOPIC_COLUMNS,
        )


@live
def _details(view: View) -> None:
    metrics = view.metrics
    show_heading("Slowest subscribers")
    show_table("slow", SLOW_COLUMNS, slow_rows(view.slow, 5), numbers=4, empty="No slow subscribers.")
    show_heading("Not delivered, by reason", "since the server started")
    rows = reason_rows(metrics.not_delivered)
    show_table("reasons", ("reason", "", "messages"), rows, numbers=1, empty="All messages were delivered.")
    show_heading("Log and rings")
    show_table("storage", ("", ""), storage_rows(metrics.log, metrics.rings), numbers=1, empty="")


def tiles(history: History) -> list[Tile]:
    """Tiles at the top."""
    return [*_client_tiles(history.last.metrics), *_message_tiles(history), *_process_tiles(history)]


def _client_tiles(metrics: Metrics) -> list[Tile]:
    total = metrics.total
    return [
        Tile(
            "topics",
            "Active topics",
            count_text(total.active_topics),
            note=f"{count_text(total.retained_messages)} retained",
        ),
        Tile(
            "subscribers",
            "Subscribers",
            count_text(total.active_subscribers),
            note=f"{count_text(total.slow_subscribers)} slow",
        ),
        Tile("clients", "Clients", count_text(total.connected_clients), note=_connections_text(metrics)),
    ]


def _message_tiles(history: History) -> list[Tile]:
    total = history.last.metrics.total
    rates = {outcome: history.rate(pick) for outcome, pick in COUNTERS.items()}
    dropped = drop_rate(rates[Outcome.DELIVERED], rates[Outcome.DROPPED])
    return [
        Tile(
            "published",
            "Published",
            rate_text(rates[Outcome.PUBLISHED]),
            "/s",
            f"{count_text(total.total_published)} total",
        ),
        Tile(
            "delivered",
            "Delivered",
            rate_text(rates[Outcome.DELIVERED]),
            "/s",
            f"{count_text(total.total_delivered)} total",
        ),
        Tile(
            "dropped",
            "Drop rate",
            percent_text(dropped, 2),
            note=f"{count_text(total.total_dropped)} total",
            level=Level.GOOD if dropped is None else DROP_RATE.level(dropped),
            hint=f"Dropped / (delivered + dropped) of the last {RATE_WINDOW_S:.0f} seconds.",
        ),
    ]


def _process_tiles(history: History) -> list[Tile]:
    metrics = history.last.metrics
    return [
        Tile("uptime", "Uptime", duration_text(metrics.uptime_seconds), note=f"epoch {metrics.log.epoch}"),
        Tile("memory", "Memory", size_text(metrics.process.memory_bytes), note=_files_text(metrics)),
        Tile("cpu", "CPU", percent_text(cpu_share(history), 0), note="of one core"),
    ]


def topics_note(metrics: Metrics) -> str:
    """Note on which topics are listed, and where to find the others."""
    left_out = metrics.topics_left_out + max(len(metrics.topics) - TOPIC_ROWS, 0)
    if left_out:
        return f"the busiest; find the {count_text(left_out)} others on Topics"
    return "the busiest first"


def _door_pick(door: str, field: str) -> Pick:
    """Selects a counter of one door."""
    return lambda metrics: float(getattr(metrics.doors.get(door, DoorMetrics()), field))


def drop_rate(delivered: float | None, dropped: float | None) -> float | None:
    """Dropped messages as a share of all that should have been delivered recently."""
    if delivered is None or dropped is None:
        return None
    return dropped / (delivered + dropped) if dropped else 0.0


def cpu_share(history: History) -> float | None:
    """CPU use of the server recently, as a share of one core."""
    if history.last.metrics.process.cpu_seconds is None:
        return None
    return history.rate(lambda metrics: metrics.process.cpu_seconds or 0.0)


def _connections_text(metrics: Metrics) -> str:
    """Number of connections."""
    number = sum(metrics.connections.values())
    return f"{count_text(number)} connection{'' if number == 1 else 's'}"


def _files_text(metrics: Metrics) -> str:
    """Number of open files and sockets."""
    number = metrics.process.open_files
    return "" if number is None else f"{count_text(number)} files open"
