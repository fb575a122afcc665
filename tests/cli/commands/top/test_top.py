"""`penstock top` as it is used: live on a terminal, and as text or JSON where something else reads."""

import json
import signal
import subprocess
import sys

import pytest

from penstock.client import HttpClient
from tests.cli.http_commands import rows_of, run
from tests.cli.terminals import on_terminal
from tests.support.ports import free_port
from tests.support.servers import RunningServer, StartServer

ALTERNATE_SCREEN, ORDINARY_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def busy(http_server: RunningServer) -> int:
    """The HTTP port of a server that has a topic."""
    port = http_server.port_of("http")
    with HttpClient(f"http://127.0.0.1:{port}") as client:
        client.publish("watched/topic", 1)
    return port


def test_once_tells_the_figures_the_server_has_and_its_rates(busy: int) -> None:
    [view] = rows_of(run(busy, "top", "--once", "--interval", "0.1", "-o", "json", "--limit", "1000"))
    with HttpClient(f"http://127.0.0.1:{busy}") as client:
        figures = client.metrics()
    assert view["node_id"] == figures["node_id"]
    assert view["published"] == figures["global"]["total_published"]
    assert view["published_per_s"] == 0.0
    assert view["memory_bytes"] > 0
    assert "watched/topic" in {line["topic"] for line in view["busiest"]}
    assert {door["door"] for door in view["doors"]} == {"mqtt", "sidecar", "web", "streams"}


def test_text_has_facts_and_tables(busy: int) -> None:
    result = run(busy, "top", "--once", "--interval", "0.1", "--sort", "name")
    assert result.exit_code == 0, result.output
    assert "published_per_s: 0.000\n" in result.stdout
    assert "\ndoors:\ndoor\tpublished_per_s\tdelivered_per_s\tconnections\n" in result.stdout


def test_so_many_looks_are_so_many_objects_with_so_many_topics(busy: int) -> None:
    rows = rows_of(run(busy, "top", "-n", "3", "--interval", "0.1", "-o", "json", "--limit", "1"))
    assert [len(row["busiest"]) for row in rows] == [1, 1, 1]
    assert rows[0]["uptime_s"] < rows[1]["uptime_s"] < rows[2]["uptime_s"]


def test_a_server_that_was_never_there_is_an_error() -> None:
    result = run(free_port(), "top", "--once")
    assert result.exit_code == 1
    assert "`penstock serve` starts one." in result.stderr


def test_once_and_a_count_are_wrong_usage(busy: int) -> None:
    assert run(busy, "top", "--once", "--count", "2").exit_code == 2


def test_it_goes_on_when_the_server_is_away_and_recovers(start_server: StartServer) -> None:
    port = free_port()
    server = start_server({"http": {"port": port}, "node_id": "first"})
    words = [sys.executable, "-m", "penstock", "top", "-o", "json", "--interval", "0.2", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["node_id"] == "first"
        server.stop()
        assert process.stderr.readline().startswith(b"The server is away, trying again: ")
        start_server({"http": {"port": port}, "node_id": "second"})
        while json.loads(process.stdout.readline())["node_id"] == "first":
            pass
        assert json.loads(process.stdout.readline())["node_id"] == "second"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_on_a_terminal_it_is_a_screen_that_keys_change_and_leave(busy: int) -> None:
    with on_terminal("top", "-p", str(busy), "--interval", "0.2", columns=110) as terminal:
        first = terminal.wait_for("q quit")
        assert ALTERNATE_SCREEN in first
        assert "in/s▾" in first
        terminal.press("s")
        terminal.wait_for("out/s▾")
        terminal.press("\x1b[D")
        terminal.wait_for("in/s▾")
        terminal.press(" ")
        terminal.wait_for("paused")
        terminal.resize(70, 20)
        terminal.wait_for("q quit")
        terminal.press("q")
        assert terminal.end() == 0
        assert ORDINARY_SCREEN in terminal.written
        assert "Traceback" not in terminal.written


def test_ctrl_c_leaves_the_screen_as_it_was(busy: int) -> None:
    with on_terminal("top", "-p", str(busy), "--interval", "0.2") as terminal:
        terminal.wait_for("q quit")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        assert ORDINARY_SCREEN in terminal.written
        assert "Traceback" not in terminal.written


def test_a_terminal_without_colours_gets_none(busy: int) -> None:
    words = ("top", "-p", str(busy), "-n", "1", "--interval", "0.2")
    with on_terminal(*words, environment={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
        assert "\x1b[31m" not in terminal.written
        assert "watched" in terminal.written
