"""What the log in memory owes beside its contract: it gives its memory back at once."""

import pytest

from penstock.core.ring import RUN_BYTES
from penstock.storage.memory import MemoryLog
from penstock.testing import make_run


def append(log: MemoryLog, offset: int, size: int) -> None:
    log.append(make_run("a", bytes(size), sequence=offset, offset=offset))


def test_runs_that_left_hold_no_memory_though_their_places_are_removed_in_steps() -> None:
    log = MemoryLog(100_000)
    for offset in range(1, 1_500):
        append(log, offset, 10_000)
        assert sum(len(run.slab) for run in log._runs) <= 100_000


def test_the_places_of_runs_that_left_are_removed_too() -> None:
    log = MemoryLog(10 * (RUN_BYTES + 10))
    for offset in range(1, 10_000):
        append(log, offset, 10)
    assert len(log._runs) < 3_000
    assert [run.offset for run in log.read(0, 10_000).runs] == list(range(9_990, 10_000))


@pytest.mark.parametrize("limit_bytes", [0, 1, RUN_BYTES])
def test_a_log_without_room_keeps_nothing_and_says_so(limit_bytes: int) -> None:
    log = MemoryLog(limit_bytes)
    append(log, 5, 1)
    assert log.read(0, 1_000).runs == ()
    assert log.first_offset == 6


def test_everything_is_committed_at_once() -> None:
    log = MemoryLog(1_000)
    assert log.committed(log.append(make_run("a", b"x", offset=1))) is None
