"""Tiles, rankings and rows of the latency and backpressure pages, without a browser."""

from penstock.dashboard.pages import backpressure, latency
from penstock.dashboard.pages.tables import topic_cell
from penstock.dashboard.responses import Latency
from penstock.dashboard.style import Level
from penstock.dashboard.widgets import Cell
from tests.dashboard.samples import START, history, metrics, topic

SERVER = "http://server:8080"


def test_the_slowest_topics_come_first_and_those_without_latency_are_left_out() -> None:
    told = metrics(
        topics={
            "quick": topic(latency_ms=Latency(1, 2, 3)),
            "slow": topic(latency_ms=Latency(60, 90, 150)),
            "idle": topic(),
        }
    )
    assert latency.slowest_topics(told, 5) == ["slow", "quick"]
    assert latency.topic_level(told.topics["slow"]) is Level.ELEVATED
    assert (latency.topics_above(told), latency.worst_level(told)) == (1, Level.ELEVATED)


def test_latencies_without_recent_messages_are_a_dash() -> None:
    idle = {tile.key: tile.value for tile in latency.tiles(metrics(latency_ms=Latency(entries=0)))}
    busy = {tile.key: tile.value for tile in latency.tiles(metrics(latency_ms=Latency(1.5, 2, 3, 9)))}
    assert idle["latency-p99"] == "-"
    assert (busy["latency-avg"], busy["latency-p99"]) == ("1.50 ms", "3.00 ms")


def test_topics_that_were_slow_at_any_time_of_the_history_are_drawn() -> None:
    seen = history()
    for second, slow in enumerate(("b", "c", "d")):
        told = {name: topic(latency_ms=Latency(p99=9.0 if name == slow else 1.0)) for name in "abcd"}
        seen.add(second, START, metrics(second, topics=told))
    assert latency.slowest_recently(seen, 3) == ["b", "c", "d"]


def test_gauges_show_the_fullest_topics_and_where_none_is_full_the_busiest() -> None:
    told = metrics(
        topics={
            "busy": topic(messages_published=900),
            "calm": topic(messages_published=1),
            "full": topic(queue_depth=80, queue_max_size=100),
        }
    )
    assert backpressure.fullest_topics(told, 3) == ["full", "busy", "calm"]
    row = backpressure.gauge_row("full", told.topics["full"], SERVER)
    assert row[1:] == [
        Cell("80.0 %", Level.CRITICAL, 0.8),
        Cell("critical", Level.CRITICAL),
        "80",
        Cell("80.0 %", Level.CRITICAL),
    ]


def test_only_topics_with_drops_are_listed() -> None:
    told = metrics(
        topics={
            "clean": topic(messages_published=10),
            "lossy": topic(messages_published=10, messages_delivered=3, messages_dropped=7),
            "worse": topic(messages_published=2_000, messages_dropped=1_000),
        }
    )
    assert backpressure.drop_rows(told, 9, SERVER) == [
        [topic_cell("worse", SERVER), "2,000", "0", Cell("1,000", Level.CRITICAL)],
        [topic_cell("lossy", SERVER), "10", "3", Cell("7", Level.CRITICAL)],
    ]
    assert list(backpressure.comparison(told, 2)) == ["worse", "clean"]
