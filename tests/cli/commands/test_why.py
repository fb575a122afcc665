"""`penstock why`: the verdict on a message."""

import pytest

from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.client.http.scripts import Caller, scripted
from tests.support.servers import RunningServer

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
        "text: It was not delivered to c: its outbox was full.",
        "topic: a",
        "sequence: 3",
        "client_id: c",
        "code: not-delivered",
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


DROP = {
    "number": 1,
    "topic": "a/b",
    "client_id": "c",
    "reason": "outbox-full",
    "first": 3,
    "last": 9,
    "count": 7,
    "first_at": "2026-01-31T12:00:00Z",
    "last_at": "2026-01-31T12:00:05Z",
    "policy": "drop-newest",
}


def test_without_a_message_it_lists_what_was_not_delivered() -> None:
    with answering({"drops": [DROP], "next": None}) as address:
        result = run(port_of(address), "why")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "last_at\ttopic\tfirst\tlast\tcount\tclient_id\treason\tpolicy\n"
        "2026-01-31T12:00:05Z\ta/b\t3\t9\t7\tc\toutbox-full\tdrop-newest\n"
    )


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), "limit=1000"),
        (("a/b",), "limit=1000&topic=a%2Fb"),
        (
            ("--topic", "a/b", "--client", "c", "--reason", "expired"),
            "limit=1000&topic=a%2Fb&client=c&reason=expired",
        ),
    ],
)
def test_a_list_is_asked_for_by_topic_client_and_reason(words: tuple[str, ...], asked: str) -> None:
    def script(caller: Caller) -> None:
        assert caller.take()[0] == f"GET /api/v1/drops?{asked} HTTP/1.1"
        caller.answer(b'{"drops":[],"next":null}')

    with scripted(script) as address:
        result = run(port_of(address), "why", *words)
    assert result.exit_code == 0, result.output


def test_a_list_ends_after_its_limit() -> None:
    with answering({"drops": [DROP] * 5, "next": None}) as address:
        assert len(rows_of(run(port_of(address), "why", "--limit", "2", "-o", "json"))) == 2


@pytest.mark.parametrize("words", [("a", "--topic", "b"), ("a", "1", "--reason", "expired")])
def test_flags_of_a_list_do_not_go_with_a_message(words: tuple[str, ...]) -> None:
    assert run(1, "why", *words).exit_code == 2


def test_a_real_server_lists_what_was_not_delivered(http_server: RunningServer) -> None:
    result = run(http_server.port_of("http"), "why", "--reason", "outbox-full")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("last_at\ttopic")


def test_a_real_server_gives_a_verdict(http_server: RunningServer) -> None:
    [verdict] = rows_of(run(http_server.port_of("http"), "why", "never/published", "1", "-o", "json"))
    assert (verdict["topic"], verdict["code"]) == ("never/published", "not-published")
