"""Where a bench was made: without it, its numbers mean nothing later."""

import os
import platform
from importlib import metadata
from pathlib import Path

from msgspec import Struct


class Machine(Struct, frozen=True):
    """The computer and the interpreter, and how busy the computer was before we began."""

    cpu_model: str
    cpus: int
    kernel: str
    python: str
    uvloop: str
    load_average: float


def describe_machine() -> Machine:
    """Look at the machine we run on."""
    return Machine(
        cpu_model=_cpu_model(),
        cpus=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        uvloop=_uvloop_version(),
        load_average=round(os.getloadavg()[0], 2),
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _uvloop_version() -> str:
    try:
        return metadata.version("uvloop")
    except metadata.PackageNotFoundError:
        return "not installed"
