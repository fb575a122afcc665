"""What `penstock top` makes of two looks at a server."""

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.cli.commands.top.view import Order, Sample, View, make_view

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def topic(
    published: int, delivered: int = 0, dropped: int = 0, depth: int = 0, p95: float = 0.0
) -> dict[str, Any]:
    return {
        "messages_published": published,
        "messages_delivered": delivered,
        "messages_dropped": dropped,
        "subscriber_count": 1,
        "queue_depth": depth,
        "queue_max_size": 100,
        "latency_ms": {"avg": 0.1, "p95": p95, "p99": 2 * p95},
    }


def figures(uptime: float, published: int, topics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "uptime_seconds": uptime,
        "version": "1",
        "node_id": "n",
        "global": {"total_published": published, "total_delivered": 0, "connected_clients": 3},
        "topics": topics,
        **more,
    }


BEFORE = Sample(
    10.0,
    figures(
        100.0,
        50,
        {"a": topic(10), "b": topic(20)},
        process={"cpu_seconds": 1.0},
        doors={"mqtt": {"published": 50, "delivered": 0}},
        not_delivered={"expired": 7, "outbox-full": 1},
    ),
)
AFTER = Sample(
    12.0,
    figures(
        102.0,
        150,
        {"a": topic(90, 5, 0, 2, 1.0), "b": topic(40, 45, 0, 1, 9.0), "c": topic(0, 0, 6)},
        process={"cpu_seconds": 1.5},
        doors={"mqtt": {"published": 150, "delivered": 4}},
        not_delivered={"expired": 7, "outbox-full": 5},
        connections={"mqtt": 3, "http": 1},
        latency_ms={"avg": 0.2, "p50": 0.1, "p95": 0.5, "p99": 0.9, "entries": 10},
    ),
)


def seen(before: Sample | None = BEFORE, after: Sample = AFTER, order: Order = Order.PUBLISHED) -> View:
    return make_view(before, after, [], address="http://x:1", at=NOW, order=order)


def test_rates_are_since_the_look_before() -> None:
    view = seen()
    assert (view.published_per_s, view.cpu_percent) == (50.0, 25.0)
    assert [
        (door.door, door.published_per_s, door.delivered_per_s, door.connections) for door in view.doors
    ] == [("mqtt", 50.0, 2.0, 3)]


def test_the_first_look_has_figures_and_no_rates() -> None:
    view = seen(None)
    assert (view.published, view.published_per_s, view.cpu_percent) == (150, None, None)
    assert [line.published_per_s for line in view.busiest] == [None, None, None]


def test_a_server_that_was_started_anew_has_no_rates() -> None:
    anew = Sample(14.0, figures(1.0, 500, {"a": topic(400)}))
    assert (seen(AFTER, anew).published_per_s, seen(AFTER, anew).busiest[0].published_per_s) == (None, None)


@pytest.mark.parametrize(
    ("order", "topics"),
    [
        (Order.PUBLISHED, "abc"),
        (Order.DELIVERED, "bac"),
        (Order.DROPPED, "cab"),
        (Order.DEPTH, "abc"),
        (Order.LATENCY, "bac"),
        (Order.NAME, "abc"),
    ],
)
def test_topics_stand_in_the_order_that_was_asked_for(order: Order, topics: str) -> None:
    assert "".join(line.topic for line in seen(order=order).busiest) == topics


def test_the_reason_that_costs_most_now_comes_first() -> None:
    assert [(loss.reason, loss.per_s, loss.total) for loss in seen().not_delivered] == [
        ("outbox-full", 2.0, 5),
        ("expired", 0.0, 7),
    ]


def test_latency_is_unknown_where_nothing_was_delivered_of_late() -> None:
    idle = Sample(12.0, figures(102.0, 50, {}, latency_ms={"avg": 0.0, "entries": 0}))
    assert seen(None, idle).latency_ms is None
    assert seen().latency_ms == AFTER.figures["latency_ms"]
