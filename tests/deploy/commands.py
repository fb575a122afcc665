"""Whether a command that a file has written down is one of ours."""

from collections.abc import Sequence
from typing import Any

import typer.main

from penstock.cli import COMMANDS, build


def check_words(words: Sequence[str]) -> None:
    """Fail unless these are a command, its flags and values that it takes; nothing is run."""
    command: Any = typer.main.get_command(build(COMMANDS))
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(command.name, rest)
