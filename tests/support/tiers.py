"""Test tiers: fast tests start nothing but Python; system tests may start other programs, or take long.

`make test-fast` runs the first tier, `make test` both. A test is in the system tier if its folder, one of its
fixtures or the marker `system` says so.
"""

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

FAST = frozenset(
    {
        "app",
        "cli",
        "client",
        "cluster",
        "common",
        "conformance",
        "contract",
        "core",
        "doors",
        "lake",
        "net",
        "storage",
        "support",
        "telemetry",
        "test_config.py",
        "test_contributing.py",
        "test_extras.py",
        "testing",
        "wire",
    }
)
SYSTEM = frozenset(
    {
        "access",
        "bench",
        "browser",
        "compat",
        "console",
        "dashboard",
        "deploy",
        "e2e",
        "examples",
        "faults",
        "fuzz",
        "spark",
        "test_build.py",
        "test_docs.py",
        "test_site.py",
        "test_snippets.py",
        "test_tutorial.py",
    }
)
TOGETHER = frozenset({"browser", "console", "dashboard", "spark"})
"""Folders whose tests share a JVM or a browser: one worker has them all, or several starve one another."""
SYSTEM_FIXTURES = frozenset({"small_disk"})
"""Fixtures that make their tests part of the system tier; `small_disk` mounts a file system."""
LONG = (
    "spark",
    "dashboard",
    "faults",
    "deploy",
    "browser",
    "console",
    "examples",
    "compat",
    "access",
    "bench",
    "e2e",
)
"""Groups and folders with the longest tests, longest first."""


def is_system(folder: str, fixtures: Collection[str], *, is_marked: bool) -> bool:
    """The test is in the system tier.

    Args:
        folder: first part of the path below `tests`.
    """
    return is_marked or folder in SYSTEM or not SYSTEM_FIXTURES.isdisjoint(fixtures)


def group_of(file: str) -> str:
    """Group of a file below `tests`: a folder, or the file itself."""
    folder = file.split("/", 1)[0]
    return folder if folder in TOGETHER else file


def rank(group: str) -> int:
    """Sort key: long groups first, so that none is left for the end, when other workers are idle."""
    folder = group.split("/", 1)[0]
    return LONG.index(folder) if folder in LONG else len(LONG)


class GroupScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Scheduler of xdist: all tests of a group run in one worker, and share fixtures there.

    xdist's own groups are a suffix of the node id, which it cannot change in every version of pytest; then
    it silently spreads tests one by one, and every worker starts every server, JVM and browser.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.split("::", 1)[0].removeprefix("tests/"))


class ForeignPrograms:
    """Audit hook: a fast test fails if it starts a program that is not Python."""

    ALLOWED = frozenset({"penstock", "bash", "sh"})

    def __init__(self) -> None:
        self.test: str | None = None
        """The fast test that runs now."""
        sys.addaudithook(self._check)

    def _check(self, event: str, arguments: Sequence[object]) -> None:
        if event != "subprocess.Popen" or self.test is None:
            return
        executable, words = arguments[:2]
        first = executable or (words if isinstance(words, (str, bytes, os.PathLike)) else words[0])  # type: ignore[index]
        name = Path(os.fsdecode(first)).name  # type: ignore[arg-type]
        if name not in self.ALLOWED and not name.startswith("python"):
            raise AssertionError(f"{self.test} starts {name}: mark it with pytest.mark.system")
