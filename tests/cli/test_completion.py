"""Completion, as shells ask for it: in a process of its own, and in a real bash."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from penstock.cli import COMMANDS
from penstock.cli.main import commands_to_complete
from penstock.client import HttpClient
from tests.support.ports import free_port
from tests.support.servers import RunningServer, bare_environment

PENSTOCK = [sys.executable, "-m", "penstock"]


def complete(line: str) -> list[str]:
    """How a line can go on from its last word, as bash asks for it."""
    words = line.split(" ")
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    environment = {**bare_environment(), **asked, "_PENSTOCK_COMPLETE": "complete_bash"}
    done = subprocess.run(PENSTOCK, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def named(http_server: RunningServer) -> RunningServer:
    with HttpClient(f"http://127.0.0.1:{http_server.port_of('http')}") as client:
        client.publish_many([{"topic": f"completed/{name}", "data": 1} for name in ("east", "west")])
        list(client.topics())  # so that the server has loaded what it needs to answer quickly
    return http_server


def complete_in_time(line: str) -> list[str]:
    """The same, tried again where the machine was too busy for half a second."""
    return next((found for _ in range(20) if (found := complete(line))), [])


def test_the_first_word_is_completed_to_every_command() -> None:
    assert set(complete("penstock ")) == set(COMMANDS)


def test_a_command_that_begins_like_another_does_not_hide_it() -> None:
    assert set(complete("penstock top")) == {"top", "topics"}


def test_flags_of_a_command_are_completed() -> None:
    assert complete("penstock pub --conn") == ["--connect-timeout"]


def test_commands_below_a_command_are_completed() -> None:
    assert complete("penstock log ver") == ["verify"]


def test_values_of_a_flag_are_completed() -> None:
    assert set(complete("penstock top --sort d")) == {"delivered", "dropped", "depth"}


def test_topics_of_a_running_server_are_completed(named: RunningServer) -> None:
    port = named.port_of("http")
    wanted = ["completed/east", "completed/west"]
    assert complete_in_time(f"penstock topics --port {port} completed/") == wanted
    assert complete_in_time(f"penstock why --port {port} --topic completed/w") == ["completed/west"]


def test_a_server_that_is_not_there_completes_nothing_and_says_nothing() -> None:
    assert complete(f"penstock topics --port {free_port()} a") == []


def test_what_is_wrong_so_far_completes_nothing_and_says_nothing() -> None:
    assert complete("penstock topics --address nonsense a") == []


def test_the_mqtt_port_is_not_asked_for_topics(named: RunningServer) -> None:
    assert complete(f"penstock pub --port {named.port_of('mqtt')} completed/") == []


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("penstock topics --po", ["topics"]),
        ("penstock to", ["topics", "top"]),
        ("penstock nothing-like-it", list(COMMANDS)),
    ],
)
def test_no_more_commands_are_loaded_than_a_line_can_mean(line: str, known: list[str]) -> None:
    environment = {"_PENSTOCK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    assert commands_to_complete(environment, COMMANDS) == known


def test_without_the_shells_question_nothing_is_completed() -> None:
    assert commands_to_complete({"COMP_WORDS": "penstock to"}, COMMANDS) is None


@pytest.mark.skipif(which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script_that_is_installed(tmp_path: Path) -> None:
    program = tmp_path / "penstock"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PENSTOCK)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = """
        penstock --install-completion >&2
        source ~/.bash_completions/penstock.sh
        COMP_WORDS=(penstock topics --se) COMP_CWORD=2
        _penstock_completion penstock
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "--search\n"
    assert "bash_completions/penstock.sh" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
