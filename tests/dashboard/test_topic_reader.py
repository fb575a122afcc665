"""Somebody who reads a topic: following, pausing, turning pages, going to a place."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import HttpClient
from penstock.dashboard.topic.reader import Reader
from penstock.testing import server

TOPIC = "plant/fan"


@pytest.fixture
def client() -> Iterator[HttpClient]:
    """A client of a server that has 90 messages in memory."""
    with server() as running, running.http() as client:
        client.publish_many({"topic": TOPIC, "data": n + 1} for n in range(90))
        yield client


def shown(reader: Reader) -> tuple[int, int]:
    assert reader.page is not None
    return reader.page.messages[0].sequence, reader.page.messages[-1].sequence


def test_who_follows_sees_new_messages_and_who_pauses_does_not(client: HttpClient) -> None:
    reader = Reader(TOPIC)
    reader.look(client)
    assert shown(reader) == (71, 90)
    client.publish(TOPIC, 91)
    reader.look(client)
    assert shown(reader) == (72, 91)
    reader.pause()
    client.publish(TOPIC, 92)
    reader.look(client)
    assert shown(reader) == (72, 91)
    reader.follow()
    reader.look(client)
    assert shown(reader) == (73, 92)


def test_pages_meet_and_behind_the_last_one_is_the_end_that_moves(client: HttpClient) -> None:
    reader = Reader(TOPIC)
    reader.look(client)
    reader.turn_back(client)
    assert shown(reader) == (51, 70)
    reader.turn_back(client)
    assert shown(reader) == (31, 50)
    reader.turn_on(client)
    assert (shown(reader), reader.is_following) == ((51, 70), False)
    reader.turn_on(client)
    reader.turn_on(client)
    assert reader.is_following


def test_a_message_that_is_gone_to_is_shown_in_full_amid_others(client: HttpClient) -> None:
    reader = Reader(TOPIC)
    reader.go_to_sequence(client, 40)
    assert shown(reader) == (30, 49)
    assert reader.message is not None and reader.message.data == 40


def test_a_place_that_is_not_there_is_told(client: HttpClient) -> None:
    reader = Reader(TOPIC)
    reader.go_to_sequence(client, 5_000)
    assert reader.note == "Message 5,000 is not there."
    reader.go_to_time(client, datetime.now(UTC) + timedelta(days=1))
    assert reader.note.startswith("There is no message at ")
    reader.follow()
    assert reader.note == ""


def test_the_oldest_page_and_a_time_are_found(client: HttpClient) -> None:
    reader = Reader(TOPIC)
    reader.go_to_oldest(client)
    assert shown(reader) == (1, 20)
    reader.go_to_time(client, datetime(2020, 1, 1, tzinfo=UTC))
    assert reader.chosen == 1


def test_another_size_keeps_the_place_and_the_message(client: HttpClient) -> None:
    reader = Reader(TOPIC)
    reader.go_to_sequence(client, 40)
    reader.resize(client, 50)
    assert (shown(reader), reader.chosen) == ((30, 79), 40)
