"""Filters and topics, compared with a dictionary of filters that are matched one by one."""

import gc
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.topics import matches, split_share
from penstock.core.delivery.policy import Limits
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings
from penstock.core.subscriptions.audience import NOBODY, Audience, Group
from penstock.core.subscriptions.router import AnyGroup, Level, Router
from penstock.core.subscriptions.shared import SharedGroup
from penstock.core.subscriptions.subscription import Options, Subscription
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic
from penstock.model import Policy
from tests.support.encodings import PlainEncoding
from tests.support.examples import examples
from tests.support.samples import make_session

TOPICS = ("a", "a/b", "a//b", "/", "b/b", "a/b/c", "a/b/c/d", "$x", "$x/b", "b")
FILTERS = (
    *("a", "a/b", "/", "b/b", "$x/b", "a/b/c", "never"),
    *(
        "#",
        "+",
        "a/#",
        "+/b",
        "a/+",
        "+/+",
        "a/+/b",
        "+/#",
        "/#",
        "a/b/#",
        "$x/#",
        "+/b/c",
        "a/+/+/d",
        "never/#",
    ),
    *("$share/g/a/b", "$share/h/a/b", "$share/g/a/+", "$share/g/#", "$share/g/+/b", "$share/g/$x/#"),
)
CLIENTS = "pqrs"


class CountingRouter(Router):
    """A router that counts how often it was really asked."""

    def __init__(self, topics: Registry, offline_limits: Limits) -> None:
        super().__init__(topics, offline_limits)
        self.matches = 0

    def match(self, topic: str) -> list[AnyGroup]:
        self.matches += 1
        return super().match(topic)


class Switchboard:
    """A router with its sessions and topics, and the dictionary it is compared with."""

    def __init__(self) -> None:
        self.topics = Registry(CoreSettings())
        self.router = CountingRouter(self.topics, Limits(10, 1_000))
        self.sessions = {name: make_session(name) for name in CLIENTS}
        self.model: dict[str, dict[str, PlainEncoding]] = {}  # filter -> client -> form

    def subscribe(self, client: str, filter: str, qos: int = 0, identifier: int = 1) -> None:
        session = self.sessions[client]
        encoding = PlainEncoding(qos=qos, identifiers=(identifier,))
        subscription = Subscription(filter, Options(qos=qos), encoding, Policy.DROP_NEWEST)
        group = self.router.open_group(filter)
        if (old := session.subscriptions.get(filter)) is not None:
            group.leave(session, old)
        group.join(session, subscription)
        session.subscriptions[filter] = subscription
        self.model.setdefault(filter, {})[client] = encoding

    def unsubscribe(self, client: str, filter: str) -> None:
        session = self.sessions[client]
        subscription = session.subscriptions.pop(filter, None)
        if subscription is None:
            return
        group = self.router.find_group(filter)
        assert group is not None
        group.leave(session, subscription)
        if not group:
            self.router.close_group(filter)
        del self.model[filter][client]
        if not self.model[filter]:
            del self.model[filter]

    def churn(self, times: int) -> None:
        """Filters that come and go and concern nobody else."""
        for number in range(times):
            self.subscribe("p", f"churn/+/{number}")
            self.unsubscribe("p", f"churn/+/{number}")

    def audience(self, name: str) -> Audience[Session]:
        """What a publish to a topic does."""
        topic: Topic = self.topics.make(name)
        if topic.version != self.router.version:
            self.router.refresh(topic)
        return topic.audience

    def check(self, name: str) -> None:
        audience = self.audience(name)
        direct = {filter: who for filter, who in self.model.items() if self.is_direct(filter, name)}
        shared = {
            filter for filter in self.model if filter.startswith("$share/") and self.is_meant(filter, name)
        }
        assert merged_forms(audience) == expected_forms(direct)
        assert {group.filter for group in audience.shared} == shared
        assert len(audience) == len(expected_forms(direct)) + len(shared)
        assert (audience is NOBODY) == (not direct and not shared)

    def is_direct(self, filter: str, name: str) -> bool:
        return not filter.startswith("$share/") and matches(filter, name)

    def is_meant(self, filter: str, name: str) -> bool:
        return matches(split_share(filter)[1], name)


Wish = tuple[int, list[int]]  # highest QoS, all identifiers


