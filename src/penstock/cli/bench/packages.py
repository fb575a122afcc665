"""Programs the bench needs and their Debian packages."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from penstock.cli.bench.problems import BenchError

INSTALL_TIMEOUT_S = 300


def require(
    program: str, packages: tuple[str, ...], say: Callable[[str], None], files: tuple[str, ...] = ()
) -> str:
    """The path of a program; installs its packages when it is missing and we are root on a Debian.

    Args:
        files: what has to be there besides.
    """
    found, missing = _look(program, files)
    if found is not None and missing is None:
        return found
    advice = f"{missing} is missing; install it with: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or find("apt-get") is None:
        raise BenchError(advice)
    say(f"{missing} is missing: installing {' '.join(packages)}")
    _install(packages, advice)
    found, missing = _look(program, files)
    if found is None or missing is not None:
        raise BenchError(advice)
    return found


def _look(program: str, files: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Where a program is, and what is missing of it and its files."""
    found = find(program)
    absent = [file for file in files if not Path(file).exists()]
    return found, program if found is None else next(iter(absent), None)


def find(program: str) -> str | None:
    """Where a program is; servers often sit in directories that are not on a user's path."""
    return shutil.which(program) or shutil.which(program, path="/usr/local/sbin:/usr/sbin:/sbin")


def _install(packages: tuple[str, ...], advice: str) -> None:
    # RUNLEVEL=1 keeps the package from starting a server of its own.
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    wait_for_lock = ("-o", "DPkg::Lock::Timeout=120")
    try:
        for step in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
            command = ["apt-get", "-qq", *wait_for_lock, *step]
            done = subprocess.run(
                command, env=quiet, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
            if done.returncode:
                raise BenchError(f"{advice}\n{done.stderr.strip()}")
    except subprocess.TimeoutExpired as error:
        raise BenchError(advice) from error
