"""Placement: fixed for life, even, and a subscription concerns every shard that can have its messages."""

import subprocess
import sys
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.placement import ClientKey, Placement, TopicKey
from penstock.common.topics import TopicLimits, check_filter, matches, split_share
from penstock.errors import InvalidConfig, InvalidFilter
from tests.support.examples import examples

DEVICES = (TopicKey("device/+/#", 2),)
SENSORS = (ClientKey("sensor-{id}", "device/{id}"),)

# Fixed for life


@pytest.mark.parametrize(
    ("key", "shards"),
    [
        ("", [0, 2, 4, 20]),
        ("a", [0, 0, 10, 10]),
        ("device/17", [1, 3, 15, 15]),
        ("ü/☃", [1, 5, 7, 39]),
        ("client sensor-1", [1, 1, 5, 5]),
        ("$SYS", [0, 0, 2, 18]),
    ],
)
def test_a_key_has_the_same_shard_in_every_version(key: str, shards: list[int]) -> None:
    assert [Placement(count).place(key) for count in (2, 10, 16, 64)] == shards


def test_topics_and_clients_are_placed_by_their_keys() -> None:
    placement = Placement(16, DEVICES, SENSORS)
    assert placement.shard_of_topic("device/17/temperature") == placement.place("device/17")
    assert placement.shard_of_topic("elsewhere/17/temperature") == placement.place("elsewhere/17/temperature")
    assert placement.shard_of_client("sensor-17") == placement.place("device/17")
    assert placement.shard_of_client("17") == placement.place("client 17")


def test_one_shard_has_everything() -> None:
    placement = Placement(1, DEVICES, SENSORS)
    assert placement.shard_of_topic("a") == placement.shard_of_client("b") == 0
    assert placement.shards_of_filter("#") == placement.shards_of_filter("a") == {0}


@pytest.mark.parametrize("shards", [2, 3, 16, 64])
def test_shards_have_equal_shares(shards: int) -> None:
    placement, count = Placement(shards), 100_000
    shares = Counter(placement.shard_of_topic(f"plant/line{number}/state") for number in range(count))
    mean = count / shards
    spread = 4 * mean**0.5  # four standard deviations of a fair choice
    assert len(shares) == shards
    assert max(shares.values()) - mean < spread and mean - min(shares.values()) < spread


# Keys


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("device/17/a", "device/17"),
        ("device/17/a/b/c", "device/17"),
        ("device/17", "device/17"),
        ("device", "device"),
        ("device//a", "device/"),
        ("site/7/x", "site"),
        ("site", "site"),
        ("deep/a", "deep/a"),
        ("deep/a/b/c", "deep/a/b"),
        ("exact/a/b", "exact/a"),
        ("exact/a/b/c", "exact/a/b/c"),
        ("$SYS/broker/uptime", "$SYS"),
        ("$SYS", "$SYS"),
        ("$SYSTEM/x", "$SYSTEM/x"),
        ("$penstock/insights/a/b", "$penstock/insights"),
    ],
)
def test_the_first_rule_that_matches_gives_the_key(topic: str, key: str) -> None:
    rules = [
        TopicKey("device/+/#", 2),
        TopicKey("site/#", 1),
        TopicKey("deep/#", 3),
        TopicKey("exact/+/+", 2),
        TopicKey("$penstock/insights/#", 2),
    ]
    assert Placement(16, rules).topic_key(topic) == key


def test_a_narrow_rule_before_a_wide_one_decides() -> None:
    placement = Placement(16, [TopicKey("a/b/#", 3), TopicKey("#", 1)])
    assert placement.topic_key("a/b/c/d") == "a/b/c"
    assert placement.topic_key("a/x/c/d") == "a"


@pytest.mark.parametrize(
    ("client_id", "key"),
    [
        ("sensor-17", "device/17"),
        ("sensor-", "client sensor-"),
        ("sensor", "client sensor"),
        ("xsensor-17", "client xsensor-17"),
        ("gw-9-east", "gateway/9/all"),
        ("gw--east", "client gw--east"),
        ("gw-{id}-east", "gateway/{id}/all"),
        ("", "client "),
        ("sensor-a/b", "device/a/b"),
    ],
)
def test_the_first_pattern_that_matches_gives_the_key_of_a_client(client_id: str, key: str) -> None:
    rules = [*SENSORS, ClientKey("gw-{id}-east", "gateway/{id}/all")]
    assert Placement(16, (), rules).client_key(client_id) == key


def test_overlapping_ends_of_a_pattern_do_not_match() -> None:
    placement = Placement(16, (), [ClientKey("aa{id}aa", "d/{id}")])
    assert placement.client_key("aaa") == "client aaa"
    assert placement.client_key("aaaa") == "client aaaa"
    assert placement.client_key("aaaaa") == "d/a"


# Filters


ALL = frozenset(range(16))


@pytest.mark.parametrize(
    ("filter", "keys"),
    [
        ("a/b", {"a/b"}),
        ("device/17/#", {"device/17"}),
        ("device/17/+/x", {"device/17"}),
        ("device/17/state", {"device/17"}),
        ("$share/g/device/17/#", {"device/17"}),
        ("$share/g/a/b", {"a/b"}),
        ("$SYS/#", {"$SYS"}),
        ("$SYS/broker/+/x", {"$SYS"}),
        ("$share/g/$SYS/#", {"$SYS"}),
        ("$SYS/broker/uptime", {"$SYS"}),
        ("device/+/state", None),
        ("device/#", None),
        ("+/17/#", None),
        ("#", None),
        ("$share/g/#", None),
        ("a/#", None),
        ("a/+", None),
        ("$penstock/#", None),
    ],
)
def test_a_filter_with_a_fixed_key_concerns_one_shard(filter: str, keys: set[str] | None) -> None:
    placement = Placement(16, DEVICES)
    expected = ALL if keys is None else {placement.place(key) for key in keys}
    assert placement.shards_of_filter(filter) == expected