def merged_forms(audience: Audience[Session]) -> dict[str, Wish]:
    found: dict[str, Wish] = {}
    for encoding, members in audience.classes():
        assert isinstance(encoding, PlainEncoding)
        for session in members:
            assert session.client_id not in found, "one copy for each session"
            found[session.client_id] = (encoding.qos, sorted(encoding.identifiers))
    return found


def expected_forms(direct: dict[str, dict[str, PlainEncoding]]) -> dict[str, Wish]:
    encodings: dict[str, list[PlainEncoding]] = {}
    for who in direct.values():
        for client, encoding in who.items():
            encodings.setdefault(client, []).append(encoding)
    return {
        client: (
            max(encoding.qos for encoding in mine),
            sorted(one for encoding in mine for one in encoding.identifiers),
        )
        for client, mine in encodings.items()
    }


@pytest.fixture
def board() -> Switchboard:
    return Switchboard()


clients, filters, names = st.sampled_from(CLIENTS), st.sampled_from(FILTERS), st.sampled_from(TOPICS)
steps = st.one_of(
    st.tuples(st.just("subscribe"), clients, filters, st.integers(0, 2)),
    st.tuples(st.just("subscribe"), clients, filters, st.integers(0, 2)),
    st.tuples(st.just("unsubscribe"), clients, filters, st.just(0)),
    st.tuples(st.just("publish"), st.just(""), names, st.just(0)),
    st.tuples(st.just("publish"), st.just(""), names, st.just(0)),
    st.tuples(st.just("churn"), st.just(""), st.just(""), st.sampled_from((1, 31, 32, 33, 70))),
)
stories = st.lists(steps, max_size=8) | st.lists(steps, min_size=20, max_size=60)


@examples(50)
@given(stories)
def test_a_topic_reaches_exactly_those_whose_filters_match(todo: list[tuple[str, str, str, int]]) -> None:
    board = Switchboard()
    for number, (what, client, text, value) in enumerate(todo, 1):
        if what == "subscribe":
            board.subscribe(client, text, value, number)
        elif what == "unsubscribe":
            board.unsubscribe(client, text)
        elif what == "publish":
            board.check(text)
        else:
            board.churn(value)
    for name in TOPICS:
        board.check(name)
    assert board.router.filters == len(board.model)
    leave_all(board)


def leave_all(board: Switchboard) -> None:
    """Nothing is left behind when everyone has gone."""
    for filter, who in list(board.model.items()):
        for client in list(who):
            board.unsubscribe(client, filter)
    assert board.router.filters == 0
    assert board.router._root.is_bare
    assert not board.router._exact
    for name in TOPICS:
        assert board.audience(name) is NOBODY


@given(st.sets(filters), st.permutations(FILTERS))
def test_a_group_is_found_by_its_filter_from_open_to_close(opened: set[str], order: list[str]) -> None:
    router = Switchboard().router
    groups = {filter: router.open_group(filter) for filter in opened}
    assert all(router.open_group(filter) is group for filter, group in groups.items())
    for filter in order:
        assert router.find_group(filter) is groups.get(filter)
        router.close_group(filter)
        assert router.find_group(filter) is None
    assert router._root.is_bare
    assert router.filters == 0


# What is cached, and for how long


def test_topics_that_reach_the_same_groups_have_one_audience(board: Switchboard) -> None:
    board.subscribe("p", "a/#")
    board.subscribe("q", "+/b/#")
    assert board.audience("a/b") is board.audience("a/b/c")
    assert board.audience("a/b") is not board.audience("a")


def test_joining_and_leaving_a_group_invalidates_nothing(board: Switchboard) -> None:
    board.subscribe("p", "a/+")
    board.check("a/b")
    asked, version = board.router.matches, board.router.version
    board.subscribe("q", "a/+")
    board.check("a/b")
    board.unsubscribe("p", "a/+")
    board.check("a/b")
    assert (board.router.matches, board.router.version) == (asked, version)


def test_an_exact_filter_that_comes_or_goes_concerns_its_own_topic_only(board: Switchboard) -> None:
    board.check("a")
    board.check("b")
    asked = board.router.matches
    board.subscribe("p", "a")
    board.check("b")
    assert board.router.matches == asked
    board.check("a")
    assert board.router.matches == asked + 1
    board.unsubscribe("p", "a")
    board.check("a")
    assert board.router.matches == asked + 2


