"""Fork server: starts servers in processes that need not import Penstock again.

A fresh `penstock serve` spends nearly all of its start on imports. `ForkServer` starts one process that has
done them, and forks it for each server. The new process has the caller as its parent, like any other process
that the caller starts: the one in between ends at once, and orphans become children of a subreaper.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

PR_SET_CHILD_SUBREAPER = 36
IS_SUPPORTED = sys.platform == "linux"
REQUEST_BYTES = 1 << 20
PRELOADED = (
    "penstock.__main__",
    "penstock.app.logging",
    "penstock.app.run",
    "penstock.app.server",
    "penstock.cli.commands.serve",
    "yaml",
)
"""Modules that every server imports, beside its doors; none of them starts a thread."""
OPTIONAL = ("typer._adapters", "uvloop")
"""Modules that servers import where they exist."""


class ForkedProcess(subprocess.Popen[bytes]):
    """Child process that was not started by `Popen`."""

    def __init__(self, words: Sequence[str], pid: int) -> None:  # its parent's would start a process
        self.args, self.pid, self.returncode = words, pid, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()


class ForkServer:
    """Process that forks; started with the first request, and ended with `close`."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def fork(
        self, words: Sequence[str], environment: Mapping[str, str], stdout: Path, stderr: Path
    ) -> ForkedProcess:
        """Run `penstock` with these words in a new child process of this one."""
        for output in (stdout, stderr):
            output.write_bytes(b"")  # it exists as soon as this returns
        request = [list(words), dict(environment), os.getcwd(), str(stdout), str(stderr)]  # noqa: PTH109
        with self._lock:
            connection = self._socket or self._start()
            _adopt_orphans(True)
            try:
                connection.send(json.dumps(request).encode())
                reply = connection.recv(64)
            finally:
                _adopt_orphans(False)
        if not reply:
            raise RuntimeError("the fork server has ended")
        return ForkedProcess(words, int(reply))

    def _start(self) -> socket.socket:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            other.set_inheritable(True)
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(other.fileno())],  # -P: the modules here hide others
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )
        return self._socket

    def close(self) -> None:
        """End it; its forks go on."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(30)
            self._socket = self._process = None


def _adopt_orphans(is_on: bool) -> None:
    """Let orphans below this process become its children, or those of init."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")


def _serve_forks(connection: socket.socket) -> list[str] | None:
    """Fork for each request; return in a fork with its words, and with None when the caller has gone."""
    while request := connection.recv(REQUEST_BYTES):
        reader, writer = os.pipe()
        between = os.fork()
        if between:
            os.close(writer)
            os.waitpid(between, 0)  # from now on the fork is the caller's child
            connection.send(os.read(reader, 64))
            os.close(reader)
            continue
        pid = os.fork()
        if pid:
            os.write(writer, b"%d" % pid)
            os._exit(0)
        os.close(reader)
        os.close(writer)
        connection.close()
        words, environment, folder, *outputs = json.loads(request)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        for number, output in enumerate(outputs, 1):
            opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(opened, number)
            os.close(opened)
        return list(words)
    return None


def _main() -> None:
    doors = import_module("penstock.doors")
    for module in (*PRELOADED, *(found.name for found in walk_packages(doors.__path__, "penstock.doors."))):
        import_module(module)
    for module in OPTIONAL:
        with suppress(ImportError):
            import_module(module)
    words = _serve_forks(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        main = import_module("penstock.__main__")
        sys.argv = [str(main.__file__), *words]
        main.main()


if __name__ == "__main__":
    _main()