def test_a_filter_of_two_rules_concerns_the_shards_of_both_keys() -> None:
    placement = Placement(64, [TopicKey("a/b/c/#", 3), TopicKey("a/b/#", 2)])
    both = {placement.place("a/b/c"), placement.place("a/b")}
    assert len(both) == 2
    assert placement.shards_of_filter("a/b/c/#") == {placement.place("a/b/c")}
    assert placement.shards_of_filter("a/b/d/#") == {placement.place("a/b")}
    assert placement.shards_of_filter("a/b/#") == frozenset(range(64)), "of the first rule, c is not fixed"
    assert Placement(64, [TopicKey("a/+/c", 1), TopicKey("a/#", 2)]).shards_of_filter("a/b/+") == {
        placement.place("a"),
        placement.place("a/b"),
    }


LEVELS = ("", "a", "b", "$SYS", "$x")
NAMES = ["/".join(parts) for size in (1, 2, 3, 4) for parts in product(LEVELS, repeat=size) if any(parts)]
topics = st.sampled_from(NAMES)


def is_filter(text: str) -> bool:
    try:
        check_filter(text, TopicLimits())
    except InvalidFilter:
        return False
    return True


filters = (
    st.lists(st.sampled_from((*LEVELS, "+", "#")), min_size=1, max_size=4).map("/".join).filter(is_filter)
)
rules = st.builds(TopicKey, filters, st.integers(1, 4))
placements = st.tuples(st.integers(2, 64), st.lists(rules, max_size=4))


def placement_of(shards: int, rules: list[TopicKey]) -> Placement:
    """A placement with those of the rules that are valid together."""
    taken: list[TopicKey] = []
    for rule in rules:
        try:
            Placement(shards, [*taken, rule])
        except InvalidConfig:
            continue
        taken.append(rule)
    return Placement(shards, taken)


@examples(300)
@given(placements, filters, st.booleans())
def test_the_shards_of_a_filter_contain_those_of_every_topic_it_matches(
    arguments: tuple[int, list[TopicKey]], filter: str, is_shared: bool
) -> None:
    placement = placement_of(*arguments)
    concerned = placement.shards_of_filter(f"$share/group/{filter}" if is_shared else filter)
    _, inner = split_share(filter)
    outside = [
        name for name in NAMES if matches(inner, name) and placement.shard_of_topic(name) not in concerned
    ]
    assert outside == []


# Refused rules


@pytest.mark.parametrize("shards", [0, -1, 65])
def test_a_number_of_shards_out_of_range_is_refused(shards: int) -> None:
    with pytest.raises(InvalidConfig, match=rf"cluster\.shards: {shards} is not a number from 1 to 64"):
        Placement(shards)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([TopicKey("", 1)], "[0].filter: a filter has at least one character"),
        ([TopicKey("a/#/b", 1)], "[0].filter: # stands only in the last level"),
        ([TopicKey("$share/g/a/#", 1)], "[0].filter: $share/g/a/# is a shared filter"),
        ([TopicKey("$SYS/#", 2)], "[0].filter: $SYS/# is about $SYS"),
        ([TopicKey("a/+", 3)], "[0].levels: 3 is not a number from 1 to 2"),
        ([TopicKey("a/+/#", 0)], "[0].levels: 0 is not a number from 1 to 128"),
        ([TopicKey("a/+/#", 129)], "[0].levels: 129 is not a number from 1 to 128"),
        ([TopicKey("a/#", 1), TopicKey("a/b/#", 2)], "[1].filter: a/b/# never applies"),
        ([TopicKey("a/#", 1), TopicKey("b", 1), TopicKey("a/#", 2)], "[2].filter: a/# never applies"),
    ],
)
def test_a_topic_key_that_is_not_valid_is_refused_by_its_name(rules: list[TopicKey], text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Placement(16, rules)
    assert str(refused.value).startswith("cluster.topic_keys" + text)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([ClientKey("sensor", "device/{id}")], "[0].clients: 'sensor' has to contain {id} once"),
        ([ClientKey("{id}{id}", "device/{id}")], "[0].clients: '{id}{id}' has to contain {id} once"),
        ([ClientKey("{id}-{x}", "device/{id}")], "[0].clients: '{id}-{x}' has to contain {id} once"),
        ([ClientKey("{id}", "device")], "[0].topic_key: 'device' has to contain {id} once"),
        ([ClientKey("{id}", "+/{id}")], "[0].topic_key: a topic holds no + or #"),
        ([ClientKey("{id}", "a/{id}"), ClientKey("{id}", "b/{id}")], "[1].clients: '{id}' never applies"),
    ],
)
def test_a_client_key_that_is_not_valid_is_refused_by_its_name(rules: list[ClientKey], text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Placement(16, (), rules)
    assert str(refused.value).startswith("cluster.client_keys" + text)


def test_a_server_with_one_shard_imports_nothing_of_the_cluster() -> None:
    program = (
        "import sys, penstock.cli.main, penstock.cli.commands.serve, penstock.app.server;"
        "print([name for name in sys.modules if name.startswith(('penstock.cluster', 'penstock.wire.peer'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
