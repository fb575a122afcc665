"""CPU of a link between two processes: a stream both ways over HTTP/2, and what else could carry it.

    python -m bench.micro.http2_link [--rounds 15] [--sockets]

A client sends messages of 128 bytes on one long stream; the server reads and consumes them, and settles each
turn with a short message, which the client reads. A turn is one message (`lone`), 100 messages that leave
together (`joined`), or 100 payloads in one message (`batch`). The figures are CPU time for each payload.

In memory: our own client and server, those of `h2`, and `raw`: lengths before messages and nothing else,
which is the least that any transport costs. With `--sockets`: both sides on a Unix socket in one process
with uvloop, our own and those of grpcio; a turn begins when the last one is settled.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from statistics import median
from time import process_time_ns, thread_time_ns
from typing import NamedTuple, Protocol

import uvloop
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, ResponseReceived
from h2.settings import SettingCodes

from penstock.build import build_name
from penstock.wire.grpc import HEAD, MessageReader, encode_message
from penstock.wire.http2 import (
    BodyReceived,
    ClientConnection,
    RequestStarted,
    ServerConnection,
    encode_request,
)

METHOD = "/penstock.peer.v1.Peer/RoutePublish"
GRPC = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
BLOCK = encode_request(b"POST", METHOD.encode(), b"peer", GRPC)
PAYLOAD = bytes(128)
SETTLED = encode_message(b"\x08\x01\x10\x64")
LAST = b"\1"
"""First byte of the last message of a turn for grpcio, whose reads do not show what came together."""
LIMIT_BYTES = 1_048_576
STREAM_ID = 1


class Load(NamedTuple):
    """A kind of turn."""

    name: str
    messages: list[bytes]
    """Of a turn."""
    payloads: int
    turns: int
    """Of a round; all of them fit into half a window, the rest of which may not be given back yet."""


LOADS = (
    Load("lone", [PAYLOAD], 1, 2_000),
    Load("joined", [PAYLOAD] * 100, 100, 30),
    Load("batch", [PAYLOAD * 100], 100, 30),
)


class Transport(Protocol):
    """Both ends of a stream, in memory."""

    def ask(self, body: bytes) -> bytes:
        """The client sends; returned are bytes to write."""

    def answer(self, chunk: bytes) -> tuple[int, bytes]:
        """The server reads messages and settles them; returned are their number and bytes to write."""

    def settle(self, chunk: bytes) -> int:
        """The client reads; returned is the number of messages."""


class Ours:
    """Our own client and server."""

    def __init__(self) -> None:
        self._client, self._server = ClientConnection(), ServerConnection()
        self._asked, self._settled = MessageReader(LIMIT_BYTES), MessageReader(LIMIT_BYTES)
        self._client.request(BLOCK)
        self._server.feed(self._client.drain(), 0.0)
        self._server.respond(STREAM_ID, HEAD)
        self._client.feed(self._server.drain(), 0.0)
        self._server.feed(self._client.drain(), 0.0)

    def ask(self, body: bytes) -> bytes:
        self._client.send(STREAM_ID, body)
        return self._client.drain()

    def answer(self, chunk: bytes) -> tuple[int, bytes]:
        server, count = self._server, 0
        for event in server.feed(chunk, 0.0):
            if type(event) is BodyReceived:
                count += len(self._asked.feed(event.data))
                server.consumed(STREAM_ID, len(event.data))
        server.send(STREAM_ID, SETTLED)
        return count, server.drain()

    def settle(self, chunk: bytes) -> int:
        client, count = self._client, 0
        for event in client.feed(chunk, 0.0):
            if type(event) is BodyReceived:
                count += len(self._settled.feed(event.data))
                client.consumed(STREAM_ID, len(event.data))
        return count


class H2:
    """The client and the server of the library `h2`."""

    def __init__(self) -> None:
        self._client, self._server = (
            H2Connection(H2Configuration(client_side=is_client, header_encoding=None))
            for is_client in (True, False)
        )
        self._asked, self._settled = MessageReader(LIMIT_BYTES), MessageReader(LIMIT_BYTES)
        for side in (self._client, self._server):
            side.initiate_connection()
            side.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: LIMIT_BYTES})
            side.increment_flow_control_window(16 * LIMIT_BYTES)
        self._exchange()
        fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", METHOD.encode())]
        self._client.send_headers(STREAM_ID, [*fields, (b":authority", b"peer"), *GRPC])
        self._exchange()
        self._server.send_headers(STREAM_ID, [(b":status", b"200"), GRPC[1]])
        self._exchange()

    def _exchange(self) -> None:
        for _ in range(2):
            self._server.receive_data(self._client.data_to_send())
            self._client.receive_data(self._server.data_to_send())

    def ask(self, body: bytes) -> bytes:
        self._client.send_data(STREAM_ID, body)
        return self._client.data_to_send()

    def answer(self, chunk: bytes) -> tuple[int, bytes]:
        server = self._server
        count = self._read(server, self._asked, chunk)
        server.send_data(STREAM_ID, SETTLED)
        return count, server.data_to_send()

    def settle(self, chunk: bytes) -> int:
        return self._read(self._client, self._settled, chunk)

    def _read(self, side: H2Connection, reader: MessageReader, chunk: bytes) -> int:
        count = 0
        for event in side.receive_data(chunk):
            assert not isinstance(event, RequestReceived | ResponseReceived)
            if isinstance(event, DataReceived):
                count += len(reader.feed(event.data or b""))
                side.acknowledge_received_data(event.flow_controlled_length or 0, STREAM_ID)
        return count


class Raw:
    """Lengths and messages, without streams, windows, names, pings or a goodbye."""

    def __init__(self) -> None:
        self._asked, self._settled = MessageReader(LIMIT_BYTES), MessageReader(LIMIT_BYTES)

    def ask(self, body: bytes) -> bytes:
        return body

    def answer(self, chunk: bytes) -> tuple[int, bytes]:
        return len(self._asked.feed(chunk)), SETTLED

    def settle(self, chunk: bytes) -> int:
        return len(self._settled.feed(chunk))


def measure(transport: Transport, load: Load) -> tuple[float, float]:
    """Microseconds of the client and of the server for each payload, in one round."""
    encode, turns = encode_message, range(load.turns)
    begun = thread_time_ns()
    asked = [transport.ask(b"".join([encode(message) for message in load.messages])) for _ in turns]
    sent = thread_time_ns()
    answered = [transport.answer(chunk) for chunk in asked]
    served = thread_time_ns()
    settled = sum([transport.settle(chunk) for _, chunk in answered])
    ended = thread_time_ns()
    assert settled == load.turns
    assert sum(count for count, _ in answered) == load.turns * len(load.messages)
    payloads = 1_000 * load.turns * load.payloads
    return (sent - begun + ended - served) / payloads, (served - sent) / payloads


def print_memory(rounds: int) -> None:
    """Measure all transports in turns, so that a busy machine disturbs all of them."""
    made: dict[str, Transport] = {"ours": Ours(), "h2": H2(), "raw": Raw()}
    print(f"{'us CPU/payload':<16} {'':<8} {'client':>8} {'server':>8} {'both':>8} {'median':>8}")
    for load in LOADS:
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
        for number in range(rounds + 1):
            for name, transport in made.items():
                gc.collect()
                found = measure(transport, load)
                if number:  # the first warms up
                    taken[name].append(found)
        for name, figures in taken.items():
            client, server = min(figures, key=sum)
            middle = median(map(sum, figures))
            both = client + server
            print(f"{load.name:<16} {name:<8} {client:>8.3f} {server:>8.3f} {both:>8.3f} {middle:>8.3f}")


# Sockets


class Serving(asyncio.Protocol):
    """Our server on a socket: settles whatever one read brings."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._http2 = ServerConnection()
        self._reader = MessageReader(LIMIT_BYTES)

    def data_received(self, data: bytes) -> None:
        http2 = self._http2
        for event in http2.feed(data, 0.0):
            if type(event) is BodyReceived:
                messages = self._reader.feed(event.data)
                http2.consumed(STREAM_ID, len(event.data))
                if messages:
                    http2.send(STREAM_ID, encode_message(b"%d" % len(messages)))
            elif type(event) is RequestStarted:
                http2.respond(STREAM_ID, HEAD)
        self._transport.write(http2.drain())  # type: ignore[attr-defined]


