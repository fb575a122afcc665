"""Scripted HTTP server, for behaviour that no real server shows."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

Script = Callable[["Caller"], object]
PATIENCE_S = 20.0


class Caller:
    """One connection of the client, as the script sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._file = connection.makefile("rb")

    def take(self) -> tuple[str, dict[str, str], bytes]:
        """The next request: its first line, its headers and its body."""
        first = self._file.readline().decode().strip()
        headers: dict[str, str] = {}
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return first, headers, self._file.read(int(headers.get("content-length", 0)))

    def is_silent(self) -> bool:
        """The client hangs up without another word."""
        return self._file.read(1) == b""

    def answer(
        self, body: bytes = b"{}", status: str = "200 OK", content_type: str = "application/json"
    ) -> None:
        """A complete answer."""
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)


@contextmanager
def scripted(*scripts: Script) -> Iterator[str]:
    """The address of a server with one script for each connection, in order; its failures are ours."""
    failures: list[BaseException] = []
    waiting = list(scripts)

    def serve() -> None:
        while waiting:
            connection, _ = listener.accept()
            script = waiting.pop(0)
            with connection:
                connection.settimeout(PATIENCE_S)
                try:
                    script(Caller(connection))
                except BaseException as error:
                    failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody else came
            listener.accept()
    assert not failures, failures
    assert not waiting, f"{len(waiting)} connections never came"
