"""Tables on terminals: wide, narrow, without colours; and a reader that leaves."""

import re
import subprocess
import sys

import pytest

from penstock.client import HttpClient
from tests.cli.terminals import on_terminal
from tests.e2e.servers import RunningServer, bare_environment

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
    assert [line.split()[0] for line in lines] == ["name", *(f"tabled/{name}" for name in NAMES)]


def test_eighty_columns_are_room_enough_for_a_line_for_each_topic(port: int) -> None:
    lines = written(port, 80, NO_COLOR="1")
    assert [line.split()[-1] for line in lines if not line.startswith("tabled/")] == [
        "ring_",
        "kept",
        "f-two",
    ]
    assert max(map(len, lines)) <= 80


def test_a_narrow_terminal_has_one_fact_below_the_other_and_nothing_is_cut(port: int) -> None:
    lines = written(port, 40, NO_COLOR="1")
    assert max(map(len, lines)) <= 40
    assert [line.split()[-1] for line in lines if line.startswith("name ")] == [
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
