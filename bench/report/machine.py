"""Machine of a bench: numbers cannot be compared without it."""

import os
import platform
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from penstock.build import is_compiled


class Machine(Struct, frozen=True):
    """The computer, the interpreter, and the load average before the bench."""

    cpu_model: str
    cpus: int
    kernel: str
    python: str
    uvloop: str
    load_average: float
    file_system: str = ""
    """That of the data directories."""


def describe_machine(folder: Path) -> Machine:
    """Describe this machine and the file system of a folder."""
    return Machine(
        cpu_model=cpu_model(),
        cpus=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        python=python_version(),
        uvloop=_uvloop_version(),
        load_average=round(os.getloadavg()[0], 2),
        file_system=_file_system(folder),
    )


def build_of_server() -> str:
    """`compiled` or `interpreted`: which build of the hot path this environment runs."""
    return "compiled" if is_compiled() else "interpreted"


def python_version() -> str:
    """Implementation and version of this interpreter."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def cpu_model() -> str:
    """Model of the processor, as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    kinds = {Path(place): kind for _, place, kind, *_ in mounts}
    above = folder.resolve()
    return next((kinds[place] for place in (above, *above.parents) if place in kinds), "unknown")


def _uvloop_version() -> str:
    try:
        return metadata.version("uvloop")
    except metadata.PackageNotFoundError:
        return "not installed"
