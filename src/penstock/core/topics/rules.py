"""Rules of a topic, as the settings give them: ring, lifetime, policy, batching, capture."""

from typing import Any, final

from penstock.common.topics import matches
from penstock.core.settings import CoreSettings, TopicRule
from penstock.model import Policy
from penstock.runs import NEVER


@final
class TopicRules:
    """Rules of a topic, which nothing changes. Topics that match the same settings share one object.

    Plain rules have neither lifetime nor batching: a plain message needs only ring, log and audience.
    """

    __slots__ = (
        "batch_size",
        "batch_timeout",
        "is_kept",
        "is_plain",
        "policy",
        "ring_bytes",
        "ring_messages",
        "ttl",
    )

    def __init__(
        self,
        ring_messages: int,
        ring_bytes: int,
        ttl: float,
        policy: Policy | None,
        batch_size: int,
        batch_timeout: float,
        is_kept: bool,
    ) -> None:
        self.ring_messages = ring_messages
        self.ring_bytes = ring_bytes
        self.ttl = ttl
        self.policy = policy
        self.batch_size = batch_size
        self.batch_timeout = batch_timeout
        self.is_kept = is_kept
        self.is_plain = not (ttl or batch_size)

    @property
    def has_ring(self) -> bool:
        """The topic keeps its last messages."""
        return bool(self.ring_messages and self.ring_bytes)


class RuleTable:
    """Finds the rules of topics by name, under one set of settings."""

    def __init__(self, settings: CoreSettings) -> None:
        self._settings = settings
        self._rules: dict[tuple[int, ...], TopicRules] = {}
        self._keeps_public = "#" in settings.log.capture

    def find(self, name: str) -> TopicRules:
        """The rules of a topic; one object for all topics that match the same settings."""
        every, capture = self._settings.topics, self._settings.log.capture
        matching = tuple([number for number, rule in enumerate(every) if matches(rule.filter, name)])
        is_kept = self._keeps_public and name[:1] != "$"  # MQTT-4.7.2-1
        is_kept = is_kept or any(matches(filter, name) for filter in capture)
        key = (*matching, int(is_kept))
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = self._combine([every[n] for n in matching], is_kept)
        return rules

    def _combine(self, rules: list[TopicRule], is_kept: bool) -> TopicRules:
        def first(field: str, default: Any) -> Any:
            values = [getattr(rule, field) for rule in rules]
            return next((value for value in values if value is not None), default)

        ring = self._settings.ring
        ttl = first("ttl_ms", self._settings.default_ttl_ms) / 1000 or NEVER
        batch_size = first("batch_size", 0)
        return TopicRules(
            first("ring_messages", ring.messages),
            first("ring_bytes", ring.topic_bytes),
            ttl,
            first("policy", None),
            batch_size,
            first("batch_timeout_ms", 0) / 1000,
            is_kept,
        )


def rules_differ(before: CoreSettings, after: CoreSettings) -> bool:
    """Return whether a change of settings may change the rules of any topic."""
    return (before.topics, before.ring, before.default_ttl_ms) != (
        after.topics,
        after.ring,
        after.default_ttl_ms,
    )
