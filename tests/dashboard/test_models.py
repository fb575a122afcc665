"""What the pages make of figures: tiles, ranks and rows, without a browser."""

from penstock.dashboard.colours import Level
from penstock.dashboard.figures import (
    Latency,
    LogFigures,
    Outboxes,
    Process,
    Rings,
    read_figures,
)
from penstock.dashboard.links import topic_link
from penstock.dashboard.pages import backpressure, latency, overview
from penstock.dashboard.panels import Cell
from penstock.dashboard.slow import SlowSubscriber, read_slow
from penstock.dashboard.tables import (
    reason_rows,
    slow_rows,
    state_of,
    storage_rows,
    topic_cell,
    topic_columns,
)
from tests.dashboard.sampling import START, figures, history, topic


def test_an_older_server_that_tells_less_is_shown_all_the_same() -> None:
    told = read_figures({"uptime_seconds": 1, "global": {"active_topics": 2}, "topics": {}, "unheard_of": 1})
    assert told.total.active_topics == 2
    assert (told.process.memory_bytes, told.doors, told.outboxes.messages) == (None, {}, 0)


def test_an_outbox_is_as_full_as_the_server_says_or_as_its_messages_tell() -> None:
    assert topic(queue_depth=50, queue_max_size=200).saturation == 0.25
    assert topic(queue_depth=50, queue_max_size=200, queue_saturation=1.0).saturation == 1.0
    assert topic().saturation == 0
    assert Outboxes(largest_messages=5, limit_messages=10).saturation == 0.5


def test_the_first_tiles_say_what_is_known_and_a_dash_for_what_is_not() -> None:
    tiles = {tile.key: tile for tile in overview.tiles(history((0, 5, 1_234)))}
    assert tiles["published"].value == "–"  # noqa: RUF001
    assert tiles["published"].note == "1,234 in all"
    assert (tiles["memory"].value, tiles["cpu"].value) == ("–", "–")  # noqa: RUF001
    assert tiles["uptime"].value == "5 s"


def test_cpu_is_a_share_of_one_core() -> None:
    busy = history()
    for second, used in enumerate((1.0, 1.5, 2.0)):
        busy.add(second, START, figures(second, process=Process(cpu_seconds=used)))
    assert overview.cpu_share(busy) == 0.5


def test_the_drop_rate_is_the_part_of_deliveries_that_failed() -> None:
    assert overview.drop_rate(90, 10) == 0.1
    assert overview.drop_rate(0, 0) == 0
    assert overview.drop_rate(None, 1) is None


def test_slow_subscribers_come_with_the_worst_first() -> None:
    rows = read_slow(
        [
            {"client_id": "recovered", "recovered": True, "connected": True, "waiting_messages": 0},
            {"client_id": "slow", "is_slow": True, "connected": True, "waiting_messages": 5},
            {"client_id": "slower", "is_slow": True, "connected": True, "waiting_messages": 50},
            {"client_id": "gone", "connected": False, "dropped": 3},
        ]
    )
    assert [row.client_id for row in rows] == ["slower", "slow", "gone", "recovered"]
    assert [state_of(row) for row in rows] == ["slow now", "slow now", "gone", "recovered"]
    assert state_of(SlowSubscriber(client_id="x", connected=True)) == "was slow"
    assert len(slow_rows(rows, 2)) == 2


def test_reasons_come_with_the_most_frequent_first_and_losses_stand_out() -> None:
    rows = reason_rows({"not-connected": 5, "outbox-full": 1_000, "expired": 0})
    assert [row[0] for row in rows] == ["outbox-full", "not-connected"]
    assert rows[0][2] == Cell("1,000", Level.CRITICAL)
    assert rows[1][2] == Cell("5", Level.GOOD)


def test_a_log_in_memory_has_no_offsets_and_one_that_fails_says_so() -> None:
    rings = Rings(topics=3, bytes=512, limit_bytes=1024)
    memory = dict(storage_rows(LogFigures(), rings))
    assert memory["log"] == "in memory" and "offsets" not in memory
    assert memory["ring filled"] == "50.0 %"
    disk = LogFigures(durable=True, first_offset=1, last_offset=9_999, stored_bytes=2048, holds=1)
    kept = dict(storage_rows(disk, rings))
    assert (kept["log"], kept["offsets"], kept["stored"]) == ("on disk", "1 to 9,999", "2.0 KiB")
    assert "failing" in dict(storage_rows(LogFigures(durable=True, failing=True), rings))["log"]


def test_the_slowest_topics_come_first_and_those_without_times_not_at_all() -> None:
    told = figures(
        topics={
            "quick": topic(latency_ms=Latency(1, 2, 3)),
            "slow": topic(latency_ms=Latency(60, 90, 150)),
            "idle": topic(),
        }
    )
    assert latency.slowest_topics(told, 5) == ["slow", "quick"]
    assert latency.topic_level(told.topics["slow"]) is Level.ELEVATED
    assert (latency.topics_above(told), latency.worst_level(told)) == (1, Level.ELEVATED)


def test_times_of_a_server_where_nothing_left_of_late_are_a_dash() -> None:
    idle = {tile.key: tile.value for tile in latency.tiles(figures(latency_ms=Latency(entries=0)))}
    busy = {tile.key: tile.value for tile in latency.tiles(figures(latency_ms=Latency(1.5, 2, 3, 9)))}
    assert idle["latency-p99"] == "–"  # noqa: RUF001
    assert (busy["latency-avg"], busy["latency-p99"]) == ("1.50 ms", "3.00 ms")


def test_topics_are_drawn_that_were_slow_at_any_time_that_is_remembered() -> None:
    seen = history()
    for second, slow in enumerate(("b", "c", "d")):
        told = {name: topic(latency_ms=Latency(p99=9.0 if name == slow else 1.0)) for name in "abcd"}
        seen.add(second, START, figures(second, topics=told))
    assert latency.slowest_of_late(seen, 3) == ["b", "c", "d"]


def test_gauges_show_the_fullest_topics_and_where_none_is_full_the_busiest() -> None:
    told = figures(
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


def test_only_topics_that_lost_something_are_listed_with_drops() -> None:
    told = figures(
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


def test_the_overview_lists_the_busiest_topics_and_says_how_many_others_there_are() -> None:
    few = figures(topics={"a": topic(), "b": topic()})
    assert topic_columns(few, 1)["topic"] == [topic_link("a")]
    assert "others" not in overview.topics_note(few)
    many = figures(topics={str(n): topic() for n in range(overview.TOPIC_ROWS + 2)}, topics_left_out=1_000)
    assert "Topics finds the 1,002 others" in overview.topics_note(many)
