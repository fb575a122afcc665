"""Pages of a topic's history: what is on them, and what is told of what is missing.

Somebody who reads a topic: following, pausing, turning pages, going to a place.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from penstock.client import History, HttpClient, HttpRefused, Missing, Statement
from penstock.dashboard.pages.topic_reader import (
    REQUESTS_PER_PAGE,
    Page,
    Reader,
    find_oldest,
    find_time,
    first_around,
    first_before,
    missing_notes,
    newest_page,
    page_from,
    page_title,
)
from penstock.testing import server

TOPIC = "plant/pump"
PUBLISHED = 230


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpClient]:
    """Client of a server whose log has more messages than its memory."""
    folder = tmp_path_factory.mktemp("data")
    with server(data_dir=folder) as running, running.http() as client:
        for start in range(0, PUBLISHED, 115):
            client.publish_many({"topic": TOPIC, "data": n + 1} for n in range(start, start + 115))
        yield client


def sequences(page: Page) -> list[int]:
    return [message.sequence for message in page.messages]


def test_following_shows_the_newest(client: HttpClient) -> None:
    page = newest_page(client, TOPIC, 20)
    assert sequences(page) == list(range(211, 231))
    assert [message.data for message in page.messages] == list(range(211, 231))
    assert (page.first, page.last, page.is_at_head, missing_notes(page)) == (211, 230, True, [])


def test_turning_back_shows_every_message_of_the_log_once(client: HttpClient) -> None:
    page = newest_page(client, TOPIC, 50)
    seen: list[int] = []
    while True:
        seen = sequences(page) + seen
        if page.first == 1:
            break
        page = page_from(client, TOPIC, first_before(page, 50), page.first - first_before(page, 50))
    assert seen == list(range(1, PUBLISHED + 1))


def test_the_last_page_knows_that_it_is_the_last(client: HttpClient) -> None:
    assert page_from(client, TOPIC, 201, 50).is_at_head
    assert not page_from(client, TOPIC, 151, 50).is_at_head
    assert sequences(page_from(client, TOPIC, -5, 3)) == [1, 2, 3]


def test_a_time_is_found(client: HttpClient) -> None:
    middle = page_from(client, TOPIC, 116, 1).messages[0]
    assert find_time(client, TOPIC, middle.published_at) == 116  # the first of the second batch
    assert find_time(client, TOPIC, datetime(2020, 1, 1, tzinfo=UTC)) == 1
    assert find_time(client, TOPIC, datetime.now(UTC) + timedelta(days=1)) is None
    assert find_oldest(client, TOPIC) == 1


def test_an_unknown_topic_is_reported(client: HttpClient) -> None:
    with pytest.raises(HttpRefused) as refused:
        newest_page(client, "plant/nothing", 20)
    assert refused.value.code == "unknown-topic"


def test_evicted_messages_are_reported_with_their_reason() -> None:
    with server(ring={"messages": 10}, log={"capture": []}) as running, running.http() as client:
        for number in range(30):
            client.publish(TOPIC, number)
        page = page_from(client, TOPIC, 11, 20)
        assert sequences(page) == list(range(21, 31))
        assert missing_notes(page) == [
            "Messages 11 to 20 are missing: evicted from memory, and not stored in the log (evicted)."
        ]
        assert sequences(page_from(client, TOPIC, 1, 10)) == []
        assert find_oldest(client, TOPIC) == 21


def test_large_messages_do_not_keep_the_newest_from_being_shown() -> None:
    with server() as running, running.http() as client:
        for number in range(12):
            client.publish("camera", payload=bytes([number]) * 1_000_000)
        page = newest_page(client, "camera", 20)
        assert page.is_at_head and page.messages[-1].sequence == 12
        assert page.messages[-1].payload == bytes([11]) * 1_000_000


class Overtaken:
    """Server on which a message is published behind each page, before the response is written."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.asked = 0

    def messages(self, topic: str, **asked: Any) -> History:
        self.asked += 1
        history = self._client.messages(topic, **asked)
        statement = structs.replace(history.statement, is_at_head=False)
        return structs.replace(history, statement=statement)


def test_traffic_is_not_taken_for_a_response_that_was_too_large(client: HttpClient) -> None:
    overtaken = Overtaken(client)
    page = newest_page(overtaken, TOPIC, 20)
    assert (sequences(page), overtaken.asked) == (list(range(211, 231)), 1)


class Endless:
    """Fake server that always has more to search."""

    def __init__(self) -> None:
        self.asked = 0

    def messages(self, topic: str, **_: object) -> History:
        self.asked += 1
        return History((), Statement(next="on", served=0, is_complete=True, is_at_head=False))


