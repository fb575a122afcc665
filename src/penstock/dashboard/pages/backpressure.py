"""Backpressure page: slow subscribers, their queues, dropped messages and blocked publishers."""

import streamlit as st

from penstock.common.text import count_text, percent_text, size_text
from penstock.dashboard.charts import show_bars, show_lines
from penstock.dashboard.pages.tables import LOSSES, SLOW_COLUMNS, reason_rows, slow_rows, topic_cell
from penstock.dashboard.poller import View
from penstock.dashboard.responses import Metrics, TopicMetrics
from penstock.dashboard.style import LEVELS, OUTCOMES, SATURATION, SERIES, Level, Outcome
from penstock.dashboard.widgets import Cell, Tile, live, show_heading, show_table, show_tiles

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
    show_tiles(tiles(view.metrics))


@live
def _charts(view: View) -> None:
    history, restarts = view.history, view.history.restarts()
    drops, queued, blocked = st.columns(3)
    with drops:
        show_heading("Dropped", "messages per second")
        rates = {"dropped": history.rates(lambda metrics: metrics.total.total_dropped)}
        show_lines("drops", rates, {"dropped": OUTCOMES[Outcome.DROPPED]}, restarts=restarts)
    with queued:
        show_heading("Queued in outboxes", "messages")
        lines = {
            "all outboxes": history.values(lambda metrics: metrics.outboxes.messages),
            "fullest outbox": history.values(lambda metrics: metrics.outboxes.largest_messages),
        }
        colours = dict(zip(lines, SERIES, strict=False))
        show_lines("waiting", lines, colours, restarts=restarts, are_counts=True)
    with blocked:
        show_heading("Lagging subscribers, blocked publishers", "now")
        lines = {
            "lagging": history.values(lambda metrics: metrics.outboxes.lagging_subscribers),
            "slow": history.values(lambda metrics: metrics.outboxes.slow_subscribers),
            "publishers blocked": history.values(lambda metrics: metrics.outboxes.publishers_held),
        }
        colours = {"lagging": SERIES[0], "slow": LEVELS[Level.CRITICAL], "publishers blocked": SERIES[3]}
        show_lines("held", lines, colours, restarts=restarts, are_counts=True)


@live
def _gauges(view: View) -> None:
    show_heading("Saturation by topic", "fill level of the fullest subscriber outbox")
    address = view.source.address
    fullest = fullest_topics(view.metrics, GAUGES)
    rows = [gauge_row(name, view.metrics.topics[name], address) for name in fullest]
    columns = ("topic", "", "", "queued", "saturation")
    show_table("saturation", columns, rows, numbers=2, empty="No topic has messages yet.")


@live
def _slow(view: View) -> None:
    show_heading("Slow subscribers", "now and recently")
    show_table("slow", SLOW_COLUMNS, slow_rows(view.slow), numbers=4, empty="No slow subscribers.")


@live
def _drops(view: View) -> None:
    metrics = view.metrics
    show_heading("Published, delivered and dropped", "messages by topic, since the server started")
    show_bars("comparison", comparison(metrics, BARS), OUTCOMES)
    show_heading("Drops by topic", "since the server started")
    columns = ("topic", "published", "delivered", "dropped")
    rows = drop_rows(metrics, GAUGES, view.source.address)
    show_table("drops", columns, rows, numbers=3, empty="No messages dropped.")
    show_heading("Drops by reason", "since the server started")
    lost = {reason: number for reason, number in metrics.not_delivered.items() if reason in LOSSES}
    show_table(
        "loss-reasons", ("reason", "", "messages"), reason_rows(lost), numbers=1, empty="No messages dropped."
    )


def tiles(metrics: Metrics) -> list[Tile]:
    """Tiles at the top."""
    boxes, total = metrics.outboxes, metrics.total
    fullest = boxes.saturation
    return [
        Tile(
            "lagging",
            "Lagging subscribers",
            count_text(boxes.lagging_subscribers),
            note=f"of {count_text(total.active_subscribers)}",
        ),
        Tile(
            "slow",
            "Slow subscribers",
            count_text(boxes.slow_subscribers),
            level=Level.CRITICAL if boxes.slow_subscribers else Level.GOOD,
        ),
        Tile("waiting", "Messages queued", count_text(boxes.messages), note=size_text(boxes.bytes)),
        Tile(
            "fullest",
            "Fullest outbox",
            percent_text(fullest),
            note=f"{count_text(boxes.largest_messages)} messages",
            level=SATURATION.level(fullest),
        ),
        Tile(
            "held",
            "Publishers blocked",
            count_text(boxes.publishers_held),
            note=f"{count_text(boxes.publisher_holds)} times so far",
            level=Level.ELEVATED if boxes.publishers_held else Level.GOOD,
        ),
        Tile("published", "Published", count_text(total.total_published), note="since the server started"),
        Tile("dropped", "Dropped", count_text(total.total_dropped), note="since the server started"),
        Tile("expired", "Expired", count_text(total.total_expired), note="since the server started"),
    ]


def fullest_topics(metrics: Metrics, limit: int) -> list[str]:
    """Topics with the fullest outboxes; if all are empty, the busiest."""
    ranked = sorted(
        metrics.topics.items(), key=lambda item: (-item[1].saturation, -item[1].messages_published, item[0])
    )
    return [name for name, _ in ranked[:limit]]


def gauge_row(name: str, topic: TopicMetrics, address: str) -> list[Cell | str]:
    """Topic with a bar for the fill level of its fullest outbox."""
    level = SATURATION.level(topic.saturation)
    text = percent_text(topic.saturation)
    return [
        topic_cell(name, address),
        Cell(text, level, topic.saturation),
        Cell(str(level), level),
        count_text(topic.queue_depth),
        Cell(text, level),
    ]


def comparison(metrics: Metrics, limit: int) -> dict[str, dict[Outcome, float]]:
    """Published, delivered and dropped messages of the busiest topics."""
    ranked = sorted(metrics.topics.items(), key=lambda item: (-item[1].messages_published, item[0]))
    return {
        name: {
            Outcome.PUBLISHED: topic.messages_published,
            Outcome.DELIVERED: topic.messages_delivered,
            Outcome.DROPPED: topic.messages_dropped,
        }
        for name, topic in ranked[:limit]
    }


def drop_rows(metrics: Metrics, limit: int, address: str) -> list[list[Cell | str]]:
    """Topics with the most dropped messages."""
    lossy = [
        (topic.messages_dropped, name) for name, topic in metrics.topics.items() if topic.messages_dropped
    ]
    ranked = sorted(lossy, key=lambda item: (-item[0], item[1]))[:limit]
    return [
        [
            topic_cell(name, address),
            count_text(metrics.topics[name].messages_published),
            count_text(metrics.topics[name].messages_delivered),
            Cell(count_text(dropped), Level.CRITICAL),
        ]
        for dropped, name in ranked
    ]
