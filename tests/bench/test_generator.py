"""Load generator for brokers, against servers that lose, swap and duplicate messages."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from threading import Thread

import pytest

from bench.load.generator import LoadGenerator
from bench.peers.target import Target
from bench.scenarios import SCENARIOS

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


@needs_gcc
@pytest.mark.parametrize(
    ("order", "lost", "order_errors", "failure"),
    [
        ("012", 0, 0, None),
        ("021", 0, 3, "3 out of order"),  # 2 comes early, 1 late, and 3 not after 2
        ("0112", None, 1, None),  # whether the run ends before the last message or after it is a race
        ("02", 1, 1, "lost 1"),
    ],
)
def test_generator_notices_what_a_broker_does_to_the_first_three_messages(
    generator: LoadGenerator, order: str, lost: int | None, order_errors: int, failure: str | None
) -> None:
    with tampering_broker(order) as port:
        found = generator.measure(SCENARIOS["one2one"], Target("bad", "mqtt", "127.0.0.1", port))
    assert found.error is None
    assert found.order_errors == order_errors
    if lost is None:
        assert found.failure is not None
    else:
        assert (found.lost, found.failure) == (lost, failure)


@needs_gcc
def test_run_without_a_server_is_a_failed_run_and_not_a_crash(generator: LoadGenerator) -> None:
    found = generator.measure(SCENARIOS["mixed"], Target("missing", "mqtt", "127.0.0.1", 1))
    assert found.failure == "connect: Connection refused"


CONNACK = bytes([0x20, 2, 0, 0])


SUBACK = bytes([0x90, 3, 0, 1, 0])


@contextmanager
def tampering_broker(order: str) -> Iterator[int]:
    """Broker for one publisher: forwards the first three messages in a given order."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=tamper, args=(server, order))
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def tamper(server: socket.socket, order: str) -> None:
    with ExitStack() as stack:
        subscriber, asked = accept_client(server, stack)
        take_packet(asked)
        subscriber.sendall(SUBACK)
        _, published = accept_client(server, stack)
        first = [take_packet(published) for _ in range(3)]
        for index in order:
            subscriber.sendall(first[int(index)])
        with suppress(EOFError, ConnectionError):
            while True:
                subscriber.sendall(take_packet(published))


def accept_client(server: socket.socket, stack: ExitStack) -> tuple[socket.socket, BufferedReader]:
    client = stack.enter_context(server.accept()[0])
    stream = stack.enter_context(client.makefile("rb"))
    take_packet(stream)
    client.sendall(CONNACK)
    return client, stream


def take_packet(stream: BufferedReader) -> bytes:
    header = stream.read(2)
    if not header:
        raise EOFError
    return header + stream.read(header[1])  # every packet here is shorter than 128 bytes
