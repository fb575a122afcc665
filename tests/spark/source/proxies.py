"""Something between a reader and its server that breaks connections."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Hands on what a server says; of the first connections only so many bytes, then it hangs up."""

    def __init__(self, address: str, cuts: Sequence[int]) -> None:
        parts = urlsplit(address)
        self._server = (parts.hostname, parts.port)
        self._cuts = list(cuts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0

    def run(self) -> None:
        """Serve one connection after another, until it is closed."""
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with client, socket.create_connection(self._server) as server:
                threading.Thread(target=_pump, args=(client, server, None)).start()
                _pump(server, client, self._cuts.pop(0) if self._cuts else None)

    def close(self) -> None:
        """Hang up on everybody."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def _pump(source: socket.socket, target: socket.socket, left: int | None) -> None:
    with suppress(OSError):
        while left is None or left > 0:
            data = source.recv(65536 if left is None else min(left, 65536))
            if not data:
                break
            target.sendall(data)
            left = None if left is None else left - len(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(address: str, *cuts: int) -> Iterator[Proxy]:
    """A proxy that cuts the first connections after so many bytes, each after its own."""
    running = Proxy(address, cuts)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield running
    finally:
        running.close()
        thread.join()
