"""Workloads of the other doors: gRPC calls, `/ws` messages, and requests to streams."""

import json
from collections.abc import Sequence
from uuid import UUID

from bench.cost.harness import PEER, TOTAL, Laps, SinkTransport, Site, require_count
from bench.errors import BenchError
from penstock.core.access.identity import Identity
from penstock.doors.sidecar.transport.connection import Connection as GrpcConnection
from penstock.doors.web.socket.door import PATH as SOCKET_PATH
from penstock.net.door import Peer
from penstock.net.http.connection import HttpConnection
from penstock.wire.grpc import encode_message
from penstock.wire.sidecar.messages import nexusd

CALLERS = 16
"""Calls and requests in one turn, each of a caller with one in flight."""
MESSAGES_IN_FLIGHT = 16
WINDOW_BYTES = 2**30
"""Responses that the client takes without further window updates."""
TOPIC = "bench/site-000/sensor/tempr"
PAYLOAD = b"x" * 128
DATA = "x" * 62
"""A JSON string of 64 bytes."""
STREAMS = "/api/v1/streams"
PUBLISH_CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/nexusd.sidecar.SidecarService/Publish"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-c++/1.51.1"),
    ("te", "trailers"),
]


class GrpcPublishes:
    """Unary publishes of 16 callers on one channel; no subscribers."""

    def __init__(self, site: Site, count: int) -> None:
        from h2.connection import H2Connection  # noqa: PLC0415 - of the extra `dev`

        self._turns = max(count // CALLERS, 1)
        self.count = self._turns * CALLERS
        self._site = site
        self._client = H2Connection()
        self._ended = 0
        self._transport = SinkTransport()
        self._connection = GrpcConnection(site.server.sidecar, Peer(*PEER))
        self._transport.open(self._connection)
        self._client.initiate_connection()
        self._client.increment_flow_control_window(WINDOW_BYTES)
        self._exchange()
        request = nexusd.PublishRequest(topic=TOPIC, payload=PAYLOAD)
        self._request = encode_message(request.SerializeToString())

    def _exchange(self) -> None:
        """Give the client's bytes to the server, and the server's to the client."""
        from h2.events import StreamEnded, StreamReset  # noqa: PLC0415

        self._connection.data_received(self._client.data_to_send())
        for event in self._client.receive_data(self._transport.take()):
            if isinstance(event, StreamReset):
                raise BenchError(f"a call was reset with error {event.error_code}")
            self._ended += isinstance(event, StreamEnded)

    def _calls(self) -> bytes:
        for _ in range(CALLERS):
            stream = self._client.get_next_available_stream_id()
            self._client.send_headers(stream, PUBLISH_CALL)
            self._client.send_data(stream, self._request, end_stream=True)
        return self._client.data_to_send()

    async def run(self, laps: Laps) -> None:
        self._ended = 0
        feed, pass_time = self._connection.data_received, self._site.loop.pass_time
        for _ in range(self._turns):
            calls = self._calls()
            pass_time()
            laps.start()
            feed(calls)
            laps.stop(TOTAL)
            self._exchange()

    async def run_stages(self, laps: Laps) -> None:
        """A call has none that could be told apart cheaply."""

    def check(self) -> None:
        require_count("calls with a response", self._ended, self.count)


async def grpc_publish(site: Site, count: int) -> GrpcPublishes:
    """NexusD's unary `Publish` from 16 callers on one channel, 128 bytes."""
    await site.server.sidecar.open()
    return GrpcPublishes(site, count)


class Socket:
    """One client of `/ws`."""

    HEAD = (
        f"GET {SOCKET_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()

    def __init__(self, site: Site) -> None:
        self.transport = SinkTransport()
        anonymous = Identity(None, "")
        site.server.socket.take_over(self.HEAD, b"", self.transport, Peer(*PEER), anonymous)
        self._protocol = self.transport.get_protocol()

    def feed(self, data: bytes) -> None:
        """Give bytes to the connection as the loop does, through the buffer that it offers."""
        buffer = self._protocol.get_buffer(len(data))  # type: ignore[attr-defined]
        buffer[: len(data)] = data
        self._protocol.buffer_updated(len(data))  # type: ignore[attr-defined]


def frames(messages: Sequence[dict[str, str]]) -> bytes:
    """Text frames of a client."""
    from websockets.frames import Frame, Opcode  # noqa: PLC0415

    texts = (json.dumps(message, separators=(",", ":")).encode() for message in messages)
    return b"".join(Frame(Opcode.TEXT, text).serialize(mask=True) for text in texts)


class SocketPublishes:
    """Publishes over `/ws`, to subscribers of the same door."""

    def __init__(self, site: Site, count: int) -> None:
        self._turns = max(count // MESSAGES_IN_FLIGHT, 1)
        self.count = self._turns * MESSAGES_IN_FLIGHT
        self._site = site
        self._publisher, self._subscriber = Socket(site), Socket(site)
        self._subscriber.feed(frames([{"type": "subscribe", "topic": TOPIC}]))
        site.flush()
        for socket in (self._publisher, self._subscriber):
            socket.transport.take()
        publish = {"type": "publish", "topic": TOPIC, "data": DATA}
        numbers = range(MESSAGES_IN_FLIGHT)
        self._chunk = frames([publish | {"request_id": f"{number:03}"} for number in numbers])

    async def run(self, laps: Laps) -> None:
        feed, flush = self._publisher.feed, self._site.flush
        for _ in range(self._turns):
            laps.start()
            feed(self._chunk)
            laps.stop("publish")
            laps.start()
            flush()
            laps.stop("deliver")

    async def run_stages(self, laps: Laps) -> None:
        """Measured by `run`, which separates them."""

    def check(self) -> None:
        require_count("events", self._subscriber.transport.take().count(b'"type":"event"'), self.count)
        require_count("acknowledgements", self._publisher.transport.take().count(b'"type":"ack"'), self.count)


async def socket_publish(site: Site, count: int) -> SocketPublishes:
    """Publish over `/ws` and deliver to a subscriber there, 16 in a turn, 64 bytes of JSON."""
    site.server.broker.declare_topic(TOPIC)
    return SocketPublishes(site, count)


class StreamRequests:
    """Sends to streams, and receives of what was sent; each on a connection of its own."""

    def __init__(self, site: Site, count: int) -> None:
        self._turns = max(count // CALLERS, 1)
        self.count = self._turns * CALLERS
        self._site = site
        self._senders = [self._connect() for _ in range(CALLERS)]
        self._receivers = [self._connect() for _ in range(CALLERS)]
        self._number = 0
        self._sent = self._received = 0

    def _connect(self) -> tuple[HttpConnection, SinkTransport]:
        door = self._site.server.http
        connection = HttpConnection(door, door._heads[0], "http", Peer(*PEER))
        transport = SinkTransport({"socket": self._site.connected_socket()})
        transport.open(connection)
        return connection, transport

    def _sends(self) -> list[bytes]:
        requests = []
        for stream in range(CALLERS):
            self._number += 1
            message = {
                "streamId": f"bench-{stream:04}",
                "messageUuid": str(UUID(int=self._number)),
                "message": DATA,
            }
            body = json.dumps(message).encode()
            head = f"POST {STREAMS}/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return requests

    async def run(self, laps: Laps) -> None:
        self._sent = self._received = 0
        receives = [
            f"GET {STREAMS}/receive?streamId=bench-{stream:04}&timeoutSeconds=60 HTTP/1.1\r\n"
            "Host: localhost\r\n\r\n".encode()
            for stream in range(CALLERS)
        ]
        for _ in range(self._turns):
            self._sent += self._turn(laps, "send", self._senders, self._sends(), b"HTTP/1.1 200")
            self._received += self._turn(laps, "receive", self._receivers, receives, DATA.encode())

    def _turn(
        self,
        laps: Laps,
        stage: str,
        connections: list[tuple[HttpConnection, SinkTransport]],
        requests: list[bytes],
        mark: bytes,
    ) -> int:
        """One request of each connection; returns the responses with a mark."""
        flush = self._site.flush
        laps.start()
        for (connection, _), request in zip(connections, requests, strict=True):
            connection.data_received(request)
        flush()
        laps.stop(stage)
        return sum(transport.take().count(mark) for _, transport in connections)

    async def run_stages(self, laps: Laps) -> None:
        """Measured by `run`, which separates them."""

    def check(self) -> None:
        require_count("sends with a response", self._sent, self.count)
        require_count("messages received", self._received, self.count)


async def stream_requests(site: Site, count: int) -> StreamRequests:
    """A send and a receive of the same message, each an HTTP request, 16 of each in a turn."""
    return StreamRequests(site, count)
