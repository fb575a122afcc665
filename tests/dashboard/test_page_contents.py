"""Tiles, rankings and rows of the overview, latency and backpressure pages, without a browser."""

from penstock.dashboard.pages import backpressure, latency, overview
from penstock.dashboard.pages.tables import (
    topic_cell,
    topic_columns,
    topic_link,
)
from penstock.dashboard.responses import (
    Latency,
    Process,
)
from penstock.dashboard.style import Level
from penstock.dashboard.widgets import Cell
from tests.dashboard.samples import START, history, metrics, topic


def test_tiles_show_a_dash_for_unknown_values() -> None:
    tiles = {tile.key: tile for tile in overview.tiles(history((0, 5, 1_234)))}
    assert tiles["published"].value == "-"
    assert tiles["published"].note == "1,234 total"
    assert (tiles["memory"].value, tiles["cpu"].value) == ("-", "-")
    assert tiles["uptime"].value == "5 s"


def test_cpu_is_a_share_of_one_core() -> None:
    busy = history()
    for second, used in enumerate((1.0, 1.5, 2.0)):
        busy.add(second, START, metrics(second, process=Process(cpu_seconds=used)))
    assert overview.cpu_share(busy) == 0.5


def test_the_drop_rate_is_the_part_of_deliveries_that_failed() -> None:
    assert overview.drop_rate(90, 10) == 0.1
    assert overview.drop_rate(0, 0) == 0
    assert overview.drop_rate(None, 1) is None


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
    row = backpressure.gauge_row("full", told.topics["full"])
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
    assert backpressure.drop_rows(told, 9) == [
        [topic_cell("worse"), "2,000", "0", Cell("1,000", Level.CRITICAL)],
        [topic_cell("lossy"), "10", "3", Cell("7", Level.CRITICAL)],
    ]
    assert list(backpressure.comparison(told, 2)) == ["worse", "clean"]


def test_the_overview_lists_the_busiest_topics_and_counts_the_others() -> None:
    few = metrics(topics={"a": topic(), "b": topic()})
    assert topic_columns(few, 1)["topic"] == [topic_link("a")]
    assert "others" not in overview.topics_note(few)
    many = metrics(topics={str(n): topic() for n in range(overview.TOPIC_ROWS + 2)}, topics_left_out=1_000)
    assert "find the 1,002 others on Topics" in overview.topics_note(many)
