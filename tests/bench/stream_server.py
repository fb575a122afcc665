"""Minimal server for streams that delivers the first three messages in a given order."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import msgspec


@contextmanager
def stream_server(order: str, *, status: int = 200) -> Iterator[int]:
    """Its port.

    Args:
        order: the first three messages of each stream as its receiver gets them: swapped, doubled, lost.
        status: of every response to a send.
    """
    handler = make_handler(order, status)
    with Server(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        for queue in handler.queues.values():
            queue.put(b"")  # unblocks the receivers
        thread.join(10)


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore: the generator disconnects before its last responses."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    order: str
    status: int
    queues: ClassVar[dict[str, SimpleQueue[bytes]]]
    firsts: ClassVar[dict[str, list[bytes]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = msgspec.json.decode(body, type=dict[str, str])
        message = msgspec.json.encode({"message": request["message"]})
        stream, firsts = request["streamId"], self.firsts[request["streamId"]]
        if len(firsts) == 3:
            self.queues[stream].put(message)
        else:
            firsts.append(message)
            if len(firsts) == 3:
                for index in self.order:
                    self.queues[stream].put(firsts[int(index)])
        self.respond(self.status, b'{"errorType":0}')

    def do_GET(self) -> None:
        [stream] = parse_qs(urlsplit(self.path).query)["streamId"]
        self.respond(200, self.queues[stream].get())

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def make_handler(order_of_first: str, status_of_sends: int) -> type[Handler]:
    class Configured(Handler):
        order, status = order_of_first, status_of_sends
        queues: ClassVar[dict[str, SimpleQueue[bytes]]] = defaultdict(SimpleQueue)
        firsts: ClassVar[dict[str, list[bytes]]] = defaultdict(list)

    return Configured
