"""Topic search by text or filter, page by page."""

from typing import Any

import pytest

from penstock.client import ConnectionRefused, HttpRefused
from penstock.dashboard.pages.topics import FoundTopics, find_topics, is_filter, match_count
from penstock.testing import server


class RecordingClient:
    """Fake client that records its request."""

    def __init__(self, response: dict[str, Any]) -> None:
        self.response = response
        self.asked: dict[str, Any] = {}

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        self.asked = {"path": path, **parameters}
        return self.response


NOTHING: dict[str, Any] = {"topics": [], "next": None, "matching": 0, "total": 5}


@pytest.mark.parametrize(
    ("text", "given"), [("pump", {"search": "pump"}), ("a/+", {"filter": "a/+"}), ("  ", {})]
)
def test_a_wildcard_makes_a_filter_of_a_text(text: str, given: dict[str, str]) -> None:
    client = RecordingClient(NOTHING)
    find_topics(client, text, limit=7)
    assert client.asked == {"path": "/api/v1/topics", "after": None, "limit": 7, **given}
    assert is_filter(text) == ("filter" in given)


def test_topics_are_found_page_by_page_and_all_are_counted() -> None:
    with server() as running, running.http() as client:
        client.publish_many({"topic": f"hall/{number:03}", "data": 1} for number in range(120))
        client.publish("yard/001", 1)
        first = find_topics(client, "hall")
        rest = find_topics(client, "hall", first.next, limit=100)
        assert [topic.name for topic in first.topics + rest.topics] == [f"hall/{n:03}" for n in range(120)]
        assert (first.matching, rest.matching, rest.next) == (120, 120, None)
        assert [topic.name for topic in find_topics(client, "+/001").topics] == ["hall/001", "yard/001"]


def test_an_invalid_filter_is_refused() -> None:
    with server() as running, running.http() as client, pytest.raises(HttpRefused) as refused:
        find_topics(client, "a/#/b")
    assert refused.value.code == "invalid-filter"


def test_a_response_of_another_program_is_refused() -> None:
    with pytest.raises(ConnectionRefused):
        find_topics(RecordingClient({"topics": 1}))


@pytest.mark.parametrize(
    ("matching", "text", "words"),
    [(20_003, "", "20,003 topics"), (17, "pump", "17 topics match"), (1, " pump", "1 topic matches")],
)
def test_matches_are_counted(matching: int, text: str, words: str) -> None:
    assert match_count(FoundTopics([], None, matching), text) == words
