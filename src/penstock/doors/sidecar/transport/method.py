"""Interface between methods and transport: one call, from its first header to its status.

A transport makes a `Call` for each request and passes it to the method of its path. Unary methods get one
message and send one; others have a `Handler`, which is notified of events. Nothing here blocks. Sends to a
closed call are ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Protocol

from msgspec import Struct

from penstock.core.access.identity import Identity
from penstock.net.door import Peer
from penstock.wire.grpc import Status

Metadata = Sequence[tuple[str, str | bytes]]
"""Metadata of a call: bytes where the name ends with `-bin`."""
HIGH_WATER_BYTES = 64 * 1024
"""Bytes that may wait for a client before its handler is paused."""


class EndCause(Enum):
    """Why a call ended that its method had not finished."""

    CANCELLED = auto()
    """The client has cancelled it."""
    DEADLINE = auto()
    """The deadline has passed; the client got the status."""
    LOST = auto()
    """The connection is closed."""
    BROKEN = auto()
    """The client broke the protocol or left a message unfinished, or the method failed; it got the status."""


class Handler:
    """Events of one call; most methods need only some of them."""

    __slots__ = ()

    def message_received(self, message: bytes) -> None:
        """The client has sent a message."""

    def messages_ended(self) -> None:
        """The client sends no more; it still listens."""

    def pause_writing(self) -> None:
        """More than `HIGH_WATER_BYTES` wait for the client: send nothing that can wait."""

    def resume_writing(self) -> None:
        """All that waited is on its way."""

    def ended(self, cause: EndCause) -> None:
        """The call is over, and not because this handler has finished it. Nothing more is called."""


class Call(Protocol):
    """One call of a transport.

    `identity` is set before any method is called. `deadline` is on the monotonic clock; the transport
    enforces it.
    """

    path: str
    metadata: Metadata
    peer: Peer
    deadline: float | None
    identity: Identity | None
    handler: Handler | None
    is_over: bool

    def send(self, messages: bytes) -> None:
        """Send messages as they stand in a body: `encode_message`, or several of those joined."""

    def finish(self, status: Status = Status.OK, text: str = "") -> None:
        """End the call, behind all that was sent."""

    def pause_reading(self) -> None:
        """Take no more messages of this call for the time being; the client may send a window's worth."""

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""

    def respond(self, message: bytes) -> None:
        """Send the one message of a response, and end the call."""


class Unary(Struct, frozen=True):
    """Unary method: one message in, one out, now or later."""

    begin: Callable[[Call, bytes], None]


class Streaming(Struct, frozen=True):
    """A method whose messages come, or go, one after another."""

    begin: Callable[[Call], Handler]


Method = Unary | Streaming
Methods = Mapping[str, Method]
"""Methods by path, `/package.Service/Method`."""
