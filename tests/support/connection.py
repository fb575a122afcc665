"""A connection that ends in memory: it records what core does to it."""

from collections.abc import Callable

from tests.support.encodings import Delivered, read_frames


class MemoryConnection:
    """What was written, held back, released and closed.

    A socket that fills up is played with `on_write`, which is called after each write: there a test
    counts bytes and calls `Broker.pause`, as a door would.
    """

    def __init__(self, on_write: Callable[[bytes], None] | None = None) -> None:
        self.writes: list[bytes] = []
        self.blocks: list[bool] = []  # for each `block`: was it for messages without acknowledgement
        self.unblocks = 0
        self.is_blocked = False
        self.closed: str | None = None
        self._on_write = on_write
        self._taken = 0

    def write(self, data: bytes) -> None:
        """Record one write; like a socket, it forgets what comes after the close."""
        if self.closed is not None:
            return
        self.writes.append(data)
        if self._on_write is not None:
            self._on_write(data)

    def block(self, *, is_unacknowledged: bool, withholds_acks: bool = True) -> None:
        """Record that the publisher behind this connection has to wait."""
        self.blocks.append(is_unacknowledged)
        self.is_blocked = True

    def unblock(self) -> None:
        """Record that it need not wait any more."""
        self.unblocks += 1
        self.is_blocked = False

    def close(self, reason: str) -> None:
        """Record the end and its reason."""
        self.closed = reason

    @property
    def data(self) -> bytes:
        """Everything that was ever written."""
        return b"".join(self.writes)

    @property
    def deliveries(self) -> list[Delivered]:
        """Every frame that was ever written, when the subscriber's form is a `PlainEncoding`."""
        return read_frames(self.data)

    def take(self) -> list[Delivered]:
        """The frames written since the last call."""
        fresh = b"".join(self.writes[self._taken :])
        self._taken = len(self.writes)
        return read_frames(fresh)

    def take_payloads(self) -> list[bytes]:
        """The payloads written since the last call."""
        return [delivered.payload for delivered in self.take()]
