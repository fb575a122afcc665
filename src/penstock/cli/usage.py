"""How the command line as a whole behaves, whatever the command: the order of its overview, and how it ends.

A wrong call is told like every other error, as one line on standard error that says where to look. Standard
output is UTF-8 in every locale, as `sub` and JSON have to be; a reader of it who leaves is no failure.
"""

import os
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from penstock.cli import COMMANDS
from penstock.cli.output import INTERRUPTED, forget_stdout

WRONG_CALL: Any = typer.BadParameter.__base__
"""What typer raises for a command line that it does not understand; it exports only the one kind of it."""
SAY_NOTHING = re.compile(r"^Invalid value: |(?<=: )Value error, ")
"""What typer puts before texts that say by themselves what is wrong."""


class Overview(TyperGroup):
    """All commands, in one order; typer would have those with commands of their own at the end."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands as the overview lists them."""
        names = super().list_commands(ctx)
        return sorted(names, key=[*COMMANDS, *names].index)

    def invoke(self, ctx: Any) -> Any:
        """Run a command until its output is written, or nobody reads it any more."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            forget_stdout()
            raise typer.Exit(0) from None
        return answer


def run(app: typer.Typer, words: Sequence[str]) -> int:
    """Run a command line, and answer how the process is to end."""
    _prepare_streams()
    try:
        _check(words)
        return app(args=words, prog_name="penstock", standalone_mode=False) or 0
    except typer.Abort:  # nobody wanted to answer what was asked
        return INTERRUPTED
    except WRONG_CALL as error:
        if text := error.format_message():  # there is none where the overview was shown
            print(
                f"error: {_told(text, error.ctx.command_path if error.ctx else 'penstock')}", file=sys.stderr
            )
        return int(error.exit_code)
    except OSError as error:  # a disk is full, for one
        print(
            f"error: {': '.join(map(str, filter(None, (error.filename, error.strerror))))}", file=sys.stderr
        )
        forget_stdout()
        return 1


def _prepare_streams() -> None:
    """Let whatever a command writes be written somewhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed by whoever called
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _check(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"{word!a} is not UTF-8; pub takes any bytes with --file") from None


def _told(text: str, command: str) -> str:
    """What is wrong in one line, and where to look."""
    words = " ".join(SAY_NOTHING.sub("", text).split())
    end = "" if words.endswith((".", "?")) else "."
    return f"{words[:1].lower()}{words[1:]}{end} See {command} --help."
