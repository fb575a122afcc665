"""What a method and a transport know of each other: one call, from its first header to its status.

A transport makes a `Call` for each request and gives it to the method that its path names. Methods that
answer one message with one get that message; others get a `Handler` of theirs, which is told what happens.
Nothing here waits. What is sent to a call that is over goes nowhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct

from penstock.core.identity import Identity
from penstock.doors.base import Peer
from penstock.wire.grpc import Status, encode_message

Metadata = Sequence[tuple[str, str | bytes]]
"""What a caller has added to a call: bytes where the name ends with `-bin`."""
HIGH_WATER_BYTES = 64 * 1024
"""How much of what was sent may wait for a client before its handler is told to pause."""


class Cause(Enum):
    """Why a call ended that its method had not finished."""

    CANCELLED = auto()
    """The client has cancelled it."""
    DEADLINE = auto()
    """It took longer than the client wanted to wait; the client was told so."""
    LOST = auto()
    """The connection is gone."""
    BROKEN = auto()
    """The client broke the protocol or left a message unfinished, or the method failed; it was told so."""


class Handler:
    """What a method does with the messages of one call; most need only some of this."""

    __slots__ = ()

    def message_received(self, message: bytes) -> None:
        """The client has sent a message."""

    def messages_ended(self) -> None:
        """The client sends no more; it still listens."""

    def pause_writing(self) -> None:
        """More than `HIGH_WATER_BYTES` wait for the client: send nothing that can wait."""

    def resume_writing(self) -> None:
        """All that waited is on its way."""

    def ended(self, cause: Cause) -> None:
        """The call is over, and not because this handler has finished it. Nothing more is called."""


class Call(ABC):
    """One call. Transports derive from it."""

    __slots__ = ("deadline", "handler", "identity", "is_over", "metadata", "path", "peer")

    def __init__(self, path: str, metadata: Metadata, peer: Peer, deadline: float | None) -> None:
        self.path = path
        self.metadata = metadata
        self.peer = peer
        self.deadline = deadline  # on the monotonic clock; the transport keeps it
        self.identity: Identity | None = None  # who has been let in, before any method is asked
        self.handler: Handler | None = None
        self.is_over = False

    @abstractmethod
    def send(self, messages: bytes) -> None:
        """Send messages as they stand in a body: `encode_message`, or several of those joined."""

    @abstractmethod
    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        """End the call, behind all that was sent."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Take no more messages of this call for the time being; the client may send a window's worth."""

    @abstractmethod
    def resume_reading(self) -> None:
        """Undo `pause_reading`."""

    def answer(self, message: bytes) -> None:
        """Send the one message of an answer, and end the call."""
        self.send(encode_message(message))
        self.finish()


class Unary(Struct, frozen=True):
    """A method that answers one message with one, now or later."""

    begin: Callable[[Call, bytes], None]


class Streaming(Struct, frozen=True):
    """A method whose messages come, or go, one after another."""

    begin: Callable[[Call], Handler]


Method = Unary | Streaming
Methods = Mapping[str, Method]
"""Methods by path, `/package.Service/Method`."""
