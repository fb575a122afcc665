"""`penstock why`: the verdict on a message."""

import pytest

from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.client.http_scripts import Caller, scripted
from tests.e2e.servers import RunningServer

VERDICT = {
    "topic": "a",
    "sequence": 3,
    "client_id": "c",
    "code": "not-delivered",
    "text": "It was not delivered to c: its outbox was full.",
    "message": {"qos": 1, "retain": False},
    "rows": [{"client_id": "c", "reason": "outbox-full", "first": 2, "last": 5}],
    "filters": [],
    "truncated": False,
}


def test_the_verdict_is_told_with_the_facts_it_rests_on() -> None:
    with answering(VERDICT) as address:
        result = run(port_of(address), "why", "a", "3", "--client", "c")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "topic: a",
        "sequence: 3",
        "client_id: c",
        "code: not-delivered",
        "text: It was not delivered to c: its outbox was full.",
        "message.qos: 1",
        "message.retain: false",
        "rows: client_id c, reason outbox-full, first 2, last 5",
        "truncated: false",
    ]


def test_json_has_it_as_the_server_does() -> None:
    with answering(VERDICT) as address:
        assert rows_of(run(port_of(address), "why", "a", "3", "-o", "json")) == [VERDICT]


@pytest.mark.parametrize(
    ("words", "asked"),
    [((), "topic=a%2Fb&sequence=3"), (("--client", "c d"), "topic=a%2Fb&sequence=3&client=c+d")],
)
def test_the_server_is_asked_about_that_message(words: tuple[str, ...], asked: str) -> None:
    def script(caller: Caller) -> None:
        assert caller.take()[0] == f"GET /api/v1/why?{asked} HTTP/1.1"
        caller.answer()

    with scripted(script) as address:
        result = run(port_of(address), "why", "a/b", "3", *words)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("sequence", ["0", "-1", "x"])
def test_a_sequence_that_is_none_is_wrong_usage(sequence: str) -> None:
    assert run(1, "why", "a", "--", sequence).exit_code == 2


def test_a_real_server_gives_a_verdict(http_server: RunningServer) -> None:
    [verdict] = rows_of(run(http_server.port_of("http"), "why", "never/published", "1", "-o", "json"))
    assert (verdict["topic"], verdict["code"]) == ("never/published", "not-published")
