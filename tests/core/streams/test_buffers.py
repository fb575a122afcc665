"""Streams by the second in which the first of their messages expires."""

import pytest

from penstock.core.settings import CoreSettings
from penstock.core.streams.buffers import Expiring
from penstock.core.streams.stream import Stream
from penstock.core.topics.registry import Registry


@pytest.fixture
def streams() -> list[Stream]:
    topics = Registry(CoreSettings())
    return [Stream(topics.make(name), 0.0) for name in "abc"]


def taken(expiring: Expiring, now: float) -> set[str]:
    found = set()
    while (stream := expiring.take(now)) is not None:
        found.add(stream.topic.name)
    return found


def test_only_those_are_found_whose_time_has_come(streams: list[Stream]) -> None:
    expiring = Expiring()
    for stream, expires_at in zip(streams, (10.5, 12.0, 10.9), strict=True):
        expiring.add(stream, expires_at)
    assert taken(expiring, 10.4) == set()
    assert taken(expiring, 11.0) == {"a", "c"}
    assert taken(expiring, 12.0) == {"b"}
    assert taken(expiring, 1_000.0) == set()


def test_the_first_of_its_messages_counts(streams: list[Stream]) -> None:
    expiring = Expiring()
    stream = streams[0]
    for expires_at in (20.0, 10.0, 30.0):
        expiring.add(stream, expires_at)
    assert taken(expiring, 10.0) == {"a"}
    assert taken(expiring, 30.0) == set(), "it is entered once"
    expiring.add(stream, 30.0)
    assert taken(expiring, 30.0) == {"a"}


def test_what_is_due_earlier_and_earlier_leaves_nothing_behind(streams: list[Stream]) -> None:
    expiring = Expiring()
    expiring.add(streams[1], 5_000.0)
    for number in range(1_000):
        expiring.add(streams[0], 4_000.0 - number)
    assert len(expiring._buckets) == 2
    assert len(expiring._order) <= 4
    assert taken(expiring, 3_001.0) == {"a"}
    assert taken(expiring, 5_000.0) == {"b"}
    assert not expiring._buckets
    assert not expiring._order


def test_what_comes_back_to_its_second_is_found_once(streams: list[Stream]) -> None:
    expiring = Expiring()
    for _ in range(3):
        expiring.add(streams[0], 10.0)
        expiring.discard(streams[0])
    expiring.add(streams[0], 10.0)
    expiring.add(streams[1], 10.0)
    assert taken(expiring, 10.0) == {"a", "b"}


def test_what_has_gone_is_not_found(streams: list[Stream]) -> None:
    expiring = Expiring()
    expiring.add(streams[0], 10.0)
    expiring.discard(streams[0])
    expiring.discard(streams[0])
    assert taken(expiring, 10.0) == set()
