"""Retained values, compared with a dictionary whose keys are matched one by one."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.common.topics import matches
from penstock.core.settings import CoreSettings
from penstock.core.topics.registry import Registry
from penstock.core.topics.retained import VAIN_NODES, Retained
from penstock.core.topics.topic import Topic
from penstock.runs import NEVER
from tests.support.samples import make_run

NAMES = ("a", "a/b", "a//b", "/", "/a", "a/", "b", "a/b/c", "a/b/c/d", "a/c", "b/b", "$x", "$x/a", "x/$y")
FILTERS = (
    *NAMES,
    *(
        "#",
        "+",
        "+/+",
        "a/#",
        "a/+",
        "+/b",
        "/#",
        "/+",
        "+/",
        "+/#",
        "a/+/b",
        "a/b/#",
        "+/+/#",
        "$x/#",
        "$x/+",
    ),
    *("a/+/+", "x/#", "a//#", "nobody", "a/b/c/d/e", "a/b/c/d/#"),
)


class Shelf:
    """Retained values and the dictionary they are compared with."""

    def __init__(self, limit: int = 1_000) -> None:
        self.topics = Registry(CoreSettings())
        self.retained = Retained(limit)
        self.model: dict[str, tuple[bytes, float]] = {}

    def put(self, name: str, payload: bytes, expires_at: float = NEVER) -> None:
        run = make_run(name, b"old!", payload, retain=True, expires_at=expires_at)
        self.retained.put(self.topics.make(name), run)
        self.model[name] = (payload, expires_at)

    def delete(self, name: str) -> None:
        self.retained.delete(self.topics.make(name))
        self.model.pop(name, None)

    def reap(self, now: float) -> None:
        expired = [name for name, (_, when) in self.model.items() if NEVER < when <= now]
        assert {topic.name for topic in self.retained.reap(now)} == set(expired)
        for name in expired:
            del self.model[name]

    def check(self) -> None:
        assert len(self.retained) == len(self.model)
        for filter in FILTERS:
            found = [topic for topic in self.retained.match(filter) if topic is not None]
            expected = {name for name in self.model if matches(filter, name)}
            assert sorted(topic.name for topic in found) == sorted(expected), filter
        for name, (payload, _) in self.model.items():
            value = self.topics[name].retained
            assert value is not None
            assert value.payload() == payload


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


puts = st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from((NEVER, NEVER, 105.0, 107.0, 120.0)))
steps = st.one_of(
    puts,
    puts,
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(NEVER)),
    st.tuples(st.just("reap"), st.just(""), st.sampled_from((100.0, 105.0, 110.0, 130.0))),
)
stories = st.lists(steps, max_size=8) | st.lists(steps, min_size=15, max_size=40)


@given(stories)
@example([("put", "a/b", 105.0), ("put", "a/b", 105.0), ("reap", "", 110.0)])  # twice in the same instant
def test_values_are_found_as_in_a_dictionary_of_all_of_them(todo: list[tuple[str, str, float]]) -> None:
    shelf = Shelf()
    for number, (what, name, when) in enumerate(todo):
        if what == "put":
            shelf.put(name, b"%04d" % number, when)
        elif what == "delete":
            shelf.delete(name)
        else:
            shelf.reap(when)
    shelf.check()


@given(st.permutations(NAMES), st.permutations(NAMES))
def test_nothing_is_left_behind_when_every_value_is_deleted(planted: list[str], deleted: list[str]) -> None:
    shelf = Shelf()
    for name in planted:
        shelf.put(name, b"1234")
    for name in deleted:
        shelf.delete(name)
        shelf.delete(name)  # once more changes nothing
    shelf.check()
    assert shelf.retained._root == {}


@given(
    st.sampled_from(FILTERS),
    st.sets(st.sampled_from(NAMES), min_size=4),
    st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES)), min_size=10, max_size=40),
)
def test_values_may_come_and_go_while_others_are_read(
    filter: str, planted: set[str], changes: list[tuple[bool, str]]
) -> None:
    shelf = Shelf()
    for name in sorted(planted):
        shelf.put(name, b"1234")
    found: Iterator[Topic | None] = shelf.retained.match(filter)
    seen, touched = [], set()
    for is_put, name in changes:
        topic = next(found, None)
        if topic is not None:
            seen.append(topic.name)
        touched.add(name)
        if is_put:
            shelf.put(name, b"5678")
        else:
            shelf.delete(name)
    seen += [topic.name for topic in found if topic is not None]
    # What stood there all the time is read exactly once; nothing is read that does not match.
    stable = {name for name in planted - touched if matches(filter, name)}
    assert {name for name in seen if name in stable} == stable
    assert all(seen.count(name) == 1 for name in stable)
    assert all(matches(filter, name) for name in seen)
    shelf.check()


@pytest.mark.parametrize("filter", ["+/nothing", "+/state/+", "+/+/#"])
def test_a_search_says_how_long_it_looked_in_vain(filter: str) -> None:
    shelf = Shelf()
    names = [f"d{number}/state" for number in range(5 * VAIN_NODES)]
    for name in names:
        shelf.put(name, b"1234")
    found = list(shelf.retained.match(filter))
    matching = {name for name in names if matches(filter, name)}
    assert {topic.name for topic in found if topic is not None} == matching
    nodes = 2 * len(names)  # a branch and a leaf each
    assert found.count(None) == (nodes - len(matching)) // VAIN_NODES


def test_values_found_now_and_then_do_not_hide_how_long_a_search_is() -> None:
    shelf = Shelf()
    for number in range(5 * VAIN_NODES):
        shelf.put(f"d{number}/{'wanted' if number % 50 == 0 else 'other'}", b"1234")
    found = list(shelf.retained.match("+/wanted"))
    assert len(found) - found.count(None) == 5 * VAIN_NODES / 50
    assert found.count(None) == 9


def test_names_that_wildcards_do_not_match_are_looked_at_in_vain_too() -> None:
    shelf = Shelf()
    for number in range(VAIN_NODES):
        shelf.put(f"${number}", b"1234")
    assert list(shelf.retained.match("#")) == list(shelf.retained.match("+")) == [None]


def test_the_last_message_of_a_run_is_the_value(shelf: Shelf) -> None:
    topic = shelf.topics.make("a")
    shelf.retained.put(topic, make_run("a", b"1", b"2", b"3", sequence=7, offset=70, retain=True))
    assert topic.retained is not None
    assert (topic.retained.payload(), topic.retained.sequence, topic.retained.offset) == (b"3", 9, 72)


def test_a_new_value_without_an_end_outlives_the_one_it_replaced(shelf: Shelf) -> None:
    shelf.put("a", b"1234", 105.0)
    shelf.put("a", b"5678")
    shelf.reap(200.0)
    shelf.check()
    assert len(shelf.retained) == 1


def test_it_is_full_for_topics_without_a_value_only() -> None:
    shelf = Shelf(limit=2)
    shelf.put("a", b"1234")
    assert not shelf.retained.is_full
    shelf.put("b", b"1234")
    assert shelf.retained.is_full
    shelf.put("b", b"5678")
    assert len(shelf.retained) == 2
    shelf.delete("a")
    assert not shelf.retained.is_full


def test_a_topic_with_many_new_values_does_not_gather_their_ends(shelf: Shelf) -> None:
    shelf.put("quiet", b"1234", 3_000.0)
    for number in range(10_000):
        shelf.put("busy", b"%04d" % number, 10_000.0 - number)
    assert len(shelf.retained._expiries) < 2_000
    shelf.reap(2_000.0)
    assert sorted(shelf.model) == ["quiet"]
    shelf.reap(3_000.0)
    shelf.check()
