"""Names and filters: the rules of MQTT, checked against a naive model and by enumeration."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.common.topics import (
    FilterSet,
    TopicLimits,
    check_filter,
    check_topic,
    covers,
    is_reserved,
    is_wildcard,
    matches,
    reaches,
    split_share,
)
from penstock.errors import InvalidFilter, InvalidTopic

LIMITS = TopicLimits()

LEVELS = ("", "a", "b", "$x", "é")
SMALL_LEVELS = ("", "a", "$x", "new")

levels = st.sampled_from(LEVELS)
topics = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from((*LEVELS, "+")), max_size=4))
    if not parts or draw(st.booleans()):
        parts.append("#")
    return "/".join(parts) or "+"


def naive_matches(wanted: list[str], names: list[str], *, first: bool = True) -> bool:
    """What the specification says, level by level."""
    if wanted == ["#"]:
        return not (first and names[0].startswith("$"))
    if not wanted or not names:
        return wanted == names
    if wanted[0] == "+" and first and names[0].startswith("$"):
        return False
    if wanted[0] not in ("+", names[0]):
        return False
    if wanted[1:] == ["#"]:
        return True
    return naive_matches(wanted[1:], names[1:], first=False)


def names_up_to(depth: int, alphabet: tuple[str, ...]) -> list[str]:
    return [
        name for size in range(1, depth + 1) for name in map("/".join, product(alphabet, repeat=size)) if name
    ]


@pytest.mark.parametrize(
    "topic", ["a", "/", "//", "a/b", "/a", "a/", "$SYS/x", "a b/ü", ".", "../a", "$share/g/x"]
)
def test_ordinary_topics_are_accepted(topic: str) -> None:
    check_topic(topic, LIMITS)


@pytest.mark.parametrize("topic", ["", "+", "#", "a/+", "a/#", "a+b", "a#", "a\0b", "\0", "a/\ud800"])
def test_topics_against_the_rules_are_refused(topic: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic(topic, LIMITS)


@pytest.mark.parametrize(
    "filter",
    [
        "a",
        "/",
        "+",
        "#",
        "+/+",
        "a/#",
        "/#",
        "+/#",
        "a/+/b",
        "//+",
        "$SYS/#",
        "$share",
        "$shared/g",
        "$share/g/#",
    ],
)
def test_ordinary_filters_are_accepted(filter: str) -> None:
    check_filter(filter, LIMITS)


@pytest.mark.parametrize(
    "filter",
    [
        "",
        "a\0",
        "a+",
        "+a",
        "a/b+/c",
        "++",
        "a#",
        "#a",
        "##",
        "a/#/b",
        "#/",
        "#/#",
        "+#",
        "a/\udfff",
        "a/+#/b",
    ],
)
def test_filters_against_the_rules_are_refused(filter: str) -> None:
    with pytest.raises(InvalidFilter):
        check_filter(filter, LIMITS)


@pytest.mark.parametrize(
    "filter",
    [
        "$share/",
        "$share//",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/g+/a",
        "$share/#",
        "$share/#/a",
    ],
)
def test_shared_filters_need_a_plain_group_and_a_filter(filter: str) -> None:
    with pytest.raises(InvalidFilter):
        check_filter(filter, LIMITS)


def test_the_inner_filter_of_a_shared_one_is_checked_too() -> None:
    check_filter("$share/g/a/+/#", LIMITS)
    with pytest.raises(InvalidFilter):
        check_filter("$share/g/a/#/b", LIMITS)


def test_length_is_counted_in_bytes_of_utf8() -> None:
    limits = TopicLimits(max_bytes=4)
    check_topic("éé", limits)
    check_filter("éé", limits)
    with pytest.raises(InvalidTopic, match="5 bytes"):
        check_topic("ééa", limits)
    with pytest.raises(InvalidFilter, match="5 bytes"):
        check_filter("ééa", limits)


def test_depth_is_limited() -> None:
    limits = TopicLimits(max_levels=3)
    check_topic("a/b/c", limits)
    check_filter("a/+/#", limits)
    with pytest.raises(InvalidTopic, match="4 levels"):
        check_topic("a/b/c/", limits)
    with pytest.raises(InvalidFilter, match="4 levels"):
        check_filter("a/b/c/#", limits)


def test_a_shared_filter_may_be_as_deep_as_a_plain_one() -> None:
    limits = TopicLimits(max_levels=2)
    check_filter("$share/g/a/b", limits)
    with pytest.raises(InvalidFilter, match="3 levels"):
        check_filter("$share/g/a/b/c", limits)


@pytest.mark.parametrize(
    ("filter", "parts"),
    [
        ("a/b", (None, "a/b")),
        ("$share/g/a/b", ("g", "a/b")),
        ("$share/g/#", ("g", "#")),
        ("$share/g//", ("g", "/")),
        ("$share", (None, "$share")),
        ("$shared/g/a", (None, "$shared/g/a")),
        ("a/$share/g/b", (None, "a/$share/g/b")),
    ],
)
def test_a_shared_filter_splits_into_group_and_inner_filter(
    filter: str, parts: tuple[str | None, str]
) -> None:
    assert split_share(filter) == parts


def test_wildcards_are_seen_at_any_level() -> None:
    assert is_wildcard("+/a") and is_wildcard("a/#") and is_wildcard("#")
    assert not is_wildcard("a/b") and not is_wildcard("$SYS/")


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        ("a/b", "a/b"),
        ("a/#", "a"),
        ("a/#", "a/"),
        ("a/#", "a/b/c"),
        ("a/+", "a/"),
        ("+/+", "/a"),
        ("/+", "/a"),
        ("+", "a"),
        ("+/#", "a"),
        ("#", "/"),
        ("$SYS/#", "$SYS"),
        ("$SYS/+", "$SYS/a"),
        ("a/+", "a/$SYS"),
        ("a/#", "a/$SYS"),
    ],
)
def test_filters_match_what_they_mean(filter: str, topic: str) -> None:
    assert matches(filter, topic)


@pytest.mark.parametrize(
    ("filter", "topic"),
    [
        ("a/b", "a/B"),
        ("a", "/a"),
        ("a", "a/"),
        ("+", "/a"),
        ("+", "a/b"),
        ("a/+", "a"),
        ("a/+/#", "a"),
        ("a/#", "ab"),
        ("#", "$SYS/a"),
        ("+/a", "$SYS/a"),
        ("+/#", "$SYS"),
        ("é", "e\u0301"),
    ],
)
def test_filters_do_not_match_what_only_looks_alike(filter: str, topic: str) -> None:
    assert not matches(filter, topic)


@given(filters(), topics)
def test_matching_agrees_with_the_naive_model(filter: str, topic: str) -> None:
    assert matches(filter, topic) == naive_matches(filter.split("/"), topic.split("/"))


def test_matching_a_filter_of_thousands_of_levels_needs_no_recursion() -> None:
    assert matches("+/" * 30_000 + "#", "a/" * 30_000 + "b")
    assert covers("+/" * 30_000 + "#", "a/" * 30_000 + "#")


@pytest.mark.parametrize(
    ("rule", "filter"),
    [
        ("a/+", "a/b"),
        ("a/+", "a/+"),
        ("a/#", "a"),
        ("a/#", "a/+/b"),
        ("a/#", "a/#"),
        ("#", "+"),
        ("#", "#"),
        ("+/#", "#"),
        ("/+/#", "/#"),
        ("$SYS/#", "$SYS/+"),
        ("+/+", "+/$SYS"),
    ],
)
def test_a_rule_covers_filters_that_stay_within_it(rule: str, filter: str) -> None:
    assert covers(rule, filter)


@pytest.mark.parametrize(
    ("rule", "filter"),
    [
        ("a/+", "a/#"),
        ("a/+", "a"),
        ("a/b", "a/+"),
        ("a/+/#", "a/#"),
        ("+", "#"),
        ("#", "$SYS/x"),
        ("+/x", "$SYS/x"),
        ("+/#", "$SYS/#"),
        ("+/+/#", "#"),
        ("a/#", "ab/#"),
    ],
)
def test_a_rule_does_not_cover_filters_that_reach_further(rule: str, filter: str) -> None:
    assert not covers(rule, filter)


@given(filters(), filters(), topics)
@example("+/#", "#", "a")
@example("#", "$x/a", "$x/a")
def test_what_is_covered_lets_no_topic_out(rule: str, filter: str, topic: str) -> None:
    if covers(rule, filter) and matches(filter, topic):
        assert matches(rule, topic)


@given(filters(), topics)
def test_covering_a_plain_topic_is_matching_it(rule: str, topic: str) -> None:
    assert covers(rule, topic) == matches(rule, topic)


def test_covering_is_exact_on_every_small_filter() -> None:
    # "new" stands in no filter, and topics go one level deeper: enough to tell any two filters apart.
    all_topics = names_up_to(4, SMALL_LEVELS)
    all_filters = []
    for name in names_up_to(3, ("", "a", "$x", "+", "#")):
        if "#" not in name.split("/")[:-1]:
            all_filters.append(name)
    matched = {filter: {topic for topic in all_topics if matches(filter, topic)} for filter in all_filters}
    for rule, filter in product(all_filters, repeat=2):
        assert covers(rule, filter) == (matched[filter] <= matched[rule]), (rule, filter)


@pytest.mark.parametrize(
    "topic",
    ["$SYS/x", "$", "$penstock", "$penstock/drops", "$penstock/insights", "$penstock/insights-of-mine/x"],
)
def test_what_begins_with_a_dollar_is_the_servers_own(topic: str) -> None:
    assert is_reserved(topic)


@pytest.mark.parametrize("topic", ["a", "a/$SYS", "penstock/insights/x", "$penstock/insights/hot/10s"])
def test_insights_and_plain_topics_belong_to_whoever_has_the_right(topic: str) -> None:
    assert not is_reserved(topic)


def test_a_set_of_filters_matches_what_one_of_them_does() -> None:
    filters = FilterSet(("a", "b/+"))
    assert [topic for topic in ("a", "b/1", "b", "b/1/2", "a/1") if filters.match(topic)] == ["a", "b/1"]


@given(filters(), topics)
@example("$SYS/#", "$SYS/a")
@example("a/#", "a")
@example("/#", "/a")
def test_a_rule_reaches_every_level_above_what_it_matches(rule: str, topic: str) -> None:
    if matches(rule, topic):
        levels = topic.split("/")
        for depth in range(1, len(levels) + 1):
            assert reaches(rule, "/".join(levels[:depth]))


@pytest.mark.parametrize(
    ("rule", "level", "expected"),
    [
        ("a/b/#", "a", True),
        ("a/b/#", "a/b/c/d", True),
        ("a/+/c", "a/b", True),
        ("a/+/c", "a/b/d", False),
        ("a/b", "a/b/c", False),
        ("a/b", "a/b", True),
        ("+/x", "a", True),
        ("+/x", "$SYS", False),
        ("#", "$SYS", False),
        ("$SYS/#", "$SYS", True),
        ("#", "", True),
        ("a", "ab", False),
    ],
)
def test_a_rule_reaches_levels_below_which_it_can_match(rule: str, level: str, expected: bool) -> None:
    assert reaches(rule, level) is expected
