"""Records of what was not delivered, and the server's answers to the question why."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import ConnectionRefused, HttpClient
from penstock.dashboard.nondeliveries import Record, ask_why, find_records, sums_by_reason
from penstock.testing import server
from tests.dashboard.passing import let_pass_by

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def client() -> Iterator[HttpClient]:
    """A client of a server with somebody who was away."""
    with server() as running, running.http() as client:
        let_pass_by(running.mqtt_port, client)
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
        ({"who": "away"}, 2),
        ({"who": "nobody"}, 0),
        ({"reason": "not-connected"}, 2),
        ({"reason": "expired"}, 0),
    ],
)
def test_records_are_narrowed_down(client: HttpClient, asked: dict[str, str], count: int) -> None:
    assert len(find_records(client, **asked).drops) == count


def test_records_come_page_by_page(client: HttpClient) -> None:
    first = find_records(client, limit=1)
    rest = find_records(client, limit=1, after=first.next)
    assert [first.drops[0].topic, rest.drops[0].topic] == ["dock/out", "dock/in"]


def test_why_is_answered_as_the_server_says(client: HttpClient) -> None:
    verdict = ask_why(client, "dock/in", 3, "away")
    said = client.why("dock/in", 3, "away")
    assert (verdict.code, verdict.text) == (said["code"], said["text"]) == ("not-delivered", verdict.text)
    assert [(row.client_id, row.reason) for row in verdict.rows] == [("away", "not-connected")]
    assert verdict.message is not None and verdict.message.door == "web"
    assert ask_why(client, "dock/in", 3).client_id is None


def record(**given: Any) -> Record:
    plain = {"client_id": "c", "reason": "outbox-full", "first": 7, "last": 7, "count": 1}
    return Record(**{**plain, "first_at": NOW, "last_at": NOW, **given})


def test_sequences_and_offsets_are_told_apart() -> None:
    assert record().sequences == "7"
    assert record(last=1_200).sequences == "7 to 1,200"
    assert record(counts_offsets=True).sequences == "offset 7"
    assert record(last=9, counts_offsets=True).sequences == "offsets 7 to 9"


def test_reasons_are_said_in_words_and_new_ones_as_they_are() -> None:
    assert record().words == "its outbox was full"
    assert record(reason="brand-new").words == "brand-new"


def test_reasons_are_added_up_with_the_most_frequent_first() -> None:
    records = [record(count=2), record(reason="expired", count=5), record(count=1)]
    assert sums_by_reason(records) == [("expired", 5), ("outbox-full", 3)]


def test_an_answer_of_somebody_else_is_told() -> None:
    class Strange:
        def get(self, path: str, **_: Any) -> dict[str, Any]:
            return {"hello": "world"}

    with pytest.raises(ConnectionRefused):
        find_records(Strange())
