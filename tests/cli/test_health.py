"""`penstock health`: what it says, and how it ends."""

import pytest
from typer.testing import Result

from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.e2e.servers import RunningServer

WELL = {"status": "healthy", "uptime_seconds": 1.5, "log": {"status": "ok", "durable": False}, "parts": []}


def test_a_server_that_is_well_is_told_fact_by_fact() -> None:
    with answering(WELL) as address:
        result = run(port_of(address), "health")
    assert result.exit_code == 0, result.output
    assert result.stdout == "status: healthy\nuptime_seconds: 1.500\nlog.status: ok\nlog.durable: false\n"


def test_json_has_it_as_the_server_does() -> None:
    with answering(WELL) as address:
        assert rows_of(run(port_of(address), "health", "-o", "json")) == [WELL]


@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
def test_a_server_that_is_not_well_ends_it_with_1(status: str) -> None:
    with answering({"status": "degraded"}, status=status) as address:
        result: Result = run(port_of(address), "health")
    assert (result.exit_code, result.stdout) == (1, "status: degraded\n")


def test_a_server_that_is_not_there_ends_it_with_1() -> None:
    result = run(1, "health")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no connection to http://127.0.0.1:1" in result.stderr


def test_a_real_server_is_well(http_server: RunningServer) -> None:
    [state] = rows_of(run(http_server.port_of("http"), "health", "-o", "json"))
    assert state["status"] == "healthy"
