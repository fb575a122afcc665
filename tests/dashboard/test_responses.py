"""Responses of the HTTP API: metrics, records of undelivered messages, verdicts of `why`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import ConnectionRefused, HttpClient
from penstock.dashboard.responses import (
    Outboxes,
    Record,
    ask_why,
    decode_metrics,
    find_records,
    sums_by_reason,
)
from penstock.testing import server
from tests.dashboard.samples import topic
from tests.dashboard.undelivered import publish_undelivered

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_an_older_server_that_reports_less_is_shown_too() -> None:
    told = decode_metrics(
        {"uptime_seconds": 1, "global": {"active_topics": 2}, "topics": {}, "unheard_of": 1}
    )
    assert told.total.active_topics == 2
    assert (told.process.memory_bytes, told.doors, told.outboxes.messages) == (None, {}, 0)


def test_saturation_is_reported_by_the_server_or_derived_from_messages() -> None:
    assert topic(queue_depth=50, queue_max_size=200).saturation == 0.25
    assert topic(queue_depth=50, queue_max_size=200, queue_saturation=1.0).saturation == 1.0
    assert topic().saturation == 0
    assert Outboxes(largest_messages=5, limit_messages=10).saturation == 0.5


@pytest.fixture(scope="module")
def client() -> Iterator[HttpClient]:
    """Client of a server with undelivered messages for an offline client."""
    with server() as running, running.http() as client:
        publish_undelivered(running.mqtt_port, client)
        yield client


def test_the_newest_record_comes_first(client: HttpClient) -> None:
    found = find_records(client)
    assert [record.topic for record in found.drops] == ["dock/out", "dock/in"]
    assert (found.total, found.next, found.rows_forgotten) == (2, None, 0)
    assert found.drops[1].sequences == "1 to 5"
    assert sums_by_reason(found.drops) == [("not-connected", 6)]


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"topic": "dock/in"}, 1),
        ({"client_id": "away"}, 2),
        ({"client_id": "unknown"}, 0),
        ({"reason": "not-connected"}, 2),
        ({"reason": "expired"}, 0),
    ],
)
def test_records_are_narrowed_down(client: HttpClient, asked: dict[str, Any], count: int) -> None:
    assert len(find_records(client, **asked).drops) == count


def test_records_come_page_by_page(client: HttpClient) -> None:
    first = find_records(client, limit=1)
    rest = find_records(client, limit=1, after=first.next)
    assert [first.drops[0].topic, rest.drops[0].topic] == ["dock/out", "dock/in"]


def test_the_verdict_is_the_servers(client: HttpClient) -> None:
    verdict = ask_why(client, "dock/in", 3, "away")
    said = client.why("dock/in", 3, "away")
    assert (verdict.code, verdict.text) == (said["code"], said["text"]) == ("not-delivered", verdict.text)
    assert [(row.client_id, row.reason) for row in verdict.rows] == [("away", "not-connected")]
    assert verdict.message is not None and verdict.message.door == "web"
    assert ask_why(client, "dock/in", 3).client_id is None


def record(**given: Any) -> Record:
    defaults = {"client_id": "c", "reason": "outbox-full", "first": 7, "last": 7, "count": 1}
    return Record(**{**defaults, "first_at": NOW, "last_at": NOW, **given})


def test_sequences_and_offsets_are_distinguished() -> None:
    assert record().sequences == "7"
    assert record(last=1_200).sequences == "7 to 1,200"
    assert record(counts_offsets=True).sequences == "offset 7"
    assert record(last=9, counts_offsets=True).sequences == "offsets 7 to 9"


def test_reasons_are_in_words_and_unknown_ones_unchanged() -> None:
    assert record().words == "outbox full"
    assert record(reason="brand-new").words == "brand-new"


def test_reasons_are_added_up_with_the_most_frequent_first() -> None:
    records = [record(count=2), record(reason="expired", count=5), record(count=1)]
    assert sums_by_reason(records) == [("expired", 5), ("outbox-full", 3)]


def test_a_response_of_another_program_is_refused() -> None:
    class OtherProgram:
        def get(self, path: str, **_: Any) -> dict[str, Any]:
            return {"hello": "world"}

    with pytest.raises(ConnectionRefused):
        find_records(OtherProgram())
