"""Links and table rows that several pages share."""

from urllib.parse import parse_qs, urlsplit

from penstock.dashboard.pages.tables import (
    reason_rows,
    slow_rows,
    storage_rows,
    subscriber_state,
    topic_link,
    why_link,
)
from penstock.dashboard.responses import (
    LogMetrics,
    Rings,
    SlowSubscriber,
    decode_slow,
)
from penstock.dashboard.style import Level
from penstock.dashboard.widgets import Cell


def test_slow_subscribers_come_with_the_worst_first() -> None:
    rows = decode_slow(
        [
            {"client_id": "recovered", "recovered": True, "connected": True, "waiting_messages": 0},
            {"client_id": "slow", "is_slow": True, "connected": True, "waiting_messages": 5},
            {"client_id": "slower", "is_slow": True, "connected": True, "waiting_messages": 50},
            {"client_id": "gone", "connected": False, "dropped": 3},
        ]
    )
    assert [row.client_id for row in rows] == ["slower", "slow", "gone", "recovered"]
    assert [subscriber_state(row) for row in rows] == ["slow now", "slow now", "disconnected", "recovered"]
    assert subscriber_state(SlowSubscriber(client_id="x", connected=True)) == "was slow"
    assert len(slow_rows(rows, 2)) == 2


def test_reasons_come_with_the_most_frequent_first_and_losses_stand_out() -> None:
    rows = reason_rows({"not-connected": 5, "outbox-full": 1_000, "expired": 0})
    assert [row[0] for row in rows] == ["outbox-full", "not-connected"]
    assert rows[0][2] == Cell("1,000", Level.CRITICAL)
    assert rows[1][2] == Cell("5", Level.GOOD)


def test_a_log_in_memory_has_no_offsets_and_a_failing_one_is_reported() -> None:
    rings = Rings(topics=3, bytes=512, limit_bytes=1024)
    memory = dict(storage_rows(LogMetrics(), rings))
    assert memory["log"] == "in memory" and "offsets" not in memory
    assert memory["ring filled"] == "50.0 %"
    disk = LogMetrics(durable=True, first_offset=1, last_offset=9_999, stored_bytes=2048, holds=1)
    kept = dict(storage_rows(disk, rings))
    assert (kept["log"], kept["offsets"], kept["stored"]) == ("on disk", "1 to 9,999", "2.0 KiB")
    assert "failing" in dict(storage_rows(LogMetrics(durable=True, failing=True), rings))["log"]


def test_a_topic_is_named_whatever_is_in_its_name() -> None:
    link = topic_link("plant/1&x=?/ä #+")
    assert urlsplit(link).path == "/topics"
    assert parse_qs(urlsplit(link).query) == {"topic": ["plant/1&x=?/ä #+"]}


def test_a_message_of_a_topic_has_an_address_too() -> None:
    assert parse_qs(urlsplit(topic_link("a", 7)).query) == {"topic": ["a"], "sequence": ["7"]}


def test_a_question_names_a_client_if_it_is_about_one() -> None:
    assert why_link("a/b", 17) == "/why?topic=a%2Fb&sequence=17"
    assert why_link("a/b", 17, "pump 7") == "/why?topic=a%2Fb&sequence=17&client=pump%207"
