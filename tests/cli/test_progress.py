"""Progress is for terminals: shown while something takes long, gone afterwards, never in a pipe."""

import threading

import pytest

from penstock.cli.progress import LOOK_EVERY_S, bar, ticking
from tests.cli.terminals import on_terminal
from tests.e2e.servers import RunningServer


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
    with bar("reading", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


def test_who_counts_is_asked_no_more_when_the_work_is_done() -> None:
    asked = threading.Semaphore(0)

    def count() -> int:
        asked.release()
        return 1

    with ticking("working", count, 10):
        assert asked.acquire(timeout=10)
    while asked.acquire(blocking=False):
        pass
    assert not asked.acquire(timeout=3 * LOOK_EVERY_S)


async def test_work_that_never_lets_its_loop_go_on_is_counted_all_the_same() -> None:
    asked = threading.Event()

    def count() -> int:
        asked.set()
        return 1

    with ticking("working", count, 10):
        assert asked.wait(timeout=10)
