"""The log of a running server from the shell: reads, positions, holds, and subscriptions from the past."""

from collections.abc import Iterator

import pytest

from penstock.cli import main
from penstock.client import HttpClient
from tests.cli.http_commands import rows_of
from tests.cli.http_commands import run as run_command
from tests.cli.log.conftest import Run
from tests.support.servers import RunningServer, start

WORDS = ("one", "two", "three")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a data directory and three messages on `past/words`."""
    folder = tmp_path_factory.mktemp("past")
    running = start(folder, {"http": {"port": 0}, "data_dir": str(folder / "data")}, (), {})
    with HttpClient(f"http://127.0.0.1:{running.port_of('http')}") as client:
        for word in WORDS:
            client.publish("past/words", payload=word)
        client.publish("past/others", payload="x")
    yield running
    running.stop()


@pytest.fixture
def there(server: RunningServer) -> tuple[str, ...]:
    return "--address", f"127.0.0.1:{server.port_of('http')}", "--connect-timeout", "2m"


def test_a_log_is_read_from_its_server(run: Run, there: tuple[str, ...]) -> None:
    ended = run("read", *there, "--topic", "past/words", "--since", "1h")
    assert ended.code == 0, ended.err
    assert [line.split()[-1] for line in ended.out.splitlines()] == list(WORDS)
    assert ended.err.startswith("served 3 messages; the log ")
    cursor = ended.err.split()[-1]
    assert run("read", *there, "--filter", "past/#", "--after", cursor).out == ""
    limited = run("read", *there, "--filter", "past/#", "--limit", "1", "-o", "json")
    assert [row["payload"] for row in limited.rows] == ["one"]
    assert limited.statement["is_at_head"] is False


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--from-offset", "1"), "need a DIRECTORY"),
        (("--topic", "a", "--first", "1"), "need a DIRECTORY"),
        (("--after", "AY-n_BonwTGaAAAAAQAAAAAAAAAq", "--since", "1h"), "give one of --after and --since"),
        (("/nowhere",), "give a DIRECTORY, or --address"),
    ],
)
def test_what_only_a_directory_has_is_told(
    run: Run, there: tuple[str, ...], words: tuple[str, ...], says: str
) -> None:
    ended = run("read", *words, *there)
    assert ended.code == 2
    assert says in ended.err


def test_commands_on_a_directory_ask_for_it(run: Run) -> None:
    ended = run("verify")
    assert (ended.code, "missing argument 'DIRECTORY'" in ended.err) == (2, True)


def test_positions_holds_and_figures_come_from_the_server(
    run: Run, server: RunningServer, there: tuple[str, ...]
) -> None:
    first, last = (run("position", place, *there, "-o", "json").rows[0] for place in ("earliest", "latest"))
    assert first["offset"] < last["offset"]
    lag = run("position", *there, "--after", first["cursor"], "-o", "json").rows[0]["lag_rows"]
    assert lag >= 4
    assert run("position", "someday", *there).code == 2
    with HttpClient(f"http://127.0.0.1:{server.port_of('http')}") as client:
        client.hold("keeper", first["cursor"], 60.0)
    [hold] = run("holds", *there, "-o", "json").rows
    assert (hold["name"], hold["lapse_s"]) == ("keeper", 60.0)
    [facts] = run("info", *there, "-o", "json").rows
    assert (facts["durable"], facts["holds"]) == (True, 1)


def test_a_subscription_begins_with_the_newest_messages(server: RunningServer) -> None:
    result = run_command(server.port_of("http"), "sub", "past/words", "--last", "2", "-n", "2", "-v")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["past/words two", "past/words three"]


def test_a_subscription_begins_after_a_sequence_or_a_cursor(server: RunningServer) -> None:
    port = server.port_of("http")
    rows = rows_of(run_command(port, "sub", "past/words", "--after", "1", "-n", "2", "-o", "json"))
    assert [(row["payload"], row["sequence"]) for row in rows] == [("two", 2), ("three", 3)]
    result = run_command(port, "sub", "past/words", "--after", rows[0]["cursor"], "-n", "1")
    assert result.stdout == "three\n"


def test_a_subscription_begins_at_a_time_and_continues_with_new_messages(server: RunningServer) -> None:
    port = server.port_of("http")
    result = run_command(port, "sub", "past/#", "--since", "1h", "-n", "9", "--timeout", "500ms")
    assert result.stdout.splitlines() == [*WORDS, "x"]
    assert result.exit_code == 1
    assert result.stderr == "error: 4 of 9 messages came within 0.5 s\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("past/words", "--last", "1", "--since", "1h"), 2, "give one of --last, --since and --after"),
        (("past/words", "--last", "1", "-q", "1"), 2, "read over HTTP, without QoS and sessions"),
        (("past/#", "--after", "1"), 2, "needs one topic without wildcards"),
        (("past/words", "--after", "99"), 1, "past/words has no message 99 any more, or not yet"),
    ],
)
def test_a_past_that_cannot_be_is_told(
    there: tuple[str, ...],
    words: tuple[str, ...],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sub", *words, *there])
    assert ended.value.code == code
    assert says in capsys.readouterr().err
