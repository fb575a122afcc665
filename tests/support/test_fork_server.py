"""Fork server: forks are children of the caller, with their own words, variables and output."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import IS_SUPPORTED, ForkedProcess, ForkServer
from tests.support.servers import bare_environment, start

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="needs Linux")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    forks = ForkServer()
    yield forks
    forks.close()


def test_forks_have_words_and_output_of_their_own_and_an_exit_code(forks: ForkServer, tmp_path: Path) -> None:
    good = forks.fork(["--version"], bare_environment(), tmp_path / "out", tmp_path / "err")
    assert (good.wait(60), (tmp_path / "err").read_text()) == (0, "")
    assert (tmp_path / "out").read_text().startswith("penstock ")
    bad = forks.fork(["serve", "--no-such-flag"], bare_environment(), tmp_path / "out", tmp_path / "err")
    assert bad.wait(60) == 2
    assert "--no-such-flag" in (tmp_path / "err").read_text()


def test_a_forked_server_is_a_child_and_obeys_signals(forks: ForkServer, tmp_path: Path) -> None:
    server = start(tmp_path, {}, (), {}, forks)
    assert isinstance(server.process, ForkedProcess)
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    assert f"PPid:\t{os.getpid()}\n" in status
    server.stop()


def test_a_killed_fork_is_noticed(forks: ForkServer, tmp_path: Path) -> None:
    server = start(tmp_path, {}, (), {}, forks)
    server.process.kill()
    assert server.process.wait(30) == -signal.SIGKILL


def test_variables_are_those_of_the_request(forks: ForkServer, tmp_path: Path) -> None:
    variables = {**bare_environment(), "PENSTOCK_RING__MESSAGES": "4321"}
    process = forks.fork(["config", "show"], variables, tmp_path / "out", tmp_path / "err")
    assert process.wait(60) == 0, (tmp_path / "err").read_text()
    assert "4321" in (tmp_path / "out").read_text()
