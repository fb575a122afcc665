"""Links and table rows that several pages share. Pure: from metrics to text."""

from itertools import islice
from typing import Any
from urllib.parse import quote, urlencode

from penstock.common.text import count_text, duration_text, milliseconds_text, percent_text, size_text
from penstock.dashboard.responses import REASONS, LogMetrics, Metrics, Rings, SlowSubscriber, TopicMetrics
from penstock.dashboard.style import LATENCY_MS, Level
from penstock.dashboard.widgets import Cell

TOPICS, WHY, LAKE = "topics", "why", "lake"
"""Paths of the pages."""
TOPIC_IN_LINK = r"topic=([^&]*)"
"""Pattern, evaluated in the browser, that extracts the topic from a link."""
LOSSES = ("outbox-full", "owed-full", "block-timeout", "packet-too-large", "failed")
"""Reasons that count as dropped; the others follow from the client's request or are normal."""
SLOW_COLUMNS = ("client", "door", "state", "policy", "waiting", "size", "oldest", "dropped")


def topic_link(topic: str, sequence: int | None = None) -> str:
    """Address of the page of a topic, or of one of its messages."""
    query = {"topic": topic} | ({} if sequence is None else {"sequence": str(sequence)})
    return f"/{TOPICS}?{_query(**query)}"


def why_link(topic: str, sequence: int, client: str | None = None) -> str:
    """Address of the page that explains the delivery of a message, to one client or to all."""
    query = {"topic": topic, "sequence": str(sequence)}
    return f"/{WHY}?{_query(**query, **({'client': client} if client else {}))}"


def _query(**values: str) -> str:
    return urlencode(values, quote_via=quote, safe="")


def topic_cell(topic: str) -> Cell:
    """Topic name, linked to its page."""
    return Cell(topic, link=topic_link(topic))


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


def storage_rows(log: LogMetrics, rings: Rings) -> list[list[str]]:
    """State of the log and of the rings."""
    return [
        ["log", _log_state(log)],
        *(_log_rows(log) if log.durable else ()),
        [
            "rings",
            f"{count_text(rings.topics)} topics, {size_text(rings.bytes)} of {size_text(rings.limit_bytes)}",
        ],
        ["ring filled", percent_text(rings.bytes / rings.limit_bytes if rings.limit_bytes else None)],
        ["evictions", count_text(rings.evictions)],
    ]


def _log_rows(log: LogMetrics) -> list[list[str]]:
    messages = log.last_offset >= log.first_offset
    return [
        [
            "offsets",
            f"{count_text(log.first_offset)} to {count_text(log.last_offset)}" if messages else "none yet",
        ],
        ["stored", size_text(log.stored_bytes)],
        [
            "holds",
            f"{count_text(log.holds)}, {count_text(log.hold_lag_messages)} messages behind"
            if log.holds
            else "none",
        ],
    ]


def _log_state(log: LogMetrics) -> str:
    if log.failing:
        return "failing: new messages are not stored"
    return "on disk" if log.durable else "in memory"


def topic_columns(metrics: Metrics, limit: int) -> dict[str, list[Any]]:
    """First topics as columns: links to their pages, and sortable numbers."""
    listed = dict(islice(metrics.topics.items(), limit))
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
