"""Retained values that a new subscription still has to get.

They are looked up while they are sent, a share in each turn of the loop, so that many values cannot stall
other clients. Values published after the subscription arrive live and are skipped here.
"""

from collections.abc import Iterator

from penstock.core.ports.connection import Encoding
from penstock.core.topics.retained import VAIN_NODES
from penstock.core.topics.retained_value import RetainedValue
from penstock.core.topics.topic import Topic
from penstock.model import Door
from penstock.runs import Run

Sendable = tuple[Run, Encoding]
"""A value as a message, with the encoding that it is sent in."""


class Backlog:
    """The retained values of one subscription, from the next one on.

    `topics` are those that match, with None for every `VAIN_NODES` that were looked at in vain; `head` is
    the offset of the last message before the subscription. `sent_topics` are those whose values other
    filters of the same request have sent; those that are sent here are added.
    """

    __slots__ = ("_client_id", "_door", "_sent_topics", "_topics", "encoding", "head", "is_finished")

    def __init__(
        self,
        topics: Iterator[Topic | None],
        encoding: Encoding,
        head: int,
        client_id: str,
        door: Door,
        *,
        sent_topics: set[str] | None = None,
    ) -> None:
        self._topics = topics
        self.head = head
        self._client_id = client_id
        self._door = door
        self._sent_topics = sent_topics
        self.encoding = encoding
        self.is_finished = False

    def take(self, limit_bytes: int, steps: int, now: float) -> tuple[list[Sendable], int]:
        """The next values, up to about `limit_bytes`, and how many of the steps are left.

        A step is a value found or a node looked at in vain. The last look may take more than is left.
        """
        taken: list[Sendable] = []
        size = 0
        while steps > 0 and size < limit_bytes:
            try:
                topic = next(self._topics)
            except StopIteration:
                self.is_finished = True
                return taken, steps - 1
            steps -= VAIN_NODES if topic is None else 1
            if topic is None or topic.retained is None or not self._is_wanted(topic.retained, now):
                continue
            if self._is_sent(topic.name):
                continue
            run = topic.retained.run(topic.name)
            taken.append((run, self.encoding))
            size += len(run.slab)
        return taken, steps

    def _is_sent(self, name: str) -> bool:
        """Return whether another filter has sent the value of a topic, and mark it as sent."""
        if self._sent_topics is None:
            return False
        known = len(self._sent_topics)
        self._sent_topics.add(name)
        return len(self._sent_topics) == known

    def _is_wanted(self, value: RetainedValue, now: float) -> bool:
        if value.offset > self.head or value.is_expired(now):
            return False
        is_own = value.client_id == self._client_id and value.shape.door is self._door
        return not (self.encoding.no_local and is_own)  # MQTT-3.8.3-3


def take_from(
    backlogs: dict[str, Backlog], limit_bytes: int, steps: int, now: float
) -> tuple[list[Sendable], int]:
    """The next values of one backlog after the other, and how many of the steps are left.

    Finished ones are removed. No values while there are steps left means that all are finished.
    """
    entries: list[Sendable] = []
    finished: list[str] = []
    for filter, backlog in backlogs.items():
        taken, steps = backlog.take(limit_bytes, steps, now)
        entries += taken
        limit_bytes -= sum(len(run.slab) for run, _ in taken)
        if not backlog.is_finished:
            break
        finished.append(filter)
    for filter in finished:
        del backlogs[filter]
    return entries, steps