def test_a_wildcard_that_comes_or_goes_concerns_the_topics_that_it_matches_only(board: Switchboard) -> None:
    board.check("a/b")
    board.check("b")
    asked = board.router.matches
    board.subscribe("p", "a/+")
    board.subscribe("p", "$share/g/a/#")
    board.check("b")
    assert board.router.matches == asked
    board.check("a/b")
    assert board.router.matches == asked + 1
    board.subscribe("p", "b/+")  # what was looked at before is not looked at again
    board.check("a/b")
    assert board.router.matches == asked + 1


@pytest.mark.parametrize(("changes", "looks"), [(1, 0), (4, 0), (5, 1), (200, 1)])
def test_a_topic_looks_again_when_more_changed_than_is_remembered(
    board: Switchboard, changes: int, looks: int
) -> None:
    board.subscribe("p", "first/+")
    board.check("a")
    asked = board.router.matches
    for number in range(changes):
        board.subscribe("q", f"other/+/{number}")
    board.check("a")
    assert board.router.matches == asked + looks
    board.check("a")
    assert board.router.matches == asked + looks


@pytest.mark.parametrize("changes", [0, 1, 3, 4, 5, 6, 65, 130])
def test_a_change_is_seen_however_many_came_after_it(board: Switchboard, changes: int) -> None:
    board.subscribe("p", "first/+")
    board.check("a/b")
    board.subscribe("q", "a/+")
    for number in range(changes):
        board.subscribe("r", f"other/+/{number}")
    board.check("a/b")
    board.unsubscribe("q", "a/+")
    for number in range(changes):
        board.unsubscribe("r", f"other/+/{number}")
    board.check("a/b")


def test_a_filter_that_went_and_came_back_is_a_new_group(board: Switchboard) -> None:
    for filter in ("a", "+"):
        board.subscribe("p", filter)
        board.check("a")
        board.unsubscribe("p", filter)
        board.subscribe("q", filter)
        board.check("a")


def test_an_audience_that_no_topic_has_any_more_is_forgotten(board: Switchboard) -> None:
    board.subscribe("p", "+")
    audience = ref(board.audience("a"))
    assert audience() is not None
    board.unsubscribe("p", "+")
    board.check("a")
    gc.collect()
    assert audience() is None


def test_a_shared_group_is_found_beside_the_plain_one_of_the_same_filter(board: Switchboard) -> None:
    for filter in ("a/b", "$share/g/a/b", "$share/h/a/b"):
        board.subscribe("p", filter)
    groups = board.router.match("a/b")
    assert [type(group) for group in groups] == [Group, SharedGroup, SharedGroup]
    assert [group.filter for group in groups] == ["a/b", "$share/g/a/b", "$share/h/a/b"]
    assert {group.inner for group in groups if isinstance(group, SharedGroup)} == {"a/b"}


# How much work a match is


class CountingDict(dict[str, Level]):
    """Counts look-ups of all its kind."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        CountingDict.looks += 1
        return super().__contains__(key)


def count_looks(router: Router, topic: str) -> int:
    """How many children were looked for in the tree of wildcards."""
    nodes = [router._root]
    while nodes:
        node = nodes.pop()
        nodes += node.children.values()
        node.children = CountingDict(node.children)
    CountingDict.looks = 0
    router.match(topic)
    return CountingDict.looks


def make_router(exact: int, wildcards: int) -> Router:
    router = Router(Registry(CoreSettings()), Limits(1, 1))
    for filter in ("house/+/state", "house/kitchen/#", "#", "+/kitchen/lamp/state"):
        router.open_group(filter)
    for number in range(exact):
        router.open_group(f"house/room{number}/lamp/state")
    for number in range(wildcards // 2):
        router.open_group(f"house/room{number}/+/state")
        router.open_group(f"+/room{number}/#")
    return router


def test_a_match_costs_the_same_beside_a_hundred_thousand_filters_that_do_not() -> None:
    topic = "house/kitchen/lamp/state"
    few, many = make_router(0, 0), make_router(100_000, 2_000)
    assert many.filters == 102_004
    assert {group.filter for group in few.match(topic)} == {group.filter for group in many.match(topic)}
    looks = count_looks(few, topic)
    assert 0 < count_looks(many, topic) <= looks + 2


def test_an_audience_is_found_for_a_topic_that_nobody_has_used_without_making_it(board: Switchboard) -> None:
    board.subscribe("p", "a/#")
    found = board.router.find_audience("a/new")
    assert board.topics.get("a/new") is None
    assert found is board.audience("a/new")
    board.subscribe("q", "+/new")
    assert board.router.find_audience("a/new") is board.audience("a/new") is not found
    assert board.router.find_audience("nobody") is NOBODY
