"""Who cannot keep up, what waits for them, what is lost by it, and who is held back because of it."""

import streamlit as st

from penstock.dashboard.charts import show_bars, show_lines
from penstock.dashboard.colours import LEVELS, OUTCOMES, SATURATION, SERIES, Level, Outcome
from penstock.dashboard.figures import Figures, TopicFigures
from penstock.dashboard.live import live
from penstock.dashboard.panels import Cell, Tile, show_heading, show_table, show_tiles
from penstock.dashboard.poll import View
from penstock.dashboard.tables import LOSSES, SLOW_COLUMNS, reason_rows, slow_rows, topic_cell
from penstock.dashboard.units import count, percent, size

GAUGES = 8
BARS = 8


def show() -> None:
    """Draw the page."""
    _tiles()
    _charts()
    left, right = st.columns(2, gap="medium")
    with left:
        _gauges()
        _slow()
    with right:
        _drops()


@live
def _tiles(view: View) -> None:
    show_tiles(tiles(view.figures))


@live
def _charts(view: View) -> None:
    history, restarts = view.history, view.history.restarts()
    drops, waiting, held = st.columns(3)
    with drops:
        show_heading("Dropped", "messages per second")
        rates = {"dropped": history.rates(lambda figures: figures.total.total_dropped)}
        show_lines("drops", rates, {"dropped": OUTCOMES[Outcome.DROPPED]}, restarts=restarts)
    with waiting:
        show_heading("Waiting in outboxes", "messages")
        lines = {
            "all outboxes": history.values(lambda figures: figures.outboxes.messages),
            "fullest outbox": history.values(lambda figures: figures.outboxes.largest_messages),
        }
        colours = dict(zip(lines, SERIES, strict=False))
        show_lines("waiting", lines, colours, restarts=restarts, are_counts=True)
    with held:
        show_heading("Subscribers behind, publishers held", "now")
        lines = {
            "behind": history.values(lambda figures: figures.outboxes.lagging_subscribers),
            "slow": history.values(lambda figures: figures.outboxes.slow_subscribers),
            "publishers held": history.values(lambda figures: figures.outboxes.publishers_held),
        }
        colours = {"behind": SERIES[0], "slow": LEVELS[Level.CRITICAL], "publishers held": SERIES[3]}
        show_lines("held", lines, colours, restarts=restarts, are_counts=True)


@live
def _gauges(view: View) -> None:
    show_heading("Saturation by topic", "how full the fullest outbox of its subscribers is")
    rows = [gauge_row(name, view.figures.topics[name]) for name in fullest_topics(view.figures, GAUGES)]
    columns = ("topic", "", "", "waiting", "saturation")
    show_table("saturation", columns, rows, numbers=2, empty="No topic has messages yet.")


@live
def _slow(view: View) -> None:
    show_heading("Slow subscribers", "now and until a while ago")
    show_table("slow", SLOW_COLUMNS, slow_rows(view.slow), numbers=4, empty="Everybody keeps up.")


@live
def _drops(view: View) -> None:
    figures = view.figures
    show_heading("Published, delivered and dropped", "messages by topic, since the start")
    show_bars("comparison", comparison(figures, BARS), OUTCOMES)
    show_heading("Drops by topic", "since the start")
    columns = ("topic", "published", "delivered", "dropped")
    show_table("drops", columns, drop_rows(figures, GAUGES), numbers=3, empty="Nothing was dropped.")
    show_heading("Drops by reason", "since the start")
    lost = {reason: number for reason, number in figures.not_delivered.items() if reason in LOSSES}
    show_table(
        "loss-reasons", ("reason", "", "messages"), reason_rows(lost), numbers=1, empty="Nothing was dropped."
    )


def tiles(figures: Figures) -> list[Tile]:
    """The numbers that come first."""
    boxes, total = figures.outboxes, figures.total
    fullest = boxes.saturation
    return [
        Tile(
            "lagging",
            "Subscribers behind",
            count(boxes.lagging_subscribers),
            note=f"of {count(total.active_subscribers)}",
        ),
        Tile(
            "slow",
            "Slow subscribers",
            count(boxes.slow_subscribers),
            level=Level.CRITICAL if boxes.slow_subscribers else Level.GOOD,
        ),
        Tile("waiting", "Messages waiting", count(boxes.messages), note=size(boxes.bytes)),
        Tile(
            "fullest",
            "Fullest outbox",
            percent(fullest),
            note=f"{count(boxes.largest_messages)} messages",
            level=SATURATION.level(fullest),
        ),
        Tile(
            "held",
            "Publishers held",
            count(boxes.publishers_held),
            note=f"{count(boxes.publisher_holds)} times so far",
            level=Level.ELEVATED if boxes.publishers_held else Level.GOOD,
        ),
        Tile("dropped", "Dropped", count(total.total_dropped), note="since the start"),
        Tile("expired", "Expired", count(total.total_expired), note="since the start"),
    ]


def fullest_topics(figures: Figures, limit: int) -> list[str]:
    """The topics whose subscribers are worst off; where nobody is, the busiest."""
    ranked = sorted(
        figures.topics.items(), key=lambda item: (-item[1].saturation, -item[1].messages_published, item[0])
    )
    return [name for name, _ in ranked[:limit]]


def gauge_row(name: str, topic: TopicFigures) -> list[Cell | str]:
    """A topic with a bar that is as long as its fullest outbox is full."""
    level = SATURATION.level(topic.saturation)
    text = percent(topic.saturation)
    return [
        topic_cell(name),
        Cell(text, level, topic.saturation),
        Cell(str(level), level),
        count(topic.queue_depth),
        Cell(text, level),
    ]


def comparison(figures: Figures, limit: int) -> dict[str, dict[Outcome, float]]:
    """What became of the messages of the busiest topics."""
    ranked = sorted(figures.topics.items(), key=lambda item: (-item[1].messages_published, item[0]))
    return {
        name: {
            Outcome.PUBLISHED: topic.messages_published,
            Outcome.DELIVERED: topic.messages_delivered,
            Outcome.DROPPED: topic.messages_dropped,
        }
        for name, topic in ranked[:limit]
    }


def drop_rows(figures: Figures, limit: int) -> list[list[Cell | str]]:
    """The topics that lost most."""
    lossy = [
        (topic.messages_dropped, name) for name, topic in figures.topics.items() if topic.messages_dropped
    ]
    ranked = sorted(lossy, key=lambda item: (-item[0], item[1]))[:limit]
    return [
        [
            topic_cell(name),
            count(figures.topics[name].messages_published),
            count(figures.topics[name].messages_delivered),
            Cell(count(dropped), Level.CRITICAL),
        ]
        for dropped, name in ranked
    ]
