"""Command line of Penstock: parses flags, calls the rooms below, and prints what they return.

`main.py` has the entry point and the list of commands; `flags.py`, `connect.py`, `output.py` and `errors.py`
are shared by the commands in `commands/`, `log/` and `pipeline/`.
"""

from penstock.cli.main import COMMANDS, build, main

__all__ = ["COMMANDS", "build", "main"]
