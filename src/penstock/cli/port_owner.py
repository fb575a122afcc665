"""Owner of a port that is in use, as /proc names it, and the advice that goes with the error.

Linux alone has /proc; without it, and without the right to look at another user's process, the owner is
unknown.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""
IN_USE = re.compile(
    rf"(?P<key>[\w.]+): cannot listen on \S*:(?P<port>\d+): {re.escape(os.strerror(errno.EADDRINUSE))}"
)


def explain_port_in_use(text: str, flags: Mapping[str, str]) -> str:
    """Add to an error about a port in use its owner, and the flag that sets another port.

    Args:
        flags: flag of each setting that has one.
    """
    found = IN_USE.fullmatch(text)
    if found is None:
        return text
    owner = find_owner(int(found["port"]))
    by = f" by {owner}" if owner else ""
    flag = flags.get(found["key"])
    advice = f"{flag}, or the setting {found['key']}," if flag else f"the setting {found['key']}"
    return f"{text}{by}. Stop that, or choose another port: {advice} takes one; 0 takes a free one."


def find_owner(port: int, proc: Path = PROC) -> str | None:
    """The process that listens on a port: `process 42 (mosquitto)`; None if it is not known."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return None
    for process in proc.iterdir():
        if process.name.isdigit() and _holds(process, sockets):
            name = ""
            with suppress(OSError):
                name = f" ({(process / 'comm').read_text(encoding='utf-8', errors='replace').strip()})"
            return f"process {process.name}{name}"
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """Inodes of the sockets that listen on a port."""
    for name in ("tcp", "tcp6"):
        lines: list[str] = []
        with suppress(OSError):
            lines = (proc / "net" / name).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        for line in lines:
            columns = line.split()
            if (
                len(columns) > 9
                and columns[3] == LISTENING
                and int(columns[1].rpartition(":")[2], 16) == port
            ):
                yield columns[9]


def _holds(process: Path, sockets: set[str]) -> bool:
    """True if a process has one of these sockets open; False if it may not be looked at."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()) in sockets:
                    return True
    return False
