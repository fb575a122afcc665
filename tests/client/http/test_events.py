"""Streams of events: an end that the server names, and one that it does not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client import ConnectionLost, HttpClient
from penstock.client.http.events import Event

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
MESSAGE = b'data: {"topic": "a"}\n\n'
END = b'event: end\ndata: {"code": "shutting-down"}\n\n'


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def serving(response: bytes) -> Iterator[HttpClient]:
    """A client of a server that sends one response and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        with HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=20) as client:
            yield client
        thread.join(20)


@pytest.mark.parametrize(
    "response",
    [
        HEAD + b"Connection: close\r\n\r\n" + MESSAGE,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(MESSAGE),
    ],
    ids=["plain", "chunked"],
)
def test_stream_that_breaks_is_not_taken_for_one_that_ends(response: bytes) -> None:
    with serving(response) as client, client.events(["a"]) as events:
        received = iter(events)
        assert next(received) == Event("", b'{"topic": "a"}')
        with pytest.raises(ConnectionLost, match="broke"):
            next(received)


def test_stream_that_the_server_ends_ends() -> None:
    response = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(MESSAGE) + chunked(END) + chunked(b"")
    with serving(response) as client, client.events(["a"]) as events:
        assert [event.name for event in events] == ["", "end"]
