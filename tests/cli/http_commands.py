"""How the tests run a command that asks a server over HTTP."""

from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from typer.testing import CliRunner, Result

from penstock.cli import build
from tests.client.http.scripts import Caller, scripted


def run(port: int, command: str, *words: str) -> Result:
    """Run a command against the server on a port, within this process."""
    app = build([command, "health"])  # an app with one command alone would not take its name
    return CliRunner().invoke(app, [command, *words, "--port", str(port)])


def port_of(address: str) -> int:
    """The port of an address."""
    port = urlsplit(address).port
    assert port is not None
    return port


def answering(*answers: object, status: str = "200 OK") -> AbstractContextManager[str]:
    """A server that gives these answers to the requests on its first connection."""

    def script(caller: Caller) -> None:
        for answer in answers:
            caller.take()
            caller.answer(msgspec.json.encode(answer), status)

    return scripted(script)


def rows_of(result: Result) -> list[dict[str, Any]]:
    """What a command wrote as JSON lines."""
    assert result.exit_code == 0, result.output
    return [msgspec.json.decode(line) for line in result.stdout.splitlines()]
