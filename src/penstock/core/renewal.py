"""What new settings mean for the topics that are known: each gets its rules anew, a few in each step.

There may be a million of them, and nobody is to wait for all. A topic that is made meanwhile has the new
rules already.
"""

from penstock.core.registry import Registry
from penstock.core.settings import CoreSettings

TOPICS_A_STEP = 200


class Renewal:
    """Goes through all topics once."""

    def __init__(self, topics: Registry) -> None:
        self._topics = topics
        self._left = [*topics.values(), *topics.expected.values()]

    def step(self) -> bool:
        """Renew some topics; of those that were deleted meanwhile nobody asks for the rules."""
        some = self._left[-TOPICS_A_STEP:]
        del self._left[-TOPICS_A_STEP:]
        for topic in some:
            if topic is self._topics.find(topic.name):
                self._topics.renew(topic)
        return bool(self._left)


def traits_differ(before: CoreSettings, after: CoreSettings) -> bool:
    """Whether some topic may have other rules by these settings than by those."""
    return (before.topics, before.ring, before.default_ttl_ms) != (
        after.topics,
        after.ring,
        after.default_ttl_ms,
    )
