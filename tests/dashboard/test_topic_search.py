"""Finding topics: by text or by filter, a page at a time, with a server that does the work."""

from typing import Any

import pytest

from penstock.client import ConnectionRefused, HttpRefused
from penstock.dashboard.topic_search import FoundTopics, count_in_words, find_topics, is_filter
from penstock.testing import server


class Remembering:
    """A client that remembers what it was asked."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: dict[str, Any] = {}

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        self.asked = {"path": path, **parameters}
        return self.answer


NOTHING = {"topics": [], "next": None, "matching": 0, "total": 5}


@pytest.mark.parametrize(
    ("text", "given"), [("pump", {"search": "pump"}), ("a/+", {"filter": "a/+"}), ("  ", {})]
)
def test_a_wildcard_makes_a_filter_of_a_text(text: str, given: dict[str, str]) -> None:
    client = Remembering(NOTHING)
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


def test_a_filter_that_is_none_is_told() -> None:
    with server() as running, running.http() as client, pytest.raises(HttpRefused) as refused:
        find_topics(client, "a/#/b")
    assert refused.value.code == "invalid-filter"


def test_an_answer_of_somebody_else_is_told() -> None:
    with pytest.raises(ConnectionRefused):
        find_topics(Remembering({"topics": 1}))


@pytest.mark.parametrize(
    ("matching", "text", "words"),
    [(20_003, "", "20,003 topics"), (17, "pump", "17 topics match"), (1, " pump", "1 topic matches")],
)
def test_how_many_match_is_told(matching: int, text: str, words: str) -> None:
    assert count_in_words(FoundTopics([], None, matching), text) == words
