"""Pages of a topic's history: what is on them, and what is told of what is missing."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import History, HttpClient, HttpRefused, Missing, Statement
from penstock.dashboard.scrolling import (
    ROUNDS,
    Page,
    absences,
    find_oldest,
    find_time,
    first_around,
    first_before,
    follow,
    title_of,
    turn_to,
)
from penstock.testing import server

TOPIC = "plant/pump"
PUBLISHED = 230


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    """A client of a server whose log has more messages than its memory."""
    folder = tmp_path_factory.mktemp("data")
    with server(data_dir=folder) as running, running.http() as client:
        for start in range(0, PUBLISHED, 115):
            client.publish_many({"topic": TOPIC, "data": n + 1} for n in range(start, start + 115))
        yield client


def sequences(page: Page) -> list[int]:
    return [message.sequence for message in page.messages]


def test_following_shows_the_newest(client: HttpClient) -> None:
    page = follow(client, TOPIC, 20)
    assert sequences(page) == list(range(211, 231))
    assert [message.data for message in page.messages] == list(range(211, 231))
    assert (page.first, page.last, page.is_at_head, absences(page)) == (211, 230, True, [])


def test_turning_back_shows_every_message_of_the_log_once(client: HttpClient) -> None:
    page, seen = follow(client, TOPIC, 50), []
    while True:
        seen = sequences(page) + seen
        if page.first == 1:
            break
        page = turn_to(client, TOPIC, first_before(page, 50), page.first - first_before(page, 50))
    assert seen == list(range(1, PUBLISHED + 1))


def test_the_last_page_knows_that_it_is_the_last(client: HttpClient) -> None:
    assert turn_to(client, TOPIC, 201, 50).is_at_head
    assert not turn_to(client, TOPIC, 151, 50).is_at_head
    assert sequences(turn_to(client, TOPIC, -5, 3)) == [1, 2, 3]


def test_a_time_is_found(client: HttpClient) -> None:
    middle = turn_to(client, TOPIC, 116, 1).messages[0]
    assert find_time(client, TOPIC, middle.published_at) == 116  # the first of the second batch
    assert find_time(client, TOPIC, datetime(2020, 1, 1, tzinfo=UTC)) == 1
    assert find_time(client, TOPIC, datetime.now(UTC) + timedelta(days=1)) is None
    assert find_oldest(client, TOPIC) == 1


def test_a_topic_that_never_was_is_told(client: HttpClient) -> None:
    with pytest.raises(HttpRefused) as refused:
        follow(client, "plant/nothing", 20)
    assert refused.value.code == "unknown-topic"


def test_what_left_memory_is_told_with_its_reason() -> None:
    with server(ring={"messages": 10}, log={"capture": []}) as running, running.http() as client:
        for number in range(30):
            client.publish(TOPIC, number)
        page = turn_to(client, TOPIC, 11, 20)
        assert sequences(page) == list(range(21, 31))
        assert absences(page) == [
            "Messages 11 to 20 are missing: left memory, and no log keeps this topic (evicted)."
        ]
        assert sequences(turn_to(client, TOPIC, 1, 10)) == []
        assert find_oldest(client, TOPIC) == 21


def test_large_messages_do_not_keep_the_newest_from_being_shown() -> None:
    with server() as running, running.http() as client:
        for number in range(12):
            client.publish("camera", payload=bytes([number]) * 1_000_000)
        page = follow(client, "camera", 20)
        assert page.is_at_head and page.messages[-1].sequence == 12
        assert page.messages[-1].payload == bytes([11]) * 1_000_000


class Endless:
    """A server that has always more to look at."""

    def __init__(self) -> None:
        self.asked = 0

    def messages(self, topic: str, **_: object) -> History:
        self.asked += 1
        return History((), Statement(next="on", served=0, is_complete=True, is_at_head=False))


def test_no_page_asks_without_end() -> None:
    endless = Endless()
    page = turn_to(endless, TOPIC, 1, 20)
    assert (endless.asked, page.is_unfinished) == (ROUNDS, True)
    assert absences(page) == [
        "The page ends early: there is more between here and its end than one page may ask for."
    ]
    assert find_time(endless, TOPIC, datetime.now(UTC)) is None
    follow(endless, TOPIC, 100)
    assert endless.asked <= 3 * ROUNDS + 1


class Answering:
    """A server that gives one answer."""

    def __init__(self, *missing: Missing) -> None:
        self.history = History(
            (), Statement(next="on", served=0, is_complete=False, is_at_head=True, missing=missing)
        )

    def messages(self, topic: str, **_: object) -> History:
        return self.history


def test_what_is_missing_is_told_as_far_as_it_is_on_the_page() -> None:
    answering = Answering(
        Missing(TOPIC, None, 3, "retention"), Missing(TOPIC, 5, 5, "expired"), Missing(TOPIC, 9, 12, "odd")
    )
    page = turn_to(answering, TOPIC, 2, 9)
    assert absences(page) == [
        "Messages 2 to 3 are missing: left the log, which keeps messages only for so long (retention).",
        "Message 5 is missing: lifetime over (expired).",
        "Messages 9 to 10 are missing: odd (odd).",
    ]
    assert title_of(page) == "No messages from 2 to 10"


@pytest.mark.parametrize(("sequence", "first"), [(1, 1), (9, 1), (11, 1), (12, 2), (1_000, 990)])
def test_a_page_around_a_message_has_it_in_its_middle(sequence: int, first: int) -> None:
    assert first_around(sequence, 20) == first
