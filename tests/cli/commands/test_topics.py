"""`penstock topics`, and what it has in common with the other commands that ask over HTTP."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.client import HttpClient
from tests.cli.http_commands import answering, port_of, rows_of, run
from tests.client.http.scripts import Caller, scripted
from tests.support.ports import free_port
from tests.support.servers import RunningServer

TOPICS = [
    {"name": "a", "sequence": 3, "subscribers": 0, "retained": True, "ring_messages": 3, "kept": False},
    {
        "name": "b\tc\x1b[31m",
        "sequence": 1,
        "subscribers": 2,
        "retained": False,
        "ring_messages": 1,
        "kept": True,
    },
]
PAGE = {"topics": TOPICS, "next": None, "matching": 2, "total": 2}
EMPTY: dict[str, Any] = {"topics": [], "next": None, "matching": 0, "total": 0}
HEAD = "name\tsequence\tpublished\tsubscribers\tretained\tring_messages\tkept\n"


def test_rows_are_lines_with_tabs_where_nobody_looks() -> None:
    with answering(PAGE) as address:
        result = run(port_of(address), "topics")
    assert result.exit_code == 0, result.output
    assert (
        result.stdout == HEAD + "a\t3\t-\t0\ttrue\t3\tfalse\n" + "b\\tc\\x1b[31m\t1\t-\t2\tfalse\t1\ttrue\n"
    )


def test_json_is_an_object_a_line_as_the_server_has_it() -> None:
    with answering(PAGE) as address:
        assert rows_of(run(port_of(address), "topics", "-o", "json")) == TOPICS


def test_nothing_is_a_head_without_lines_and_no_failure() -> None:
    with answering(EMPTY) as address:
        result = run(port_of(address), "topics")
    assert (result.exit_code, result.stdout) == (0, HEAD)


def test_a_limit_ends_the_list() -> None:
    with answering(PAGE) as address:
        assert rows_of(run(port_of(address), "topics", "-o", "json", "--limit", "1")) == TOPICS[:1]


@pytest.mark.parametrize(
    ("page", "shown"),
    [(PAGE, ["topic", "in memory", r"b\tc\x1b[31m", "yes"]), (EMPTY, ["no topics"])],
)
def test_people_get_a_table(page: dict[str, object], shown: list[str]) -> None:
    terminal, theirs = os.openpty()
    with answering(page) as address:
        words = [sys.executable, "-m", "penstock", "topics", "--port", str(port_of(address))]
        environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
        done = subprocess.run(words, stdout=theirs, stderr=theirs, env=environment, check=False, timeout=30)
    os.close(theirs)
    written = os.read(terminal, 65_536).decode()
    os.close(terminal)
    assert done.returncode == 0, written
    assert [text for text in shown if text not in written] == []
    assert "\t" not in written


def test_search_and_filter_reach_the_server_and_so_does_who_asks(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("word\nnot this\n", encoding="utf-8")

    def script(caller: Caller) -> None:
        first, headers, _ = caller.take()
        assert first == "GET /api/v1/topics?limit=1000&search=x&filter=a%2F%23 HTTP/1.1"
        assert headers["authorization"] == "Basic YW5uOndvcmQ="
        caller.answer(b'{"topics":[],"next":null}')

    asked = ["--search", "x", "--filter", "a/#", "--user", "ann", "--password-file", str(tmp_path / "secret")]
    with scripted(script) as address:
        result = run(port_of(address), "topics", *asked)
    assert result.exit_code == 0, result.output


# What can go wrong


def error_of(port: int, *words: str) -> str:
    """What a command says that fails; it writes nothing else."""
    result = run(port, "topics", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_nobody_there_is_told_with_what_to_do() -> None:
    told = error_of(free_port())
    assert "Connection refused" in told
    assert "Is a server running there? `penstock serve` starts one." in told


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (
            "401 Unauthorized",
            "bad-credentials",
            "does not let a client without --user in: as it is. Give --user and --password-file.",
        ),
        ("403 Forbidden", "not-authorized", "a client without --user is not allowed to do this: as it is"),
        ("503 Service Unavailable", "shutting-down", "as it is. It is about to stop, or has too much to do"),
        ("404 Not Found", "not-found", "as it is. A server with http.admin_port serves this there"),
        ("400 Bad Request", "invalid-filter", "error: as it is\n"),
    ],
)
def test_a_refusal_is_told_with_what_to_do(status: str, code: str, told: str) -> None:
    with answering({"detail": "as\nit is", "code": code}, status=status) as address:
        assert told in error_of(port_of(address))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--user", "a", "--password", "b", "--password-file", "c"], "give one of"),
        (["--password", "b"], "needs --user"),
        (["--ca-file", "c"], "need --tls"),
        (["--tls", "--key-file", "c"], "needs --cert-file"),
        (["--user", "a:b", "--password", "b"], "must not contain a colon"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(words: list[str], told: str) -> None:
    result = run(1, "topics", *words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


@pytest.mark.parametrize("flag", [["--user", "a", "--password-file"], ["--tls", "--ca-file"]])
def test_a_file_that_cannot_be_read_is_told(flag: list[str], tmp_path: Path) -> None:
    assert "No such file" in error_of(1, *flag, str(tmp_path / "none"))


def test_a_file_without_certificates_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("nothing", encoding="utf-8")
    assert "no certificates in it" in error_of(1, "--tls", "--ca-file", str(tmp_path / "ca"))


# A real server


def test_a_real_server_is_asked(http_server: RunningServer) -> None:
    port = http_server.port_of("http")
    with HttpClient(f"http://127.0.0.1:{port}") as client:
        client.publish_many([{"topic": f"listed/{name}", "data": 1} for name in ("b", "a")])
    rows = rows_of(run(port, "topics", "--filter", "listed/+", "-o", "json"))
    assert [(row["name"], row["sequence"]) for row in rows] == [("listed/a", 1), ("listed/b", 1)]
    text = run(port, "topics", "--search", "listed/").stdout
    head, *lines = (line.split("\t") for line in text.splitlines())
    assert [dict(zip(head, line, strict=True))["retained"] for line in lines] == ["false", "false"]
    assert not [line for line in lines if "-" in line]  # it has every column


# Topics by name, and retained messages


@pytest.fixture
def kept(http_server: RunningServer) -> int:
    """The HTTP port of a server that keeps a value."""
    port = http_server.port_of("http")
    with HttpClient(f"http://127.0.0.1:{port}") as client:
        client.publish("named/kept", {"on": True}, retain=True)
        client.publish("named/other", 1)
    return port


def test_one_topic_is_told_with_everything_that_is_known(kept: int) -> None:
    [facts] = rows_of(run(kept, "topics", "named/kept", "-o", "json"))
    assert (facts["name"], facts["retained"]) == ("named/kept", True)
    assert {"queue_depth", "messages_delivered", "latency_ms"} <= set(facts)
    assert run(kept, "topics", "named/kept").stdout.startswith("name: named/kept\n")


def test_several_topics_are_lines_in_the_order_they_were_named(kept: int) -> None:
    rows = rows_of(run(kept, "topics", "named/other", "named/kept", "-o", "json"))
    assert [row["name"] for row in rows] == ["named/other", "named/kept"]


def test_a_topic_that_is_not_there_is_an_error_and_the_others_are_told(kept: int) -> None:
    result = run(kept, "topics", "named/kept", "named/none")
    assert result.exit_code == 1
    assert "named/kept\t" in result.stdout
    assert "there is no topic 'named/none'" in result.stderr


def test_retained_messages_are_listed_with_their_values(kept: int) -> None:
    [message] = rows_of(run(kept, "topics", "--retained", "--filter", "named/#", "-o", "json"))
    assert (message["topic"], message["payload"]) == ("named/kept", '{"on":true}')
    text = run(kept, "topics", "--retained", "--filter", "named/#").stdout
    assert text.startswith("topic\tsequence\tpublished_at\tcontent_type\tpayload\nnamed/kept\t")


@pytest.mark.parametrize(
    "words", [("a", "--search", "x"), ("--retained", "--search", "x"), ("a", "--retained")]
)
def test_what_does_not_go_together_is_wrong_usage(words: tuple[str, ...]) -> None:
    assert run(1, "topics", *words).exit_code == 2
