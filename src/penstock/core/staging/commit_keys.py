"""Keys of finished stage commits, so that a repeated commit does nothing."""

from msgspec import Struct

from penstock.core.durability.records import (
    RELEASED,
    ReleasedRecord,
)
from penstock.core.node import Node
from penstock.core.runtime.bounded_map import BoundedMap

Key = tuple[str | None, str]
"""Owner of a commit, and the key it chose."""


_SECOND_US = 1_000_000
FORGOTTEN_A_TIME = 2
"""Most keys that are dropped for each new one; there may be too many after the limit was lowered."""
FORGOTTEN_A_SECOND = 1_000
"""Most keys that are dropped in one pass."""


class Finished(Struct, frozen=True, gc=False):
    """A commit that is finished, and the number of its record."""

    number: int
    record: ReleasedRecord


class CommitKeys:
    """Finished commits, oldest first, for a while and up to a number."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._finished: BoundedMap[Key, Finished] = BoundedMap(node.settings.stage.max_keys)

    def find(self, key: Key) -> ReleasedRecord | None:
        """The commit that was made under this key, if it is not too long ago."""
        finished = self._finished.find(key, self._node.clock.monotonic())
        return None if finished is None else finished.record

    def add(self, number: int, record: ReleasedRecord) -> None:
        """Remember a commit whose record is stored."""
        settings = self._node.settings.stage
        age_s = max((self._node.clock.wall_us() - record.finished_at) / _SECOND_US, 0.0)
        now = self._node.clock.monotonic()
        key = record.owner, record.key
        expired = self._finished.pop(key)
        if expired is not None:
            self._delete_record(expired)
        self._finished.limit = settings.max_keys
        self._finished.put(key, Finished(number, record), now + settings.keys_s - age_s)
        self._drop_stale(now, FORGOTTEN_A_TIME)

    def reap(self) -> None:
        """Forget what is old enough or too much."""
        self._finished.limit = self._node.settings.stage.max_keys
        self._drop_stale(self._node.clock.monotonic(), FORGOTTEN_A_SECOND)

    def _drop_stale(self, now: float, most: int) -> None:
        for _, finished in self._finished.take_stale(now, most):
            self._delete_record(finished)

    def _delete_record(self, finished: Finished) -> None:
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
