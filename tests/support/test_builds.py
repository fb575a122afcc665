"""Artifacts that several workers share are built or fetched once, and appear complete."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import artifacts
from bench.artifacts import build_once
from tests.support import builds
from tests.support.builds import npm_install
from tests.support.test_guard import is_alive
from tests.support.waiting import until

WORKER = """
import runpy, sys, time
from pathlib import Path

module, folder, pause_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])

def build(unfinished):
    (unfinished / "first").touch()
    print("building", flush=True)
    time.sleep(pause_s)
    (unfinished / "second").touch()

made = runpy.run_path(module)["build_once"](folder, build)
print(*sorted(file.name for file in made.iterdir()))
"""
NPM = """#!/bin/sh
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/half"
echo "$3" >> "$ATTEMPTS"
[ "$(wc -l < "$ATTEMPTS")" -ge "$SUCCEEDS_AT" ] || { echo no network >&2; exit 1; }
mkdir "$2/node_modules/whole"
"""


def start_worker(folder: Path, pause_s: float) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", WORKER, str(artifacts.__file__), str(folder), str(pause_s)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_processes_at_the_same_time_build_once(tmp_path: Path) -> None:
    workers = [start_worker(tmp_path / "program", 0.1) for _ in range(3)]
    printed = sorted(worker.communicate(timeout=60)[0] for worker in workers)
    assert printed == ["building\nfirst second\n", "first second\n", "first second\n"]
    assert {file.name for file in tmp_path.iterdir()} == {"program", "program.lock"}


def test_a_killed_build_leaves_no_folder_and_the_next_one_removes_its_rest(tmp_path: Path) -> None:
    with start_worker(tmp_path / "program", 600) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "building\n"
        worker.kill()
    assert not (tmp_path / "program").exists()
    made = build_once(tmp_path / "program", lambda folder: (folder / "whole").touch())
    assert [file.name for file in made.iterdir()] == ["whole"]
    assert {file.name for file in tmp_path.iterdir()} == {"program", "program.lock"}


def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        build_once(tmp_path / "program", fail)
    assert [file.name for file in tmp_path.iterdir()] == ["program.lock"]
    made = build_once(tmp_path / "program", lambda folder: (folder / "whole").touch())
    assert [file.name for file in made.iterdir()] == ["whole"]


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Attempts of an npm that fails until the one of `SUCCEEDS_AT`; the cache is empty."""
    for tool in ("npm", "node"):
        (tmp_path / tool).write_text(NPM, encoding="utf-8")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    monkeypatch.setattr(builds, "CACHE", tmp_path / "cache")
    return tmp_path / "attempts"


@pytest.mark.system
def test_a_failed_fetch_is_repeated_and_fetched_packages_stay(
    attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUCCEEDS_AT", "2")
    folder = npm_install("@some/package@1.2.3")
    assert folder.name == "npm-@some-package@1.2.3"
    assert {file.name for file in (folder / "node_modules").iterdir()} == {"half", "whole"}
    assert npm_install("@some/package@1.2.3") == folder
    assert attempts.read_text(encoding="utf-8").split() == ["@some/package@1.2.3"] * 2


@pytest.mark.system
def test_a_fetch_that_never_succeeds_skips_its_test_and_leaves_nothing(
    attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUCCEEDS_AT", "9")
    with pytest.raises(pytest.skip.Exception, match="some@1 cannot be fetched: npm ended with 1: no network"):
        npm_install("some@1")
    assert len(attempts.read_text(encoding="utf-8").split()) == builds.FETCHES
    assert [file.name for file in builds.CACHE.iterdir()] == ["npm-some@1.lock"]


async def test_a_fetch_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    with pytest.raises(artifacts.FetchError, match="more than 2 s"):
        artifacts.run_command(2, "sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    pid = int((tmp_path / "pid").read_text(encoding="ascii"))
    await until(lambda: not is_alive(pid), "the child of the fetch still runs")
