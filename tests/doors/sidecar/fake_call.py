"""A call without a transport, which remembers what a method did with it."""

from penstock.core.access.identity import Identity
from penstock.doors.sidecar.transport.method import Handler, Metadata, Method, Streaming
from penstock.net.door import Peer
from penstock.wire.grpc import MessageReader, Status, encode_message


class FakeCall:
    """Collects what is sent."""

    def __init__(self, path: str = "/a.B/C", metadata: Metadata = ()) -> None:
        self.path = path
        self.metadata = metadata
        self.peer = Peer("127.0.0.1", 1)
        self.deadline: float | None = None
        self.identity: Identity | None = None
        self.handler: Handler | None = None
        self.is_over = False
        self.sent: list[bytes] = []
        self.status: Status | None = None
        self.text = ""
        self.is_reading = True

    def send(self, messages: bytes) -> None:
        if not self.is_over:
            self.sent += MessageReader(2**30).feed(messages)

    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        if not self.is_over:
            self.is_over, self.status, self.text = True, status, text

    def respond(self, message: bytes) -> None:
        self.send(encode_message(message))
        self.finish()

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def begin(self, method: Method, *messages: bytes) -> "FakeCall":
        """Give the method the messages of the client, which sends no more."""
        if isinstance(method, Streaming):
            self.handler = method.begin(self)
            for message in messages:
                self.handler.message_received(message)
            if not self.is_over:
                self.handler.messages_ended()
        else:
            method.begin(self, *messages)
        return self
