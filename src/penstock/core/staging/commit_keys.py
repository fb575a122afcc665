"""Keys of finished stage commits, so that a repeated commit does nothing."""

from collections import OrderedDict

from msgspec import Struct

from penstock.core.durability.records import (
    RELEASED,
    ReleasedRecord,
)
from penstock.core.node import Node

Key = tuple[str | None, str]
"""Owner of a commit, and the key it chose."""


_SECOND_US = 1_000_000
FORGOTTEN_A_TIME = 2
"""Most keys that are dropped for each new one after the limit was lowered."""


class Finished(Struct, frozen=True, gc=False):
    """A commit that is finished, the number of its record, and when it is forgotten."""

    number: int
    record: ReleasedRecord
    expires_at: float


class CommitKeys:
    """Finished commits, oldest first, for a while and up to a number."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._finished: OrderedDict[Key, Finished] = OrderedDict()  # which finds its first at once

    def find(self, key: Key) -> ReleasedRecord | None:
        """The commit that was made under this key, if it is not too long ago."""
        finished = self._finished.get(key)
        if finished is None or finished.expires_at <= self._node.clock.monotonic():
            return None
        return finished.record

    def add(self, number: int, record: ReleasedRecord) -> None:
        """Remember a commit whose record is stored."""
        settings = self._node.settings.stage
        age_s = max((self._node.clock.wall_us() - record.finished_at) / _SECOND_US, 0.0)
        expires_at = self._node.clock.monotonic() + settings.keys_s - age_s
        key = record.owner, record.key
        if key in self._finished:  # its time was over
            self._forget(key)
        self._finished[key] = Finished(number, record, expires_at)
        for _ in range(min(FORGOTTEN_A_TIME, len(self._finished) - settings.max_keys)):
            self._forget(next(iter(self._finished)))

    def reap(self) -> None:
        """Forget what is old enough."""
        now = self._node.clock.monotonic()
        while self._finished:
            key, oldest = next(iter(self._finished.items()))
            if oldest.expires_at > now:
                break
            self._forget(key)

    def _forget(self, key: Key) -> None:
        finished = self._finished.pop(key)
        self._node.recorder.delete(RELEASED, str(finished.number))

    def restore(self) -> list[int]:
        """Recover the keys of finished commits; return their record numbers."""
        found: list[tuple[int, ReleasedRecord]] = []
        for number, record in self._node.state.scan(RELEASED):
            assert isinstance(record, ReleasedRecord)
            found.append((int(number), record))
        for each in sorted(found, key=_finished_at):
            self.add(*each)
        return [number for number, _ in found]


def _finished_at(finished: tuple[int, ReleasedRecord]) -> int:
    return finished[1].finished_at
