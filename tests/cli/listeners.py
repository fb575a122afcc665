"""Somebody at a port, for tests about who is there."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 30.0


@contextmanager
def saying(words: bytes) -> Iterator[int]:
    """A port that says the same to everybody, after they have said something, and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(PATIENCE_S)
                connection.recv(4096)
                connection.sendall(words)

    thread = threading.Thread(target=serve)
    thread.start()
    yield int(listener.getsockname()[1])
    is_over.set()
    thread.join()
    listener.close()


@contextmanager
def running(words: list[str], port: int, folder: Path) -> Iterator[int]:
    """A program that listens at a port."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, cwd=folder)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nobody listens at {port}")
