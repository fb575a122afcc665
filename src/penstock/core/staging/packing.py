"""Packing of staged rows into chunks that one turn of the loop can publish.

Packing also validates: the rows of a chunk may be published as they are. It touches only its input, so large
bodies are packed in a thread.
"""

from collections.abc import Iterable, Iterator
from time import sleep
from typing import TypeVar

from msgspec import Struct, msgpack

from penstock.common.topics import check_topic, is_reserved
from penstock.core.access.access import Access
from penstock.core.access.identity import Identity
from penstock.core.durability.records import ChunkRecord
from penstock.core.publishing.properties import check_properties
from penstock.core.settings import CoreSettings
from penstock.errors import NotAuthorized, PenstockError, TooLarge
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, bare_shape

CHUNK_ROWS, CHUNK_TOPICS, CHUNK_BYTES = 2_000, 300, 512 * 1024
"""A chunk takes no further row after this much; a single row may be larger."""
PAUSE_AFTER, PAUSE_S = 200, 50e-6
"""Rows or topics after which the thread yields, so that the loop is not starved."""
_TOPIC_BYTES, _RECORD_BYTES, _ROW_BYTES = 100, 300, 4
"""Overhead of a row and of a topic beside their bytes."""
LEAST_ROW_BYTES = 100
"""Least weight of a waiting row: publishing takes that much memory, however small it is."""
_RETAINED = 4
T = TypeVar("T")
_SHAPES = [bare_shape(Door.WEB, qos, retain) for retain in (False, True) for qos in (0, 1, 2, 0)]
"""By the flags of a row: its QoS, and 4 more if it is retained."""


class Columns(Struct, array_like=True):
    """The rows of a chunk."""

    topics: list[int]
    """Places in the chunk's list of topics."""
    payloads: list[bytes]
    flags: bytes
    ttls: list[float] | None
    """None if no row has a lifetime."""
    kinds: list[Properties | None]
    properties: list[int] | None
    """Places among the kinds; None if no row has properties."""


_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(Columns)


class Packed(Struct, frozen=True):
    """The rows of one part of a stage, checked."""

    chunks: list[ChunkRecord]
    checked: tuple[int, Identity]
    """Rules generation and identity that its topics were checked for."""


class Packing:
    """The rows of one part of a stage, on their way into chunks."""

    def __init__(self, settings: CoreSettings, access: Access, identity: Identity) -> None:
        self._access = access
        self._checked = access.generation, identity  # if the rules change meanwhile, they are asked again
        self._identity = identity
        self._limits = settings.topic
        self._part_bytes = settings.stage.max_part_bytes
        self._part_rows = settings.stage.max_part_rows
        self._payload_bytes = settings.max_payload_bytes
        self._allowed: set[str] = set()
        self._chunks: list[ChunkRecord] = []
        self._taken = 0
        self._begin()

    def _begin(self) -> None:
        self._places: dict[str, int] = {}
        self._topics: list[int] = []
        self._payloads: list[bytes] = []
        self._flags = bytearray()
        self._ttls: list[float] = []
        self._kinds: list[Properties | None] = [None]
        self._properties: list[int] = []
        self._kind_bytes = 0
        self._size = 0

    def pack(self, rows: Iterable[Run]) -> Packed:
        """In a thread: check rows, each a run of one bare payload, and pack all of them.

        Raises:
            PenstockError: a row may not be published; the text says which.
        """
        for number, run in enumerate(with_pauses(rows)):
            if number == self._part_rows:
                raise TooLarge(f"stage.max_part_rows: a part may have {number} rows")
            try:
                self._add(run)
            except PenstockError as error:
                raise type(error)(f"row {number}: {error}") from None
        if self._topics:
            self._close()
        return Packed(self._chunks, self._checked)

    def _add(self, run: Run) -> None:
        payload, properties, shape = run.slab, run.properties, run.shape
        if run.topic not in self._allowed:
            self._allow(run.topic)
        size = len(payload) + _ROW_BYTES
        if len(payload) > self._payload_bytes:
            raise TooLarge(f"the payload has {len(payload)} bytes and {self._payload_bytes} are allowed")
        if run.topic not in self._places:
            size += len(run.topic) + _TOPIC_BYTES
        if properties is None:
            kind = 0
        else:
            if properties is not self._kinds[-1]:  # often all rows share one
                self._kinds.append(properties)
                sizes = check_properties(properties, self._limits)
                self._kind_bytes = sum(sizes) + _ROW_BYTES * len(sizes)
            kind = len(self._kinds) - 1
            size += self._kind_bytes
        self._taken += size
        if self._taken > self._part_bytes:
            raise TooLarge(f"a part may have {self._part_bytes} bytes in all, unpacked")
        self._topics.append(self._places.setdefault(run.topic, len(self._places)))
        self._payloads.append(payload)
        self._flags.append(shape.qos + _RETAINED * shape.retain)
        self._ttls.append(run.ttl)
        self._properties.append(kind)
        self._size += size
        is_full = len(self._topics) >= CHUNK_ROWS or len(self._places) >= CHUNK_TOPICS
        if is_full or self._size >= CHUNK_BYTES:
            self._close()

    def _allow(self, topic: str) -> None:
        check_topic(topic, self._limits)
        check_right(self._access, self._identity, topic)
        self._allowed.add(topic)

    def _close(self) -> None:
        columns = Columns(
            self._topics,
            self._payloads,
            bytes(self._flags),
            self._ttls if any(self._ttls) else None,
            self._kinds,
            self._properties if any(self._properties) else None,
        )
        self._chunks.append(ChunkRecord(tuple(self._places), len(self._topics), _encoder.encode(columns)))
        self._begin()


def with_pauses(items: Iterable[T]) -> Iterator[T]:
    """Items for a thread that is busy with each for some microseconds, and must not keep the loop waiting."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % PAUSE_AFTER:
            sleep(PAUSE_S)


def check_right(access: Access, identity: Identity, topic: str) -> None:
    """Check the right to publish to a topic.

    Raises:
        NotAuthorized: it is reserved, or no rule allows it.
    """
    if is_reserved(topic):
        raise NotAuthorized("topics that begin with $ are the server's own")
    if not access.may_publish(identity, topic):
        raise NotAuthorized(f"not allowed to publish to {topic}")


def runs_of(chunk: ChunkRecord) -> list[Run]:
    """The rows of a chunk, each ready to be published."""
    columns, names, shapes = _decoder.decode(chunk.data), chunk.topics, _SHAPES
    runs = [
        Run(names[topic], payload, 0, len(payload), 1, shapes[flags])
        for topic, payload, flags in zip(columns.topics, columns.payloads, columns.flags, strict=True)
    ]
    if columns.properties is not None:
        for run, kind in zip(runs, columns.properties, strict=True):
            run.properties = columns.kinds[kind]
    if columns.ttls is not None:
        for run, ttl in zip(runs, columns.ttls, strict=True):
            run.ttl = ttl or NEVER
    return runs


def weight_of(chunk: ChunkRecord) -> int:
    """Approximate memory of a chunk."""
    names = sum(map(len, chunk.topics)) + _TOPIC_BYTES * len(chunk.topics)
    return max(len(chunk.data), LEAST_ROW_BYTES * chunk.rows) + names + _RECORD_BYTES
