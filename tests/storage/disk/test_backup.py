"""Backups: the epoch of a copy, and cursors from after it was made."""

import asyncio
from pathlib import Path

import pytest

from penstock.common.cursor import Cursor, Position
from penstock.storage.disk.backup import Ending, copy_store, epoch_of_copy
from penstock.storage.disk.log import DiskLog
from penstock.storage.disk.recovery.opening import open_store
from tests.support.clock import ManualClock
from tests.support.data_directories import NOON, SECOND, OpenLog, messages


async def test_a_server_cuts_such_a_cursor_back_as_well(tmp_path: Path) -> None:
    opened = OpenLog(tmp_path / "data")
    await opened.commit(messages("ab"))
    opened.log.close()
    clock = ManualClock(NOON)
    await asyncio.to_thread(_copy_at, tmp_path, clock.wall_us())
    restored = DiskLog(tmp_path / "copy", asyncio.get_running_loop(), clock, node_id="node")
    copy = epoch_of_copy(1, NOON)
    ends = [restored.end_of(epoch) for epoch in (0, 1, 2, copy, copy + 1, copy + 2)]
    restored.close()
    assert ends == [None, 2, 2, 2, 2, None]


def _copy_at(path: Path, wall_us: int) -> None:
    store, _ = open_store(path / "data", read_only=True)
    ending = Ending(last_offset=2, last_commit=2, epoch=epoch_of_copy(1, wall_us))
    copy_store(store, path / "copy", ending, on_damage=lambda error: pytest.fail(str(error)))
    store.close()


def test_no_two_copies_take_the_same_epochs() -> None:
    first = epoch_of_copy(3, NOON)
    assert first > 3
    assert epoch_of_copy(3, NOON + SECOND) == first + 1
    assert epoch_of_copy(first, NOON) == first + 1  # a copy of a copy


def test_the_epoch_of_a_copy_fits_into_a_cursor() -> None:
    position = Position("0123456789abcdef", epoch_of_copy(3, NOON), 1)
    assert Cursor.decode(Cursor((position,)).encode()).positions == (position,)
