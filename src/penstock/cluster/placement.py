"""Placement: the shard of a topic, of a client, and those that a subscription concerns.

A shard is computed from a partition key, so there is no registry that could be stale. The formula and the
number of shards are for life: another result would separate a topic from its log.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from msgspec import Struct

from penstock.common.cursor import MAX_SHARDS
from penstock.common.topics import (
    ALL_LEVELS,
    ONE_LEVEL,
    SEPARATOR,
    SHARE_PREFIX,
    WILDCARDS,
    TopicLimits,
    check_filter,
    check_topic,
    covers,
    is_wildcard,
    matches,
    split_share,
)
from penstock.errors import InvalidConfig, PenstockError

ID = "{id}"
"""Stands for a part of the client id, in both texts of a client key."""
SYS = "$SYS"
"""Partition key of all topics of statistics: one shard publishes them, and `$SYS/#` concerns that one."""
CLIENT_PREFIX = "client "
"""Before the id of a client that no client key matches."""


class TopicKey(Struct, frozen=True, forbid_unknown_fields=True):
    """Rule for the partition key of topics: the leading levels of those that the filter matches.

    A topic with fewer levels is its own key.
    """

    filter: str
    levels: int


class ClientKey(Struct, frozen=True, forbid_unknown_fields=True):
    """Rule for the partition key of clients: that of topics, so that a device is at home with its topics."""

    clients: str
    """Pattern of client ids; `{id}` matches one or more characters: `sensor-{id}`."""
    topic_key: str
    """Partition key with what `{id}` matched: `device/{id}`."""


class Placement:
    """Placement of topics and clients on a fixed number of shards.

    Results depend on the arguments alone, and are the same in every process and version. Names, filters and
    ids are expected checked, as doors check them.

    Raises:
        InvalidConfig: a number or rule that is not valid; the text names it by its setting.
    """

    __slots__ = ("_all", "_client_keys", "_topic_keys", "shards")

    def __init__(
        self, shards: int, topic_keys: Iterable[TopicKey] = (), client_keys: Iterable[ClientKey] = ()
    ) -> None:
        if not 1 <= shards <= MAX_SHARDS:
            raise InvalidConfig(f"cluster.shards: {shards} is not a number from 1 to {MAX_SHARDS}")
        self.shards = shards
        self._topic_keys = tuple(topic_keys)
        self._client_keys = [_AffixPattern(key) for key in _checked_client_keys(tuple(client_keys))]
        self._all = frozenset(range(shards))
        _check_topic_keys(self._topic_keys)

    def place(self, key: str) -> int:
        """The shard of a partition key."""
        return int.from_bytes(sha256(key.encode()).digest()[:8]) % self.shards

    def shard_of_topic(self, topic: str) -> int:
        """The shard that has the log of a topic."""
        return self.place(self.topic_key(topic))

    def shard_of_client(self, client_id: str) -> int:
        """The home shard of a client, which has its session."""
        return self.place(self.client_key(client_id))

    def shards_of_filter(self, filter: str) -> frozenset[int]:
        """Shards whose topics a filter can match: one or a few if the keys are fixed, else all.

        The group of a shared filter makes no difference.
        """
        _, inner = split_share(filter)
        if not is_wildcard(inner):
            return frozenset((self.shard_of_topic(inner),))
        if inner.startswith(SYS + SEPARATOR):
            return frozenset((self.place(SYS),))
        found: set[int] = set()
        for rule in self._topic_keys:
            if not _overlap(rule.filter, inner):
                continue
            key = _fixed_key(inner, rule.levels)
            if key is None:
                return self._all
            found.add(self.place(key))
            if covers(rule.filter, inner):
                return frozenset(found)
        return self._all  # of what is left, each name is a key of its own

    def topic_key(self, topic: str) -> str:
        """The partition key of a topic: that of the first rule that matches it, or its name."""
        if topic == SYS or topic.startswith(SYS + SEPARATOR):
            return SYS
        for rule in self._topic_keys:
            if matches(rule.filter, topic):
                return SEPARATOR.join(topic.split(SEPARATOR, rule.levels)[: rule.levels])
        return topic

    def client_key(self, client_id: str) -> str:
        """The partition key of a client: that of the first rule that matches its id, or one of its own."""
        for pattern in self._client_keys:
            part = pattern.match(client_id)
            if part is not None:
                return pattern.topic_key.replace(ID, part)
        return CLIENT_PREFIX + client_id


class _AffixPattern:
    """Pattern of a client key, taken apart."""

    __slots__ = ("_prefix", "_suffix", "topic_key")

    def __init__(self, key: ClientKey) -> None:
        self._prefix, _, self._suffix = key.clients.partition(ID)
        self.topic_key = key.topic_key

    def match(self, client_id: str) -> str | None:
        """The part of an id that stands for `{id}`, or None."""
        prefix, suffix = self._prefix, self._suffix
        if len(client_id) <= len(prefix) + len(suffix):
            return None
        if not (client_id.startswith(prefix) and client_id.endswith(suffix)):
            return None
        return client_id[len(prefix) : len(client_id) - len(suffix)]


def _fixed_key(filter: str, levels: int) -> str | None:
    """The key that a rule gives to every topic of a wildcard filter, or None if it gives several."""
    leading = filter.split(SEPARATOR)[:levels]
    if len(leading) < levels or any(level in WILDCARDS for level in leading):
        return None
    return SEPARATOR.join(leading)


def _overlap(rule: str, filter: str) -> bool:
    """Return whether there can be a topic that both filters match."""
    for one, other in ((rule, filter), (filter, rule)):
        if one.startswith("$") and other.startswith(WILDCARDS):  # MQTT-4.7.2-1
            return False
    left, right = rule.split(SEPARATOR), filter.split(SEPARATOR)
    for want, have in zip(left, right, strict=False):
        if ALL_LEVELS in (want, have):
            return True
        if want != have and ONE_LEVEL not in (want, have):
            return False
    return len(left) == len(right) or _ends_openly(left, right)


def _ends_openly(left: list[str], right: list[str]) -> bool:
    """Return whether the longer one is the shorter one and `#`, which matches the parent as well."""
    shorter, longer = sorted((left, right), key=len)
    return len(longer) == len(shorter) + 1 and longer[-1] == ALL_LEVELS


# Checks of the rules


def _check_topic_keys(rules: Sequence[TopicKey]) -> None:
    for index, rule in enumerate(rules):
        name = f"cluster.topic_keys[{index}]"
        _check_topic_key(name, rule)
        for before, earlier in enumerate(rules[:index]):
            if covers(earlier.filter, rule.filter):
                raise InvalidConfig(
                    f"{name}.filter: {rule.filter} never applies, because cluster.topic_keys[{before}] "
                    f"({earlier.filter}) matches its topics first; put the narrower rule first"
                )


def _check_topic_key(name: str, rule: TopicKey) -> None:
    _check(f"{name}.filter", rule.filter, check_filter)
    if rule.filter.startswith(SHARE_PREFIX):
        raise InvalidConfig(
            f"{name}.filter: {rule.filter} is a shared filter; give the filter without its group"
        )
    if rule.filter.split(SEPARATOR, 1)[0] == SYS:
        raise InvalidConfig(f"{name}.filter: {rule.filter} is about $SYS, which has one key: {SYS}")
    levels = rule.filter.split(SEPARATOR)
    most = TopicLimits().max_levels if levels[-1] == ALL_LEVELS else len(levels)
    if not 1 <= rule.levels <= most:
        raise InvalidConfig(
            f"{name}.levels: {rule.levels} is not a number from 1 to {most}, the levels that topics of "
            f"{rule.filter} can have"
        )


def _checked_client_keys(rules: Sequence[ClientKey]) -> Sequence[ClientKey]:
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        name = f"cluster.client_keys[{index}]"
        for field, text in (("clients", rule.clients), ("topic_key", rule.topic_key)):
            rest = text.replace(ID, "", 1)
            if rest == text or "{" in rest or "}" in rest:
                raise InvalidConfig(f"{name}.{field}: {text!r} has to contain {ID} once, and no other braces")
        _check(f"{name}.topic_key", rule.topic_key.replace(ID, "1"), check_topic)
        if rule.clients in seen:
            raise InvalidConfig(
                f"{name}.clients: {rule.clients!r} never applies, because an earlier rule has it"
            )
        seen.add(rule.clients)
    return rules


def _check(name: str, text: str, check: Callable[[str, TopicLimits], None]) -> None:
    try:
        check(text, TopicLimits())
    except PenstockError as error:
        raise InvalidConfig(f"{name}: {error}") from None
