"""The first page: how the server is, what goes through it, and who has trouble."""

import streamlit as st

from penstock.dashboard.charts import show_lines
from penstock.dashboard.colours import ACCENT, DOORS, DROP_RATE, OTHER_DOORS, OUTCOMES, SERIES, Level, Outcome
from penstock.dashboard.figures import DoorFigures, Figures
from penstock.dashboard.grids import HEAD_PX, number_columns
from penstock.dashboard.history import RATE_WINDOW_S, History, Pick
from penstock.dashboard.links import TOPIC_IN_LINK
from penstock.dashboard.live import live
from penstock.dashboard.panels import Tile, show_heading, show_nothing, show_table, show_tiles
from penstock.dashboard.poll import View
from penstock.dashboard.tables import SLOW_COLUMNS, reason_rows, slow_rows, storage_rows, topic_columns
from penstock.dashboard.units import NOTHING, count, duration, per_second, percent, size

COUNTERS: dict[Outcome, Pick] = {
    Outcome.PUBLISHED: lambda figures: figures.total.total_published,
    Outcome.DELIVERED: lambda figures: figures.total.total_delivered,
    Outcome.DROPPED: lambda figures: figures.total.total_dropped,
}
TOPIC_ROWS = 500
"""How many topics are listed: the table comes anew each second, and a browser has to keep up with it."""
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
    outcomes, incoming, outgoing, people = st.columns(4)
    with outcomes:
        show_heading("Messages", "per second")
        rates = {outcome: history.rates(pick) for outcome, pick in COUNTERS.items()}
        show_lines("outcomes", rates, OUTCOMES, restarts=restarts)
    doors = list(view.figures.doors) or list(DOORS)
    colours = {door: DOORS.get(door, OTHER_DOORS) for door in doors}
    with incoming:
        show_heading("Published by door", "messages per second")
        rates_in = {door: history.rates(_door_pick(door, "published")) for door in doors}
        show_lines("doors-in", rates_in, colours, restarts=restarts)
    with outgoing:
        show_heading("Delivered by door", "messages per second")
        rates_out = {door: history.rates(_door_pick(door, "delivered")) for door in doors}
        show_lines("doors-out", rates_out, colours, restarts=restarts)
    with people:
        show_heading("Subscribers", "now")
        now = {
            "subscribers": history.values(lambda figures: figures.total.active_subscribers),
            "clients": history.values(lambda figures: figures.total.connected_clients),
        }
        both = {"subscribers": ACCENT, "clients": SERIES[1]}
        show_lines("subscribers", now, both, restarts=restarts, are_counts=True)


@live
def _topics(view: View) -> None:
    show_heading("Topics", topics_note(view.figures))
    columns = topic_columns(view.figures, TOPIC_ROWS)
    with st.container(key="table-topics"):
        if not columns["topic"]:
            show_nothing("Nothing was published yet, and nobody has subscribed to a topic.")
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
    figures = view.figures
    show_heading("Slowest subscribers")
    show_table("slow", SLOW_COLUMNS, slow_rows(view.slow, 5), numbers=4, empty="Everybody keeps up.")
    show_heading("Not delivered, by reason", "since the start")
    rows = reason_rows(figures.not_delivered)
    show_table("reasons", ("reason", "", "messages"), rows, numbers=1, empty="Everything was delivered.")
    show_heading("Log and rings")
    show_table("storage", ("", ""), storage_rows(figures.log, figures.rings), numbers=1, empty="")


def tiles(history: History) -> list[Tile]:
    """The numbers that come first."""
    return [*_people_tiles(history.last.figures), *_message_tiles(history), *_process_tiles(history)]


def _people_tiles(figures: Figures) -> list[Tile]:
    total = figures.total
    return [
        Tile(
            "topics",
            "Active topics",
            count(total.active_topics),
            note=f"{count(total.retained_messages)} retained",
        ),
        Tile(
            "subscribers",
            "Subscribers",
            count(total.active_subscribers),
            note=f"{count(total.slow_subscribers)} slow",
        ),
        Tile("clients", "Clients", count(total.connected_clients), note=_connections_text(figures)),
    ]


def _message_tiles(history: History) -> list[Tile]:
    total = history.last.figures.total
    rates = {outcome: history.rate(pick) for outcome, pick in COUNTERS.items()}
    dropped = drop_rate(rates[Outcome.DELIVERED], rates[Outcome.DROPPED])
    return [
        Tile(
            "published",
            "Published",
            per_second(rates[Outcome.PUBLISHED]),
            "/s",
            f"{count(total.total_published)} in all",
        ),
        Tile(
            "delivered",
            "Delivered",
            per_second(rates[Outcome.DELIVERED]),
            "/s",
            f"{count(total.total_delivered)} in all",
        ),
        Tile(
            "dropped",
            "Drop rate",
            percent(dropped, 2),
            note=f"{count(total.total_dropped)} dropped in all",
            level=Level.GOOD if dropped is None else DROP_RATE.level(dropped),
            hint=f"Of what should be delivered in {RATE_WINDOW_S:.0f} seconds, the part that was dropped.",
        ),
    ]


def _process_tiles(history: History) -> list[Tile]:
    figures = history.last.figures
    return [
        Tile("uptime", "Uptime", duration(figures.uptime_seconds), note=f"epoch {figures.log.epoch}"),
        Tile("memory", "Memory", _memory_text(figures), note=_files_text(figures)),
        Tile("cpu", "CPU", percent(cpu_share(history), 0), note="of one core"),
    ]


def topics_note(figures: Figures) -> str:
    """Which topics are listed, and how to see more of them."""
    left_out = figures.topics_left_out + max(len(figures.topics) - TOPIC_ROWS, 0)
    if left_out:
        return f"the busiest; Topics finds the {count(left_out)} others"
    return "the busiest first"


def _door_pick(door: str, field: str) -> Pick:
    """A counter of one door."""
    return lambda figures: float(getattr(figures.doors.get(door, DoorFigures()), field))


def drop_rate(delivered: float | None, dropped: float | None) -> float | None:
    """Of what should have been delivered of late, the part that was dropped."""
    if delivered is None or dropped is None:
        return None
    return dropped / (delivered + dropped) if dropped else 0.0


def cpu_share(history: History) -> float | None:
    """How much of one core the server uses, of late."""
    if history.last.figures.process.cpu_seconds is None:
        return None
    return history.rate(lambda figures: figures.process.cpu_seconds or 0.0)


def _connections_text(figures: Figures) -> str:
    """How many connections there are."""
    number = sum(figures.connections.values())
    return f"{count(number)} connection{'' if number == 1 else 's'}"


def _memory_text(figures: Figures) -> str:
    """How much memory the server uses."""
    used = figures.process.memory_bytes
    return NOTHING if used is None else size(used)


def _files_text(figures: Figures) -> str:
    """How many files and sockets the server has open."""
    number = figures.process.open_files
    return "" if number is None else f"{count(number)} files open"
