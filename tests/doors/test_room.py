"""How many connections all doors may have together."""

import resource

import pytest

from penstock.doors.room import FILES_KEPT_FREE, Room


def test_all_doors_count() -> None:
    room, first, second = Room(3), [1], [1]
    room.add(lambda: len(first))
    room.add(lambda: len(second))
    assert not room.is_full()
    assert room.is_full(coming=1)
    second.append(1)
    assert room.is_full()
    first.clear()
    assert not room.is_full()


@pytest.mark.parametrize(
    ("files", "limit"), [(4_096, 4_096 - FILES_KEPT_FREE), (600, 300), (resource.RLIM_INFINITY, 2_000 - 500)]
)
def test_files_are_left_for_everything_else(monkeypatch: pytest.MonkeyPatch, files: int, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, 2_000 if files < 0 else files))
    assert Room().limit == limit
