"""What several workers share is built once, and complete."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.builds import build_once


def test_workers_at_the_same_time_build_once(tmp_path: Path) -> None:
    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "first").touch()
        time.sleep(0.05)
        (folder / "second").touch()

    def files(_: int) -> set[str]:
        return {file.name for file in build_once(tmp_path / "program", build).iterdir()}

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(files, range(4))) == [{"first", "second"}] * 4
    assert len(built) == 1


def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        build_once(tmp_path / "program", fail)
    assert [file.name for file in tmp_path.iterdir()] == ["program.lock"]
    made = build_once(tmp_path / "program", lambda folder: (folder / "whole").touch())
    assert [file.name for file in made.iterdir()] == ["whole"]
