"""How a command writes what it found, and how it ends when it could not come to its end."""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

INTERRUPTED = 130
"""How a command ends that Ctrl-C kept from its work; those that go on until Ctrl-C end with 0."""


class Output(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="FORMAT", help="How to write it: text or json.")
]


def forget_stdout() -> None:
    """Whoever read our output has gone: let the last flush at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