def test_a_page_takes_a_bounded_number_of_requests() -> None:
    endless = Endless()
    page = page_from(endless, TOPIC, 1, 20)
    assert (endless.asked, page.is_unfinished) == (REQUESTS_PER_PAGE, True)
    assert missing_notes(page) == ["The page ends early: the rest exceeds the request limit of one page."]
    assert find_time(endless, TOPIC, datetime.now(UTC)) is None
    newest_page(endless, TOPIC, 100)
    assert endless.asked <= 3 * REQUESTS_PER_PAGE + 1


class FixedResponse:
    """Fake server with one response."""

    def __init__(self, *missing: Missing) -> None:
        self.history = History(
            (), Statement(next="on", served=0, is_complete=False, is_at_head=True, missing=missing)
        )

    def messages(self, topic: str, **_: object) -> History:
        return self.history


def test_missing_messages_of_the_page_are_reported() -> None:
    fixed = FixedResponse(
        Missing(TOPIC, None, 3, "retention"), Missing(TOPIC, 5, 5, "expired"), Missing(TOPIC, 9, 12, "odd")
    )
    page = page_from(fixed, TOPIC, 2, 9)
    assert missing_notes(page) == [
        "Messages 2 to 3 are missing: deleted from the log by retention (retention).",
        "Message 5 is missing: message expired (expired).",
        "Messages 9 to 10 are missing: odd (odd).",
    ]
    assert page_title(page) == "No messages from 2 to 10"


@pytest.mark.parametrize(("sequence", "first"), [(1, 1), (9, 1), (11, 1), (12, 2), (1_000, 990)])
def test_a_page_around_a_message_has_it_in_its_middle(sequence: int, first: int) -> None:
    assert first_around(sequence, 20) == first


FAN = "plant/fan"


@pytest.fixture
def http() -> Iterator[HttpClient]:
    """Client of a server with 90 messages in memory."""
    with server() as running, running.http() as http:
        http.publish_many({"topic": FAN, "data": n + 1} for n in range(90))
        yield http


def shown(reader: Reader) -> tuple[int, int]:
    assert reader.page is not None
    return reader.page.messages[0].sequence, reader.page.messages[-1].sequence


def test_following_shows_new_messages_and_pausing_does_not(http: HttpClient) -> None:
    reader = Reader(FAN)
    reader.refresh(http)
    assert shown(reader) == (71, 90)
    http.publish(FAN, 91)
    reader.refresh(http)
    assert shown(reader) == (72, 91)
    reader.pause()
    http.publish(FAN, 92)
    reader.refresh(http)
    assert shown(reader) == (72, 91)
    reader.follow()
    reader.refresh(http)
    assert shown(reader) == (73, 92)


def test_pages_are_contiguous_and_after_the_last_one_the_end_is_followed(http: HttpClient) -> None:
    reader = Reader(FAN)
    reader.refresh(http)
    reader.show_older(http)
    assert shown(reader) == (51, 70)
    reader.show_older(http)
    assert shown(reader) == (31, 50)
    reader.show_newer(http)
    assert (shown(reader), reader.is_following) == ((51, 70), False)
    reader.show_newer(http)
    reader.show_newer(http)
    assert reader.is_following


def test_go_to_shows_a_message_in_full_and_its_neighbours(http: HttpClient) -> None:
    reader = Reader(FAN)
    reader.go_to_sequence(http, 40)
    assert shown(reader) == (30, 49)
    assert reader.message is not None and reader.message.data == 40


def test_a_wanted_message_is_shown_as_soon_as_the_server_can(http: HttpClient) -> None:
    reader = Reader("plant/late", wanted=2, is_following=False)
    with pytest.raises(HttpRefused):
        reader.refresh(http)
    http.publish_many({"topic": "plant/late", "data": n + 1} for n in range(3))
    reader.refresh(http)
    assert shown(reader) == (1, 3)
    assert reader.message is not None and reader.message.data == 2
    reader.follow()
    reader.refresh(http)
    assert reader.message is None


def test_an_unknown_position_is_reported(http: HttpClient) -> None:
    reader = Reader(FAN)
    reader.go_to_sequence(http, 5_000)
    assert reader.note == "Message 5,000 does not exist."
    reader.go_to_time(http, datetime.now(UTC) + timedelta(days=1))
    assert reader.note.startswith("No message at or after ")
    reader.follow()
    assert reader.note == ""


def test_the_oldest_page_and_a_time_are_found(http: HttpClient) -> None:
    reader = Reader(FAN)
    reader.go_to_oldest(http)
    assert shown(reader) == (1, 20)
    reader.go_to_time(http, datetime(2020, 1, 1, tzinfo=UTC))
    assert reader.chosen == 1


def test_another_size_keeps_the_place_and_the_message(http: HttpClient) -> None:
    reader = Reader(FAN)
    reader.go_to_sequence(http, 40)
    reader.resize(http, 50)
    assert (shown(reader), reader.chosen) == ((30, 79), 40)
