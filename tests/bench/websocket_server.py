"""Minimal WebSocket server for one publisher and one subscriber: first messages in a given order."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from threading import Thread

import msgspec

UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
INFO = b'{"type":"info","message":"Connected"}'
SUBSCRIBED = b'{"type":"ack","request_type":"subscribe"}'
PUBLISHED = b'{"type":"ack","request_type":"publish"}'
CLOSING = b"\x88\x06\x03\xf0slow"


@contextmanager
def websocket_server(order: str, *, last_words: bytes = b"") -> Iterator[int]:
    """Its port.

    Args:
        order: the first three messages as the subscriber gets them: swapped, doubled, lost.
        last_words: what the subscriber gets behind them, as they are.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve, args=(server, order, last_words))
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def serve(server: socket.socket, order: str, last_words: bytes) -> None:
    with ExitStack() as stack:
        maker, asked = accept(server, stack)
        take_head(asked)
        maker.sendall(CREATED)
        subscriber, asked = accept(server, stack)
        take_head(asked)
        subscriber.sendall(UPGRADE + frame(INFO))
        take_text(asked)
        subscriber.sendall(frame(SUBSCRIBED))
        publisher, published = accept(server, stack)
        take_head(published)
        publisher.sendall(UPGRADE + frame(INFO))
        with suppress(EOFError, OSError):
            forward(published, publisher, subscriber, order, last_words)


def forward(
    published: BufferedReader,
    publisher: socket.socket,
    subscriber: socket.socket,
    order: str,
    last_words: bytes,
) -> None:
    first = [event(take_text(published)) for _ in range(3)]
    publisher.sendall(frame(PUBLISHED) * 3)
    for index in order:
        subscriber.sendall(first[int(index)])
    subscriber.sendall(last_words)
    while True:
        subscriber.sendall(event(take_text(published)))
        publisher.sendall(frame(PUBLISHED))


def accept(server: socket.socket, stack: ExitStack) -> tuple[socket.socket, BufferedReader]:
    client = stack.enter_context(server.accept()[0])
    return client, stack.enter_context(client.makefile("rb"))


def take_head(stream: BufferedReader) -> None:
    length = 0
    while (line := stream.readline()) not in {b"\r\n", b""}:
        if line.lower().startswith(b"content-length:"):
            length = int(line[15:])
    stream.read(length)


def take_text(stream: BufferedReader) -> bytes:
    header = stream.read(2)
    if not header:
        raise EOFError
    size = header[1] & 0x7F
    if size == 126:
        size = int.from_bytes(stream.read(2), "big")
    mask = stream.read(4)
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(stream.read(size)))


def event(published: bytes) -> bytes:
    message = msgspec.json.decode(published, type=dict[str, str])
    topic, data = message["topic"], message["data"]
    return frame(msgspec.json.encode({"type": "event", "topic": topic, "data": data, "message_id": "1"}))


def frame(text: bytes) -> bytes:
    size = bytes([len(text)]) if len(text) < 126 else b"\x7e" + len(text).to_bytes(2, "big")
    return b"\x81" + size + text
