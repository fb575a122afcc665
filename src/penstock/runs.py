"""Run: what a message is while it moves through the server.

A run is a slab of bytes as they arrived, with where each payload lies in it, and the stamps that core gives
it once. A train is many messages in one slab. These are plain typed classes, because the hot path is compiled
and reads their fields directly; the log converts runs to what it stores (`common/stored_runs.py`).
"""

from penstock.model import Door, Properties

NEVER = 0.0
"""The expiry of what does not expire."""


class Shape:
    """Layout and flags of the bytes of a run. Shapes are few, interned and compared by identity.

    `layout` names the framing of the slab ("" for bare payloads). Runs of one shape may be joined and
    forwarded as they are to subscribers with exactly that layout. A plain shape is not retained and has
    neither lifetime nor properties.
    """

    __slots__ = ("door", "is_plain", "layout", "qos", "retain")

    def __init__(self, layout: str, door: Door, qos: int, retain: bool, is_plain: bool) -> None:
        self.layout = layout
        self.door = door
        self.qos = qos
        self.retain = retain
        self.is_plain = is_plain

    def __repr__(self) -> str:
        return (
            f"Shape({self.layout!r}, {self.door.value}, qos={self.qos}, "
            f"retain={self.retain}, is_plain={self.is_plain})"
        )


def bare_shape(door: Door, qos: int, retain: bool) -> Shape:
    """The shape of a run whose slab is the payload and nothing else."""
    return _SHAPES[door, qos, retain]


_SHAPES = {
    (door, qos, retain): Shape("", door, qos, retain, is_plain=False)
    for door in Door
    for qos in range(3)
    for retain in (False, True)
}


class Run:
    """Consecutive publishes of one sender with the same topic and flags.

    The slab holds `count` frames of `stride` bytes; each frame's payload starts at `head`. Core fills
    the stamps; `sequence` and `offset` are those of the first message.
    """

    __slots__ = (
        "client_id",
        "count",
        "expires_at",
        "head",
        "offset",
        "packet_id",
        "properties",
        "published_at",
        "sequence",
        "shape",
        "slab",
        "stride",
        "topic",
        "ttl",
    )

    def __init__(
        self,
        topic: str,
        slab: bytes,
        head: int,
        stride: int,
        count: int,
        shape: Shape,
        properties: Properties | None = None,
        ttl: float = NEVER,
        packet_id: int = 0,
        # Stamped once by core:
        client_id: str = "",
        sequence: int = 0,
        offset: int = 0,
        published_at: int = 0,
        expires_at: float = NEVER,
    ) -> None:
        self.topic = topic
        self.slab = slab
        self.head = head
        self.stride = stride
        self.count = count
        self.shape = shape
        self.properties = properties
        self.ttl = ttl
        self.packet_id = packet_id
        self.client_id = client_id
        self.sequence = sequence
        self.offset = offset
        self.published_at = published_at
        self.expires_at = expires_at

    def __repr__(self) -> str:
        return (
            f"Run({self.topic!r}, {self.slab!r}, head={self.head}, stride={self.stride}, count={self.count}, "
            f"{self.shape}, sequence={self.sequence}, offset={self.offset})"
        )

    def payload(self, index: int = 0) -> bytes:
        """The payload of one message of the run."""
        start = index * self.stride
        return self.slab[start + self.head : start + self.stride]

    @property
    def last_offset(self) -> int:
        """Offset of the last message."""
        return self.offset + self.count - 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last message."""
        return self.sequence + self.count - 1

    def is_expired(self, now: float) -> bool:
        """Return whether the lifetime is over at a time of the monotonic clock."""
        return NEVER < self.expires_at <= now

    def part(self, first: int, count: int) -> "Run":
        """A run of `count` messages of this one, from index `first` on, with the same stamps."""
        if count == self.count:
            return self
        start = first * self.stride
        return Run(
            self.topic,
            self.slab[start : start + count * self.stride],
            self.head,
            self.stride,
            count,
            self.shape,
            self.properties,
            self.ttl,
            self.packet_id,
            self.client_id,
            self.sequence + first,
            self.offset + first,
            self.published_at,
            self.expires_at,
        )


class Train:
    """Packet train: plain publishes at QoS 0 of one sender that stand together in its input.

    The slab holds one frame behind the other, of any topics and lengths. No message has an object of its own:
    where frames leave unchanged, they leave as one slice of the slab; elsewhere runs are made of them.
    """

    __slots__ = ("ends", "heads", "names", "shape", "slab")

    def __init__(
        self, shape: Shape, slab: bytes, names: list[str], heads: list[int], ends: list[int]
    ) -> None:
        self.shape = shape
        self.slab = slab
        self.names = names
        """Topic of each message."""
        self.heads = heads
        """Start of each payload within its frame."""
        self.ends = ends
        """End of each frame within the slab."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.names)

    def run(
        self, index: int, client_id: str = "", published_at: int = 0, offset: int = 0, sequence: int = 0
    ) -> Run:
        """One message as a run of its own, with these stamps."""
        start, end = self.ends[index - 1] if index else 0, self.ends[index]
        name, head, frame = self.names[index], self.heads[index], self.slab[start:end]
        run = Run(name, frame, head, end - start, 1, self.shape)
        run.client_id, run.published_at, run.offset, run.sequence = client_id, published_at, offset, sequence
        return run

    def runs(self, first: int) -> list[Run]:
        """The messages from this index on, as runs without stamps."""
        return [self.run(index) for index in range(first, len(self.names))]
