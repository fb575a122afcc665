"""Where things lie in a data directory: files, column families, keys.

penstock.json   what wrote this: format version and log id
lock            held by the one process that may write
mark            the last offset and commit that were acknowledged; see `mark.py`
rocksdb/        everything else, in the column families below
"""

from struct import Struct as Layout

FORMAT = 1
"""Rises when an older Penstock could not read what a newer one writes."""

HEADER_FILE = "penstock.json"
LOCK_FILE = "lock"
MARK_FILE = "mark"
DATABASE_FOLDER = "rocksdb"
HARMLESS = frozenset({"lost+found"})
"""What a file system has in it that is empty."""

ROWS = "rows"
"""Frames as they were committed, by first offset, until they are sealed."""
LOG = "log"
"""Sealed batches, by first offset: each a complete Arrow IPC stream."""
INDEX = "index"
"""What is in each sealed batch, by first offset: a `Summary`."""
TOPICS = "topics"
"""Which topics are in each sealed batch, by first offset: a dict of name to `Extent`."""
SEQUENCES = "sequences"
"""Where the sequences of a topic are, by `sequence_key`: the batch's first offset and the last sequence."""
STATE = "state"
"""Records by table and key."""

FAMILIES = (ROWS, LOG, INDEX, TOPICS, SEQUENCES, STATE)

_OFFSET = Layout(">Q")
_PLACE = Layout(">QQ")


def offset_key(offset: int) -> bytes:
    """The key of what begins at an offset; keys sort as offsets do."""
    return _OFFSET.pack(offset)


def offset_of(key: bytes) -> int:
    """The offset in a key."""
    return int(_OFFSET.unpack(key)[0])


def sequence_key(topic: str, sequence: int) -> bytes:
    """The key of a batch that has a topic's messages from this sequence on; a topic's keys stand together."""
    return topic.encode() + b"\0" + _OFFSET.pack(sequence)


def last_sequence_key(topic: str) -> bytes:
    """The greatest key that a topic can have."""
    return sequence_key(topic, (1 << 64) - 1)


def topic_of(key: bytes) -> str:
    """The topic in a key of `sequence_key`."""
    return key[: -1 - _OFFSET.size].decode()


def pack_place(batch: int, last: int) -> bytes:
    """Where the messages of a topic are: the first offset of their batch, and the last of their sequences."""
    return _PLACE.pack(batch, last)


def unpack_place(value: bytes) -> tuple[int, int]:
    """The reverse of `pack_place`."""
    batch, last = _PLACE.unpack(value)
    return int(batch), int(last)


def state_key(table: str, key: str) -> bytes:
    """The key of a record; the records of a table stand together."""
    return table_prefix(table) + key.encode("utf-8", "surrogatepass")


def table_prefix(table: str) -> bytes:
    """What the keys of a table begin with."""
    return table.encode() + b"\0"


COMMIT_KEY = state_key("meta", "commit")
"""The number of the last commit."""
FIRST_OFFSET_KEY = state_key("meta", "first_offset")
"""The oldest offset that retention has left."""
