"""Links and table rows that several pages share."""

from penstock.dashboard.pages.tables import reason_rows, slow_rows, subscriber_state, topic_link
from penstock.dashboard.responses import SlowSubscriber, decode_slow
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


def test_a_topic_links_to_its_page_in_the_console_whatever_is_in_its_name() -> None:
    assert topic_link("plant/pump", "http://here:8080/") == "http://here:8080/#/topics/plant/pump"
    assert topic_link("1&x=?/ä #+", "http://here") == "http://here/#/topics/1%26x%3D%3F/%C3%A4%20%23%2B"
