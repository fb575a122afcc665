"""Topic names and filters: validation, matching and covering by MQTT's rules.

All doors share these rules. The checks take text from outside; matching and covering expect checked text, and
the inner filter of a shared one. Rights are decided elsewhere.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from penstock.errors import InvalidFilter, InvalidTopic, PenstockError


class TopicLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of topics and filters: length, depth, and number of topics."""

    max_bytes: Annotated[int, Meta(ge=1, le=65535)] = 4096
    """Longest topic or filter, in bytes of UTF-8."""
    max_levels: Annotated[int, Meta(ge=1, le=65535)] = 128
    """Most levels of a topic or filter, counted between slashes."""
    max_topics: Annotated[int, Meta(ge=1)] = 1_000_000
    """Most topics that are known at the same time."""


SEPARATOR = "/"
ONE_LEVEL = "+"
ALL_LEVELS = "#"
WILDCARDS = (ONE_LEVEL, ALL_LEVELS)
SHARE_PREFIX = "$share/"
INSIGHTS_PREFIX = "$penstock/insights/"
"""Prefix of topics for insights about the server, published by clients with that right."""
BRIDGE_STATE = ("$SYS/broker/connection/", "/state")
"""Beginning and end of the topics where bridges of other brokers publish 1 or 0: connected or not."""

# The empty name is no topic, so these two match only names that are one level longer than they promise.
_SAME_BUT_LONGER = {"#": "+/#", "/#": "/+/#"}


def check_topic(topic: str, limits: TopicLimits) -> None:
    """Validate the name of a topic.

    Raises:
        InvalidTopic: it is empty, too long or too deep, holds a wildcard or is not proper text.
    """
    _check_text(topic, limits, "topic", InvalidTopic)
    if is_wildcard(topic):  # MQTT-3.3.2-2
        raise InvalidTopic("a topic holds no + or #: these belong into filters")
    _check_levels(topic, limits, "topic", InvalidTopic)


def is_reserved(topic: str) -> bool:
    """Return whether a topic is the server's own: no client may publish to it."""
    return topic.startswith("$") and not (topic.startswith(INSIGHTS_PREFIX) or is_bridge_state(topic))


def is_bridge_state(topic: str) -> bool:
    """Return whether a topic carries the state of a bridge, as bridges of mosquitto publish it."""
    return topic.startswith(BRIDGE_STATE[0]) and topic.endswith(BRIDGE_STATE[1])


def check_filter(filter: str, limits: TopicLimits) -> None:
    """Validate a filter; shared filters are checked in all their parts.

    Raises:
        InvalidFilter: it is empty, too long or too deep, is not proper text, or a wildcard or the
            name of a shared group is misplaced.
    """
    _check_text(filter, limits, "filter", InvalidFilter)
    if filter.startswith(SHARE_PREFIX):
        _check_share(filter)
    _, inner = split_share(filter)
    _check_levels(inner, limits, "filter", InvalidFilter)
    if is_wildcard(inner):
        _check_wildcards(inner)


def split_share(filter: str) -> tuple[str | None, str]:
    """Take a shared filter apart into its group and its inner filter; any other has the group None."""
    if not filter.startswith(SHARE_PREFIX):
        return None, filter
    group, _, inner = filter[len(SHARE_PREFIX) :].partition(SEPARATOR)
    return group, inner


def is_wildcard(filter: str) -> bool:
    """Return whether a filter can match more than one topic."""
    return ONE_LEVEL in filter or ALL_LEVELS in filter


def matches(filter: str, topic: str) -> bool:
    """Return whether a filter matches a topic."""
    if topic.startswith("$") and filter.startswith(WILDCARDS):  # MQTT-4.7.2-1
        return False
    return _includes(filter, topic.split(SEPARATOR), is_open=False)


class FilterSet:
    """Set of filters, for many questions whether one of them matches a topic."""

    __slots__ = ("names", "wildcards")

    def __init__(self, filters: Iterable[str]) -> None:
        filters = tuple(filters)
        self.names = frozenset(filter for filter in filters if not is_wildcard(filter))
        self.wildcards = tuple(filter for filter in filters if is_wildcard(filter))

    def match(self, topic: str) -> bool:
        """Return whether one of the filters matches a topic."""
        return topic in self.names or any(matches(filter, topic) for filter in self.wildcards)


def covers(rule: str, filter: str) -> bool:
    """Return whether a rule, itself a filter, matches every topic that a filter matches."""
    if filter.startswith("$") and rule.startswith(WILDCARDS):  # MQTT-4.7.2-1
        return False
    levels = _SAME_BUT_LONGER.get(filter, filter).split(SEPARATOR)
    is_open = levels[-1] == ALL_LEVELS
    if is_open:
        levels.pop()
    return _includes(rule, levels, is_open)


def reaches(rule: str, level: str) -> bool:
    """Return whether a rule, itself a filter, can match a topic at or below a level."""
    if level.startswith("$") and rule.startswith(WILDCARDS):  # MQTT-4.7.2-1
        return False
    allowed, levels = rule.split(SEPARATOR), level.split(SEPARATOR)
    for want, have in zip(allowed, levels, strict=False):
        if want == ALL_LEVELS:
            return True
        if want not in (ONE_LEVEL, have):
            return False
    return len(allowed) >= len(levels)


def _includes(rule: str, levels: list[str], is_open: bool) -> bool:
    """Compare level by level; open levels are those that any others may follow."""
    allowed = rule.split(SEPARATOR)
    if allowed[-1] == ALL_LEVELS:
        allowed.pop()  # what is left is the parent, which `#` matches as well
        if len(levels) < len(allowed):
            return False
    elif is_open or len(levels) != len(allowed):
        return False
    return all(want in (ONE_LEVEL, level) for want, level in zip(allowed, levels, strict=False))


def _check_text(text: str, limits: TopicLimits, noun: str, error: type[PenstockError]) -> None:
    if not text:  # MQTT-4.7.3-1
        raise error(f"a {noun} has at least one character")
    if "\0" in text:  # MQTT-4.7.3-2
        raise error(f"a {noun} holds no null character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can smuggle in
        raise error(f"this {noun} cannot be written as UTF-8") from None
    if size > limits.max_bytes:
        raise error(f"this {noun} has {size} bytes and {limits.max_bytes} are allowed")


def _check_levels(text: str, limits: TopicLimits, noun: str, error: type[PenstockError]) -> None:
    levels = text.count(SEPARATOR) + 1
    if levels > limits.max_levels:
        raise error(f"this {noun} has {levels} levels and {limits.max_levels} are allowed")


def _check_share(filter: str) -> None:
    group, inner = split_share(filter)
    if not group or is_wildcard(group):  # MQTT-4.8.2-1, MQTT-4.8.2-2
        raise InvalidFilter("the group of a shared filter has a name without + and #")
    if not inner:
        raise InvalidFilter("a shared filter is $share/, a group, / and a filter")


def _check_wildcards(filter: str) -> None:
    levels = filter.split(SEPARATOR)
    if ALL_LEVELS in levels[:-1]:  # MQTT-4.7.1-1
        raise InvalidFilter("# stands only in the last level of a filter")
    for level in levels:
        if level not in WILDCARDS and is_wildcard(level):  # MQTT-4.7.1-1, MQTT-4.7.1-2
            raise InvalidFilter("a wildcard stands alone in its level")
