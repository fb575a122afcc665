"""Rows of the tables that several pages show: pure, from figures to text."""

from itertools import islice
from typing import Any

from penstock.dashboard.colours import LATENCY_MS, Level
from penstock.dashboard.figures import Figures, LogFigures, Rings, TopicFigures
from penstock.dashboard.links import topic_link
from penstock.dashboard.nondeliveries import REASONS
from penstock.dashboard.panels import Cell
from penstock.dashboard.slow import SlowSubscriber
from penstock.dashboard.units import NOTHING, count, duration, milliseconds, percent, size

LOSSES = ("outbox-full", "owed-full", "block-timeout", "packet-too-large", "failed")
"""Reasons that count as dropped; the others are what clients asked for, or everyday life."""

SLOW_COLUMNS = ("client", "door", "state", "policy", "waiting", "size", "oldest", "dropped")


def topic_cell(topic: str) -> Cell:
    """The name of a topic, which leads to its page."""
    return Cell(topic, link=topic_link(topic))


def slow_rows(slow: list[SlowSubscriber], limit: int = 10) -> list[list[Cell | str]]:
    """Who is slow or was, the worst first."""
    return [
        [
            row.client_id,
            row.door,
            Cell(state_of(row), Level.CRITICAL if row.is_slow else Level.GOOD),
            row.policy,
            count(row.waiting_messages),
            size(row.waiting_bytes),
            duration(row.oldest_age_s),
            Cell(count(row.dropped), Level.CRITICAL if row.dropped else Level.GOOD),
        ]
        for row in slow[:limit]
    ]


def state_of(row: SlowSubscriber) -> str:
    """How a slow subscriber is now."""
    if row.is_slow:
        return "slow now"
    if not row.connected:
        return "gone"
    return "recovered" if row.recovered else "was slow"


def reason_rows(not_delivered: dict[str, int]) -> list[list[Cell | str]]:
    """Why messages were not delivered, the most frequent reason first."""
    ranked = sorted(not_delivered.items(), key=lambda item: (-item[1], item[0]))
    return [
        [reason, REASONS.get(reason, ""), Cell(count(number), _level_of(reason))]
        for reason, number in ranked
        if number
    ]


def _level_of(reason: str) -> Level:
    return Level.CRITICAL if reason in LOSSES else Level.GOOD


def latency_cells(topic: TopicFigures) -> list[Cell]:
    """How long messages of a topic take: average, p95 and p99, with how bad that is."""
    times = topic.latency_ms
    return [
        Cell(milliseconds(value), LATENCY_MS[name].level(value))
        for name, value in (("avg", times.avg), ("p95", times.p95), ("p99", times.p99))
    ]


def storage_rows(log: LogFigures, rings: Rings) -> list[list[str]]:
    """How the log and the rings are."""
    return [
        ["log", _log_state(log)],
        *(_log_rows(log) if log.durable else ()),
        ["rings", f"{count(rings.topics)} topics, {size(rings.bytes)} of {size(rings.limit_bytes)}"],
        ["ring filled", percent(rings.bytes / rings.limit_bytes if rings.limit_bytes else None)],
        ["evictions", count(rings.evictions)],
    ]


def _log_rows(log: LogFigures) -> list[list[str]]:
    messages = log.last_offset >= log.first_offset
    return [
        ["offsets", f"{count(log.first_offset)} to {count(log.last_offset)}" if messages else "none yet"],
        ["stored", NOTHING if log.stored_bytes is None else size(log.stored_bytes)],
        [
            "holds",
            f"{count(log.holds)}, {count(log.hold_lag_messages)} messages behind" if log.holds else "none",
        ],
    ]


def _log_state(log: LogFigures) -> str:
    if log.failing:
        return "failing: new messages are not stored"
    return "on disk" if log.durable else "in memory"


def topic_columns(figures: Figures, limit: int) -> dict[str, list[Any]]:
    """The table of the first topics, by column: links to their pages, and numbers that can be sorted by."""
    listed = dict(islice(figures.topics.items(), limit))
    topics = list(listed.values())
    return {
        "topic": list(map(topic_link, listed)),
        "subscribers": [topic.subscriber_count for topic in topics],
        "depth": [topic.queue_depth for topic in topics],
        "published": [topic.messages_published for topic in topics],
        "delivered": [topic.messages_delivered for topic in topics],
        "dropped": [topic.messages_dropped for topic in topics],
        "latency": [topic.latency_ms.avg for topic in topics],
    }
