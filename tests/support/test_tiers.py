"""Every test is in one tier, and fast tests start nothing but Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiers import (
    FAST,
    LONG,
    SYSTEM,
    SYSTEM_FIXTURES,
    ForeignPrograms,
    group_of,
    is_system,
    rank,
)

TESTS = Path(__file__).parents[1]


def test_every_folder_and_file_is_in_one_tier() -> None:
    found = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    found |= {path.name for path in TESTS.glob("test_*.py")}
    assert found == FAST | SYSTEM
    assert not FAST & SYSTEM


def test_folders_fixtures_and_markers_make_a_system_test() -> None:
    assert not is_system("core", ["tmp_path"], is_marked=False)
    assert is_system("core", ["tmp_path"], is_marked=True)
    assert is_system("faults", [], is_marked=False)
    assert all(is_system("cli", [fixture], is_marked=False) for fixture in SYSTEM_FIXTURES)


def test_tests_share_a_worker_by_folder_or_by_file() -> None:
    assert group_of("core/test_model.py") == "core/test_model.py"
    assert group_of("spark/source/test_planner.py") == "spark"
    assert group_of("dashboard/test_pages.py") == "dashboard"


@pytest.mark.system
def test_one_worker_has_all_tests_of_a_file() -> None:
    files = ["tests/support/test_clock.py", "tests/support/test_disk.py"]
    words = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist", "loadfile", *files]
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        words, cwd=TESTS.parent, env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout
    workers = set(re.findall(r"\[(gw\d)\] .*PASSED tests/support/(test_\w+)\.py::", ended.stdout))
    assert sorted(file for _, file in workers) == ["test_clock", "test_disk"]


def test_long_groups_are_first() -> None:
    groups = ["core/test_model.py", "browser", "spark/test_session.py", "dashboard", "spark"]
    assert sorted(groups, key=rank) == [
        "spark/test_session.py",
        "spark",
        "dashboard",
        "browser",
        "core/test_model.py",
    ]
    assert set(LONG) <= SYSTEM


def test_a_fast_test_cannot_start_a_foreign_program(request: pytest.FixtureRequest) -> None:
    watching = ForeignPrograms()
    watching.test = request.node.nodeid
    try:
        with pytest.raises(AssertionError, match="starts true: mark it"):
            subprocess.run(["/bin/true"], check=True)
        with pytest.raises(AssertionError, match="starts true: mark it"):
            subprocess.run("true", executable="/bin/true", check=True)
        subprocess.run([sys.executable, "-c", ""], check=True)
    finally:
        watching.test = None


def test_this_run_watches_its_fast_tests() -> None:
    with pytest.raises(AssertionError, match="test_this_run_watches_its_fast_tests starts true"):
        subprocess.run(["/bin/true"], check=True)
