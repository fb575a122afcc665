"""What the system says of this process."""

import os
from pathlib import Path

import pytest

from penstock.telemetry import process
from penstock.telemetry.process import look


def test_an_open_file_is_counted(tmp_path: Path) -> None:
    before = look().open_files
    if before is None:
        pytest.skip("there is no /proc")
    with (tmp_path / "file").open("w"):
        assert look().open_files == before + 1


def test_memory_and_time_that_are_used_are_told() -> None:
    before = look()
    data = bytearray(64 * 1024 * 1024)
    for place in range(0, len(data), os.sysconf("SC_PAGE_SIZE")):
        data[place] = 1
    after = look()
    assert after.cpu_s > before.cpu_s
    if before.resident_bytes is not None and after.resident_bytes is not None:
        assert after.resident_bytes - before.resident_bytes > 32 * 1024 * 1024


def test_a_system_that_cannot_tell_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "STATM", tmp_path / "statm")
    monkeypatch.setattr(process, "FILES", tmp_path / "fd")
    assert (look().resident_bytes, look().open_files) == (None, None)