class Asking(asyncio.Protocol):
    """Our client on a socket: one turn after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._http2 = ClientConnection()
        self._reader = MessageReader(LIMIT_BYTES)
        self._left = 0
        self._settled: asyncio.Future[None] | None = None
        self._http2.request(BLOCK)

    def data_received(self, data: bytes) -> None:
        http2 = self._http2
        for event in http2.feed(data, 0.0):
            if type(event) is BodyReceived:
                self._left -= sum([int(message) for message in self._reader.feed(event.data)])
                http2.consumed(STREAM_ID, len(event.data))
        if not self._left and self._settled is not None:
            self._settled.set_result(None)
            self._settled = None

    async def turn(self, load: Load) -> None:
        """Send the messages of a turn in one write, and wait until all are settled."""
        self._left = len(load.messages)
        self._settled = settled = asyncio.get_running_loop().create_future()
        self._http2.send(STREAM_ID, b"".join([encode_message(message) for message in load.messages]))
        self._transport.write(self._http2.drain())  # type: ignore[attr-defined]
        await settled


async def measure_turns(turn: Callable[[Load], Awaitable[None]], load: Load, rounds: int) -> list[float]:
    """Microseconds of the process for each payload, by round."""
    figures = []
    for _ in range(rounds + 1):
        gc.collect()
        begun = process_time_ns()
        for _ in range(load.turns):
            await turn(load)
        figures.append((process_time_ns() - begun) / (1_000 * load.turns * load.payloads))
    return figures[1:]


async def measure_ours(rounds: int, folder: str) -> dict[str, list[float]]:
    """Both of our sides in this process."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(Serving, f"{folder}/ours")
    transport, client = await loop.create_unix_connection(Asking, f"{folder}/ours")
    figures = {load.name: await measure_turns(client.turn, load, rounds) for load in LOADS}
    transport.close()
    server.close()
    return figures


