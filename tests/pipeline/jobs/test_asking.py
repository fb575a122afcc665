"""A server is asked before anything begins; who waits for it says so, and can be stopped."""

import threading

import pytest

from penstock.client import ConnectionRefused, HttpRefused
from penstock.pipeline.jobs.asking import ask_first, await_server
from penstock.pipeline.source.connection import Connection
from tests.e2e.servers import StartServer
from tests.pipeline.servers import LogServer

AWAY = "http://127.0.0.1:9"


class Stopping:
    """Progress that stops the job at the first word."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.event = threading.Event()

    def show(self, text: str) -> None:
        self.lines.append(text)
        self.event.set()

    def note(self, text: str) -> None:
        raise AssertionError(text)


def test_a_server_that_is_away_is_told_at_once_unless_it_is_waited_for() -> None:
    with pytest.raises(ConnectionRefused):
        ask_first(Connection(address=AWAY))
    assert ask_first(Connection(address=AWAY), is_patient=True) is None


def test_a_server_without_a_log_is_not_waited_for(start_server: StartServer) -> None:
    running = start_server({"http": {"port": 0}})
    connection = Connection(address=f"http://127.0.0.1:{running.port_of('http')}")
    with pytest.raises(HttpRefused, match="keeps no log"):
        ask_first(connection, is_patient=True)
    with pytest.raises(HttpRefused, match="keeps no log"):
        await_server(connection, (), Stopping(), threading.Event())


def test_who_waits_says_what_for_and_stops_when_told_to() -> None:
    progress = Stopping()
    away = await_server(Connection(address=AWAY), (), progress, progress.event)
    assert isinstance(away, ConnectionRefused)
    assert progress.lines == ["waiting for http://127.0.0.1:9: Connection refused"]


def test_nobody_waits_for_longer_than_the_connection_does() -> None:
    with pytest.raises(ConnectionRefused):
        await_server(Connection(address=AWAY, retry_for_s=0.0), (), Stopping(), threading.Event())


def test_a_server_that_is_there_is_not_waited_for(log_server: LogServer) -> None:
    connection = Connection(address=log_server.address)
    found = ask_first(connection)
    assert found is not None
    assert found.cursor
    progress = Stopping()
    assert await_server(connection, (), progress, progress.event) is None
    assert progress.lines == []
