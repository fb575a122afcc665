"""Actions of a peer link: what its owner has to do, in order. The link itself does nothing but decide."""

from msgspec import Struct

from penstock.runs import Run
from penstock.wire.peer import Message


class Connect(Struct, frozen=True):
    """Dial the peer; report `on_connected` or `on_lost` with this number."""

    connection: int


class Close(Struct, frozen=True):
    """Close a connection; no report is needed."""

    connection: int
    reason: str


class Send(Struct, frozen=True):
    """Send a message on a connection."""

    connection: int
    message: Message


class Take(Struct, frozen=True):
    """Publish runs of another shard in this one, and report `on_taken` when they are committed.

    Forwards: the number of the last one is stored in the commit that has the messages.
    """

    connection: int
    origin: int
    shard: int
    is_forward: bool
    first: int
    runs: list[Run]

    @property
    def last(self) -> int:
        """Number of the last run."""
        return self.first + len(self.runs) - 1


class Acknowledge(Struct, frozen=True):
    """The shard has committed all publishes of a token, or refused one with a code: respond to them."""

    token: object
    code: str = ""


class Fail(Struct, frozen=True):
    """Publishes of a token were not settled: they may be there or not, and are not acknowledged."""

    token: object
    reason: str


class Forwarded(Struct, frozen=True):
    """Forwards up to this number are committed by the shard, or refused with a code: forget them.

    A refusal is a loss, which the receiver records in its ledger; the code is lost with a connection.
    """

    origin: int
    shard: int
    number: int
    code: str = ""


class Unblocked(Struct, frozen=True):
    """There is room for a shard again, after a run was refused."""

    shard: int


class Received(Struct, frozen=True):
    """A message of another part of the protocol."""

    message: Message


Action = Connect | Close | Send | Take | Acknowledge | Fail | Forwarded | Unblocked | Received
