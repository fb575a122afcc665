"""The command line as a whole: what it says when it was called wrongly, and where its output goes."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from penstock.cli import COMMANDS, build, main
from tests.support.servers import bare_environment


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said to somebody who called it wrongly: one line, and nothing else."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    return err.removeprefix("error: ").rstrip("\n")


def test_a_command_that_is_mistyped_is_told_which_one_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "sup") == "no such command 'sup'. Did you mean 'sub'? See penstock --help."


def test_a_flag_that_is_mistyped_is_told_which_one_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "pub", "a", "b", "--hots", "x")
    assert said.startswith("no such option: --hots") and "--host" in said
    assert said.endswith("See penstock pub --help.")


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "pub") == "missing argument 'TOPIC'. See penstock pub --help."


def test_flags_that_do_not_go_together_are_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "topics", "--address", "http://127.0.0.1:1", "--tls")
    assert said == "--address says it all: leave out --host, --port and --tls. See penstock topics --help."


def test_a_value_that_cannot_be_is_told_with_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "topics", "--port", "99999")
    assert "--port" in said and "65535" in said
    assert said.endswith("See penstock topics --help.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pub", "a", "b", "--qos", "7"), "'--qos' / '-q': expected at most 2, got '7'"),
        (("pub", "a", "b", "--count", "0"), "'--count' / '-n': expected at least 1, got '0'"),
        (("why", "a", "first"), "'SEQUENCE': expected a whole number, got 'first'"),
        (("bench", "pub", "--rate", "x"), "'--rate': expected a number, got 'x'"),
    ],
)
def test_a_number_that_cannot_be_is_an_error_with_the_value_and_the_limit(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, *words).startswith(f"invalid value for {expected}. See penstock ")


def test_a_command_of_a_group_is_told_where_its_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        told(capsys, "log", "tial") == "no such command 'tial'. Did you mean 'tail'? See penstock log --help."
    )


def test_the_command_alone_shows_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert "serve" in out and not err


@pytest.mark.parametrize("words", [["-h"], ["topics", "-h"], ["log", "read", "-h"]])
def test_help_has_a_short_flag_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "Usage: penstock" in capsys.readouterr().out


def test_the_overview_has_the_commands_in_the_order_in_which_they_are_used() -> None:
    group = typer.main.get_command(build(COMMANDS))
    assert group.list_commands(None) == list(COMMANDS)  # type: ignore[attr-defined]


def call(*words: str | bytes, after: str = "", **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Call it as a shell does, with its output to where the shell says."""
    line = f'"$0" -m penstock "$@" {after}'
    return subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, *words],
        env={**bare_environment(), **variables},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_output_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node_id: hütte-💧\n", encoding="utf-8")
    ended = call("config", "show", "--config", str(file), PYTHONIOENCODING="latin-1")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "hütte-💧" in ended.stdout.decode()


def test_a_word_that_is_not_utf_8_is_refused() -> None:
    ended = call("pub", b"\xff", "x")
    assert (ended.returncode, ended.stderr.count(b"\n")) == (2, 1)
    assert ended.stderr.startswith(b"error: '\\udcff' is not UTF-8")


def test_a_full_disk_is_an_error_in_one_line() -> None:
    ended = call("config", "show", after=">/dev/full")
    assert (ended.returncode, ended.stderr) == (1, b"error: No space left on device\n")


@pytest.mark.parametrize("after", [">&-", "| true"])
def test_output_that_nobody_reads_is_no_failure(after: str) -> None:
    ended = call("config", "show", after=after)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_commands_that_look_at_a_server_load_nothing_that_they_do_not_need_yet() -> None:
    names = {"asyncio", "pyarrow", "rich.console", "structlog", "penstock.client", "penstock.cli.log"}
    script = (
        "import sys; from penstock.cli import build; build(['topics', 'clients', 'slow', 'why', 'health']);"
        f"print(*{names} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=bare_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return capsys.readouterr().out


def every_command(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("command", [*every_command(typer.main.get_command(build(COMMANDS)))], ids=" ".join)
def test_help_names_values_in_words_and_shows_none_behind_a_switch(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = shown(capsys, *command)
    assert not re.search(r"<(bool|str|int|float|path|list)|\[\w*<?=?x[<>]|\{[A-Z]", text), text
    assert re.search(r"--help +-h +(?!<)Show this", text)


def test_the_overview_shows_no_value_behind_a_switch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert re.search(r"--install-completion +(?!<)Install", shown(capsys))


def test_names_that_nexusd_used_are_the_last_group_of_serve(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    first, _, last = shown(capsys, "serve").partition("Names that NexusD used")
    flags = {"--app-port", "--sidecar-port", "--subscriber-queue-limit", "--rocksdb-path"}
    assert not [flag for flag in flags if flag in first]
    assert not [flag for flag in flags if flag not in last]
    assert "--grpc-port" in first and "sidecar" not in first
