"""Links and table rows that several pages share. Pure: from metrics to text."""

from urllib.parse import quote

from penstock.common.text import count_text, duration_text, milliseconds_text, size_text
from penstock.dashboard.responses import REASONS, SlowSubscriber, TopicMetrics
from penstock.dashboard.style import LATENCY_MS, Level
from penstock.dashboard.widgets import Cell

LOSSES = ("outbox-full", "owed-full", "block-timeout", "packet-too-large", "failed")
"""Reasons that count as dropped; the others follow from the client's request or are normal."""
SLOW_COLUMNS = ("client", "door", "state", "policy", "waiting", "size", "oldest", "dropped")


def topic_link(topic: str, address: str) -> str:
    """Address of the page of a topic, in the console of the server."""
    return f"{address.rstrip('/')}/#/topics/{quote(topic)}"


def topic_cell(topic: str, address: str) -> Cell:
    """Topic name, linked to its page in the console."""
    return Cell(topic, link=topic_link(topic, address))


def slow_rows(slow: list[SlowSubscriber], limit: int = 10) -> list[list[Cell | str]]:
    """Slow subscribers, worst first."""
    return [
        [
            row.client_id,
            row.door,
            Cell(subscriber_state(row), Level.CRITICAL if row.is_slow else Level.GOOD),
            row.policy,
            count_text(row.waiting_messages),
            size_text(row.waiting_bytes),
            duration_text(row.oldest_age_s),
            Cell(count_text(row.dropped), Level.CRITICAL if row.dropped else Level.GOOD),
        ]
        for row in slow[:limit]
    ]


def subscriber_state(row: SlowSubscriber) -> str:
    """Current state of a slow subscriber."""
    if row.is_slow:
        return "slow now"
    if not row.connected:
        return "disconnected"
    return "recovered" if row.recovered else "was slow"


def reason_rows(not_delivered: dict[str, int]) -> list[list[Cell | str]]:
    """Reasons for non-delivery, most frequent first."""
    ranked = sorted(not_delivered.items(), key=lambda item: (-item[1], item[0]))
    return [
        [reason, REASONS.get(reason, ""), Cell(count_text(number), _level_of(reason))]
        for reason, number in ranked
        if number
    ]


def _level_of(reason: str) -> Level:
    return Level.CRITICAL if reason in LOSSES else Level.GOOD


def latency_cells(topic: TopicMetrics) -> list[Cell]:
    """Average, p95 and p99 latency of a topic, with their levels."""
    times = topic.latency_ms
    return [
        Cell(milliseconds_text(value), LATENCY_MS[name].level(value))
        for name, value in (("avg", times.avg), ("p95", times.p95), ("p99", times.p99))
    ]
