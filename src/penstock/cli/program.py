"""What this command is called where it runs."""

import shlex
import sys
from pathlib import Path
from shutil import which


def program() -> str:
    """How to call this command, so that what is shown can be copied as it is."""
    if which("penstock"):
        return "penstock"
    if Path(sys.argv[0]).name == "penstock":
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m penstock"
