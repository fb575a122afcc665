"""Programs the bench needs and their Debian packages."""

import os
import shutil
import subprocess
from collections.abc import Callable

from penstock.cli.bench.problems import BenchError

INSTALL_TIMEOUT_S = 300


def require(program: str, packages: tuple[str, ...], say: Callable[[str], None]) -> str:
    """The path of a program; installs its packages when it is missing and we are root on a Debian."""
    found = find(program)
    if found is not None:
        return found
    advice = f"{program} is missing; install it with: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or find("apt-get") is None:
        raise BenchError(advice)
    say(f"{program} is missing: installing {' '.join(packages)}")
    _install(packages, advice)
    found = find(program)
    if found is None:
        raise BenchError(advice)
    return found


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
