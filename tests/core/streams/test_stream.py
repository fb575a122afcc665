"""The queue of one stream."""

from collections.abc import Sequence

import pytest

from penstock.core.settings import CoreSettings
from penstock.core.streams.stream import Stream, weight_of
from penstock.core.topics.registry import Registry
from tests.support.samples import make_run


@pytest.fixture
def stream() -> Stream:
    return Stream(Registry(CoreSettings()).make("s"), 0.0)


def put(stream: Stream, *payloads: bytes) -> None:
    for payload in payloads:
        stream.put(make_run("s", payload))


def contents(stream: Stream) -> Sequence[bytes]:
    assert stream.count == len(stream.messages)
    assert stream.bytes == sum(map(weight_of, stream.messages))
    return [run.payload() for run in stream.messages]


@pytest.mark.parametrize("count", range(5))
def test_the_oldest_message_leaves_first(stream: Stream, count: int) -> None:
    payloads = [b"%d" % number for number in range(count)]
    put(stream, *payloads)
    assert contents(stream) == payloads
    for payload in payloads:
        assert stream.first.payload() == payload
        assert stream.take().payload() == payload
    assert contents(stream) == []


@pytest.mark.parametrize("count", range(4))
def test_what_is_given_back_is_first_again(stream: Stream, count: int) -> None:
    payloads = [b"%d" % number for number in range(count)]
    put(stream, *payloads)
    stream.put_first(make_run("s", b"back"))
    assert contents(stream) == [b"back", *payloads]
    put(stream, b"new")
    assert contents(stream) == [b"back", *payloads, b"new"]


@pytest.mark.parametrize("kept", [[], [1], [0, 2]])
def test_some_can_be_taken_out_wherever_they_stand(stream: Stream, kept: list[int]) -> None:
    put(stream, b"0", b"1", b"2")
    wanted = [stream.messages[index] for index in kept]
    stream.remove(lambda run: run not in wanted)
    assert contents(stream) == [b"%d" % index for index in kept]
    put(stream, b"3")
    assert contents(stream)[-1] == b"3"


def test_a_stream_is_attached_while_it_is_that_of_its_topic(stream: Stream) -> None:
    assert not stream.is_attached
    stream.topic.stream = stream
    assert stream.is_attached