async def measure_grpcio(rounds: int, folder: str) -> dict[str, list[float]]:
    """Both sides of grpcio in this process, without any message classes."""
    import grpc.aio  # noqa: PLC0415 - it takes a moment to load

    async def serve(requests: object, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        while isinstance(message := await context.read(), bytes):  # not `EOF`
            if message.startswith(LAST):
                await context.write(b"1")

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(serve)
    service, method = METHOD[1:].split("/")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    server.add_insecure_port(f"unix:{folder}/grpcio")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{folder}/grpcio") as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(METHOD)()

        async def turn(load: Load) -> None:
            for message in load.messages[:-1]:
                await call.write(message)
            await call.write(LAST + load.messages[-1][1:])
            await call.read()

        figures = {load.name: await measure_turns(turn, load, rounds) for load in LOADS}
        call.cancel()
    await server.stop(0)
    return figures


async def print_sockets(rounds: int) -> None:
    """Both sides on a Unix socket, with the loop and the kernel."""
    with tempfile.TemporaryDirectory() as folder:
        found = {"ours": await measure_ours(rounds, folder), "grpcio": await measure_grpcio(rounds, folder)}
    print(f"\n{'with a socket':<16} {'':<8} {'both':>8} {'median':>8}")
    for load in LOADS:
        for name, figures in found.items():
            taken = figures[load.name]
            print(f"{load.name:<16} {name:<8} {min(taken):>8.3f} {median(taken):>8.3f}")


def main() -> None:
    """Print one line for each load and transport."""
    parser = argparse.ArgumentParser(description="CPU time of a link for each message, by transport.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sockets", action="store_true", help="with a Unix socket, too")
    options = parser.parse_args()
    print(f"{build_name()} build")
    print_memory(options.rounds)
    if options.sockets:
        uvloop.run(print_sockets(options.rounds))


if __name__ == "__main__":
    main()
