"""Retained values whose successors are not stored yet.

A publish at QoS 1 or 2 that could not be stored was refused, and so was the value it brought: the one before
it is put back, in memory and in the state store.
"""

from penstock.core.clock import Clock
from penstock.core.ports import Log, Ticket
from penstock.core.recording import Recording
from penstock.core.registry import Registry, Topic
from penstock.core.retained import Retained
from penstock.core.value import Value
from penstock.model import NEVER


class Replaced:
    """Remembers, for each commit under way, the values as they were before it."""

    def __init__(
        self, log: Log, clock: Clock, topics: Registry, retained: Retained, recording: Recording
    ) -> None:
        self._log = log
        self._clock = clock
        self._topics = topics
        self._retained = retained
        self._recording = recording
        self._values: dict[Ticket, dict[Topic, Value | None]] = {}

    def note(self, topic: Topic, qos: int) -> None:
        """A topic is about to get another value, or none. At QoS 0 that is accepted whatever happens."""
        if not self._recording.is_on:
            return
        if qos:
            self._values.setdefault(self._log.ticket, {}).setdefault(topic, topic.retained)
        else:
            for values in self._values.values():
                values.pop(topic, None)

    def forget(self, ticket: Ticket) -> None:
        """A commit was made."""
        self._values.pop(ticket, None)

    def put_back(self) -> None:
        """No commit that is under way will be made."""
        before: dict[Topic, Value | None] = {}
        for values in self._values.values():
            before = values | before  # the first of them came before all the others
        self._values.clear()
        for topic, value in before.items():
            self._topics.setdefault(topic.name, topic)  # it may have been forgotten for lack of a value
            self._put(topic, value)

    def _put(self, topic: Topic, value: Value | None) -> None:
        now = self._clock.monotonic()
        if value is None or NEVER < value.expires_at <= now:
            self._retained.delete(topic)
            self._recording.forget_value(topic.name)
        else:
            self._retained.restore(topic, value)
            left_us = round((value.expires_at - now) * 1_000_000)
            expires_at = self._clock.wall_us() + left_us if value.expires_at else None
            self._recording.save_value(topic.name, value, expires_at)
