"""Tables on terminals: wide, narrow, without colours; and a reader that leaves.

Progress is for terminals: shown while something takes long, gone afterwards, never in a pipe.
"""

import re
import subprocess
import sys
import threading

import pytest

from penstock.cli import output
from penstock.cli.output import LOOK_EVERY_S, program_name, progress_bar, progress_count
from penstock.client import HttpClient
from tests.cli.terminals import on_terminal
from tests.support.servers import RunningServer, bare_environment

BOLD = re.compile(r"\x1b\[[01]m")
NAMES = ("one", "the-second-of-two")


@pytest.fixture
def port(http_server: RunningServer) -> int:
    """The HTTP port of a server with two topics."""
    port = http_server.port_of("http")
    with HttpClient(f"http://127.0.0.1:{port}") as client:
        client.publish_many([{"topic": f"tabled/{name}", "data": 1} for name in NAMES])
    return port


def written(port: int, columns: int, **environment: str) -> list[str]:
    words = ("topics", "--filter", "tabled/+", "-p", str(port))
    with on_terminal(*words, columns=columns, environment=environment) as terminal:
        assert terminal.end() == 0, terminal.written
        return [BOLD.sub("", line).rstrip() for line in terminal.written.splitlines()]


def test_a_wide_terminal_has_a_line_for_each_row(port: int) -> None:
    lines = written(port, 100, NO_COLOR="1")
    assert [line.split()[0] for line in lines] == ["topic", *(f"tabled/{name}" for name in NAMES)]


def test_eighty_columns_are_room_enough_for_a_line_for_each_topic(port: int) -> None:
    lines = written(port, 80, NO_COLOR="1")
    header = lines[: next(at for at, line in enumerate(lines) if line.startswith("tabled/"))]
    assert len(header) <= 2
    assert {"topic", "messages", "subscribers", "retained", "logged"} <= set(" ".join(header).split())
    assert max(map(len, lines)) <= 80


def test_a_narrow_terminal_has_one_fact_below_the_other_and_nothing_is_cut(port: int) -> None:
    lines = written(port, 40, NO_COLOR="1")
    assert max(map(len, lines)) <= 40
    assert [line.split()[-1] for line in lines if line.startswith("topic ")] == [
        f"tabled/{name}" for name in NAMES
    ]
    assert "" in lines  # between the rows


def test_no_color_means_no_colours(port: int) -> None:
    assert "\x1b[3" not in "\n".join(written(port, 100, NO_COLOR="1"))


def test_a_reader_that_leaves_ends_it_quietly(port: int) -> None:
    words = [sys.executable, "-m", "penstock", "top", "-o", "json", "--interval", "0.1", "-p", str(port)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bare_environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_many_messages_show_how_far_they_are_on_a_terminal(http_server: RunningServer) -> None:
    words = ("pub", "progress/many", "x", "-n", "3000", "-q", "1", "-p", str(http_server.port_of("mqtt")))
    with on_terminal(*words) as terminal:
        terminal.wait_for("publishing")
        assert terminal.end() == 0, terminal.written


def test_one_message_shows_nothing(http_server: RunningServer) -> None:
    words = ("pub", "progress/one", "x", "-p", str(http_server.port_of("mqtt")))
    with on_terminal(*words) as terminal:
        assert terminal.end() == 0, terminal.written
        assert terminal.written == ""


def test_in_a_pipe_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


def test_who_counts_is_asked_no_more_when_the_work_is_done() -> None:
    asked = threading.Semaphore(0)

    def count() -> int:
        asked.release()
        return 1

    with progress_count("working", count, 10):
        assert asked.acquire(timeout=10)
    while asked.acquire(blocking=False):
        pass
    assert not asked.acquire(timeout=3 * LOOK_EVERY_S)


async def test_work_that_never_lets_its_loop_go_on_is_counted_all_the_same() -> None:
    asked = threading.Event()

    def count() -> int:
        asked.set()
        return 1

    with progress_count("working", count, 10):
        assert asked.wait(timeout=10)


@pytest.mark.parametrize(
    ("on_path", "called", "shown"),
    [
        ("/usr/bin/penstock", "/elsewhere/penstock", "penstock"),
        (None, "/my tools/penstock", "'/my tools/penstock'"),
        (None, "/site-packages/penstock/__main__.py", "'/my tools/python' -m penstock"),
    ],
)
def test_a_command_is_called_as_this_one_was(
    on_path: str | None, called: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "which", lambda _: on_path)
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setattr(sys, "executable", "/my tools/python")
    assert program_name() == shown
