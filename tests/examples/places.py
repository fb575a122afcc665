"""Place for a demonstration in a test: folders of its own, and no Java."""

import subprocess
import sys
from pathlib import Path

from tests.support.servers import bare_environment

PENSTOCK = [sys.executable, "-m", "penstock", "demo"]
PROGRAMS = (Path("/usr/bin"), Path("/bin"))


class Place:
    """Folders and environment of a machine without Java."""

    def __init__(self, folder: Path) -> None:
        self.here = folder / "here"
        self.temporary = folder / "tmp"
        programs = folder / "bin"
        for each in (self.here, self.temporary, programs):
            each.mkdir()
        _link_all_but_java(programs)
        self._environment = {
            **{name: value for name, value in bare_environment().items() if name != "JAVA_HOME"},
            "PATH": str(programs),
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def start(self, *flags: str) -> "subprocess.Popen[str]":
        """Start a demonstration here."""
        return subprocess.Popen(
            [*PENSTOCK, *flags],
            cwd=self.here,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def left_files(self) -> list[str]:
        """Files that are left in its folders."""
        return [path.name for folder in (self.here, self.temporary) for path in folder.iterdir()]

    @property
    def left_processes(self) -> list[str]:
        """Processes with a path of this place in their command line."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended
                continue
            if str(self.temporary) in words or str(self.here) in words:
                found.append(words)
        return found


def _link_all_but_java(folder: Path) -> None:
    for known in PROGRAMS:
        for program in known.iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
