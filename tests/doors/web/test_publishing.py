"""Bodies of a publish that ask for more than they could ever publish: refused before it is built."""

import tracemalloc
from collections.abc import Callable

import pytest

from penstock.common.topics import TopicLimits
from penstock.core.broker import Refused
from penstock.doors.web import publishing
from penstock.doors.web.publishing import (
    MAX_CUT,
    MAX_ERRORS,
    MAX_MESSAGES,
    MAX_PAIRS,
    MAX_TEXT_BYTES,
    read_message,
)
from penstock.errors import InvalidRequest, PenstockError, TooLarge
from penstock.runs import Run
from tests.support.steps import take_all

LIMITS = TopicLimits()
MEGABYTE = 1_000_000


def read_messages(body: bytes) -> list[Run]:
    return take_all(publishing.read_messages(body, LIMITS))


def list_of(*items: bytes) -> bytes:
    return b"[%b]" % b",".join(items)


def with_properties(text: bytes) -> bytes:
    return b'{"topic":"a","payload":"x","properties":%b}' % text


def peak_bytes(read: Callable[[], object], error: type[Exception]) -> int:
    """The most memory that it took to refuse something."""
    tracemalloc.start()
    try:
        with pytest.raises(error):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("item", "count", "error"),
    [
        (b"1", MAX_CUT + 2, Refused),
        (b"{}", MAX_CUT + 2, Refused),
        (b'{"topic":"a","payload":""}', 20 * MAX_MESSAGES, TooLarge),
        (b'{"topic":"a","data":"\\ud800"}', MAX_CUT + 2, PenstockError),
    ],
)
def test_a_list_that_is_far_too_long_is_not_built(item: bytes, count: int, error: type[Exception]) -> None:
    body = list_of(*[item] * count)
    assert peak_bytes(lambda: read_messages(body), error) < 3 * MEGABYTE


@pytest.mark.parametrize(
    "properties",
    [
        b'{"a":%b}' % list_of(*[b'""'] * 500_000),
        b"{%b}" % b",".join(b'"%d":[]' % number for number in range(100_000)),
        b"{%b}" % b",".join(b'"%d":""' % number for number in range(100_000)),
    ],
    ids=["values", "empty", "names"],
)
def test_properties_that_are_far_too_long_are_not_built(properties: bytes) -> None:
    message = with_properties(properties)
    assert len(properties) > MAX_TEXT_BYTES
    taken = peak_bytes(lambda: read_message(message, LIMITS), TooLarge)
    assert taken < len(message) + MEGABYTE
    taken = peak_bytes(lambda: read_messages(list_of(message)), Refused)
    assert taken < len(message) + MEGABYTE


def test_what_is_as_long_as_can_travel_is_read() -> None:
    text = b'{"a":"%b"}' % (b"\\u00e9" * 32_000)
    properties = read_message(with_properties(text), LIMITS).properties
    assert properties is not None
    assert properties.user == (("a", "é" * 32_000),)


def test_a_name_has_one_value_or_many_but_not_none() -> None:
    properties = read_message(with_properties(b'{"b":["2","1"],"a":"3","b2":["4"]}'), LIMITS).properties
    assert properties is not None
    assert properties.user == (("b", "2"), ("b", "1"), ("a", "3"), ("b2", "4"))
    with pytest.raises(InvalidRequest, match="properties: a name has a text, or a list of at least one"):
        read_message(with_properties(b'{"a":"1","b":[]}'), LIMITS)


@pytest.mark.parametrize("properties", [b"null", b"{}"])
def test_no_properties_may_be_said_in_words(properties: bytes) -> None:
    found = read_message(with_properties(properties), LIMITS).properties
    assert found is None or found.user == ()


def test_the_properties_of_one_body_are_counted_together() -> None:
    count, each = 100, MAX_PAIRS // 100
    full = with_properties(b"{%b}" % b",".join(b'"%03x":""' % number for number in range(each)))
    assert len(read_messages(list_of(*[full] * count))) == count
    one_more = with_properties(b'{"a":["1"]}')
    with pytest.raises(Refused) as refused:
        read_messages(list_of(*[full] * count, one_more, b'{"topic":"a","data":1}', one_more))
    assert list(refused.value.errors) == [count, count + 2]
    assert all(type(error) is TooLarge for error in refused.value.errors.values())
    assert len(read_messages(list_of(full))) == 1  # each body for itself


def test_after_many_errors_the_rest_is_not_looked_at() -> None:
    with pytest.raises(Refused) as refused:
        read_messages(list_of(*[b'{"topic":"a"}'] * (MAX_ERRORS + 50)))
    assert list(refused.value.errors) == list(range(MAX_ERRORS))


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        (b'{"topic":"a","data":1,"qos":[7]}', "Expected `int`, got `array` - at `$.qos`"),
        (b"7", "Expected `object`, got `int`"),
    ],
)
@pytest.mark.parametrize("commas", [0, MAX_CUT])
def test_what_is_wrong_in_a_list_is_named_whether_it_is_long_or_not(
    wrong: bytes, detail: str, commas: int
) -> None:
    good = b'{"topic":"a","data":%b}' % list_of(*[b"0"] * (commas + 1))
    with pytest.raises(Refused) as refused:
        read_messages(list_of(good, good, wrong, good))
    assert {index: str(error) for index, error in refused.value.errors.items()} == {2: detail}
