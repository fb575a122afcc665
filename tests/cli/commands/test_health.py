"""`penstock health`: what it says, and how it ends."""

import pytest
from typer.testing import Result

from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.support.servers import RunningServer

WELL = {"status": "healthy", "uptime_seconds": 1.5, "log": {"status": "ok", "durable": False}, "parts": []}


READY = {"status": "ready"}


def test_a_server_that_is_well_is_told_fact_by_fact() -> None:
    with answering(WELL, READY) as address:
        result = run(port_of(address), "health")
    assert result.exit_code == 0, result.output
    *facts, round_trip = result.stdout.splitlines()
    assert facts == [
        "status: healthy",
        "uptime_seconds: 1.500",
        "log.status: ok",
        "log.durable: false",
        "ready: true",
    ]
    name, _, milliseconds = round_trip.partition(": ")
    assert name == "round_trip_ms"
    assert float(milliseconds) > 0


def test_json_has_it_as_the_server_does_and_how_long_an_answer_takes() -> None:
    with answering(WELL, READY) as address:
        [state] = rows_of(run(port_of(address), "health", "-o", "json"))
    assert state.pop("round_trip_ms") > 0
    assert state == {**WELL, "ready": True}


@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
def test_a_server_that_is_not_well_ends_it_with_1(status: str) -> None:
    with answering({"status": "degraded"}, READY, status=status) as address:
        result: Result = run(port_of(address), "health")
    assert result.exit_code == 1
    assert result.stdout.startswith("status: degraded\n")


def test_a_server_that_is_not_there_ends_it_with_1() -> None:
    result = run(1, "health")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no connection to http://127.0.0.1:1" in result.stderr


def test_a_real_server_is_well(http_server: RunningServer) -> None:
    [state] = rows_of(run(http_server.port_of("http"), "health", "-o", "json"))
    assert state["status"] == "healthy"


def test_everything_has_figures_and_says_that_the_server_has_no_peers(http_server: RunningServer) -> None:
    [state] = rows_of(run(http_server.port_of("http"), "health", "--all", "-o", "json"))
    assert state["cluster"] == {"cluster_mode": False, "peers": 0}
    assert state["process"]["memory_bytes"] > 0
    assert {"active_topics", "active_subscribers", "filters", "total_published"} <= set(state["global"])
