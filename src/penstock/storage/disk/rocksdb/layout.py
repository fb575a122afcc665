"""Layout of a data directory: files, column families, keys.

penstock.json   format version and log id; see `Header`
lock            locked by the one process that may write
mark            the last acknowledged offset and commit; see `commit/durable_mark.py`
rocksdb/        everything else, in the column families below
"""

import os
from pathlib import Path
from struct import Struct as Layout
from zlib import crc32

import msgspec
from msgspec import Struct

from penstock.errors import InvalidConfig

FORMAT = 1
"""Format version; rises when an older Penstock could not read new data."""

HEADER_FILE = "penstock.json"
LOCK_FILE = "lock"
MARK_FILE = "mark"
DATABASE_FOLDER = "rocksdb"
HARMLESS = frozenset({"lost+found"})
"""Entries of an empty file system."""

ROWS = "rows"
"""Frames as they were committed, by first offset, until they are sealed."""
LOG = "log"
"""Sealed batches, by first offset: each a complete Arrow IPC stream."""
INDEX = "index"
"""Summary of each sealed batch, by first offset: a `Summary`."""
TOPICS = "topics"
"""Topics of each sealed batch, by first offset: a dict of name to `Extent`."""
SEQUENCES = "sequences"
"""Batches of a topic, by `sequence_key`: the first offset of the batch and the last sequence."""
STATE = "state"
"""Records by table and key."""

FAMILIES = (ROWS, LOG, INDEX, TOPICS, SEQUENCES, STATE)

_OFFSET = Layout(">Q")
_PLACE = Layout(">QQ")


def offset_key(offset: int) -> bytes:
    """Key of a value that begins at an offset; keys sort like offsets."""
    return _OFFSET.pack(offset)


def offset_of(key: bytes) -> int:
    """The offset in a key."""
    return int(_OFFSET.unpack(key)[0])


def sequence_key(topic: str, sequence: int) -> bytes:
    """Key of a batch with messages of a topic from this sequence on; keys of a topic are adjacent."""
    return topic.encode() + b"\0" + _OFFSET.pack(sequence)


def last_sequence_key(topic: str) -> bytes:
    """The greatest possible key of a topic."""
    return sequence_key(topic, (1 << 64) - 1)


def topic_of(key: bytes) -> str:
    """The topic in a `sequence_key`."""
    return key[: -1 - _OFFSET.size].decode()


def pack_place(batch: int, last: int) -> bytes:
    """Value of a `sequence_key`: the first offset of the batch, and the last sequence in it."""
    return _PLACE.pack(batch, last)


def unpack_place(value: bytes) -> tuple[int, int]:
    """The reverse of `pack_place`."""
    batch, last = _PLACE.unpack(value)
    return int(batch), int(last)


def state_key(table: str, key: str) -> bytes:
    """Key of a record; records of a table are adjacent."""
    return table_prefix(table) + key.encode("utf-8", "surrogatepass")


def record_key(table: str, key: str | int) -> bytes:
    """Key of a record, or of a numbered record; those of a table sort like their numbers."""
    if isinstance(key, int):
        return table_prefix(table) + offset_key(key)
    return state_key(table, key)


def table_prefix(table: str) -> bytes:
    """Prefix of all keys of a table."""
    return table.encode() + b"\0"


COMMIT_KEY = state_key("meta", "commit")
"""The number of the last commit."""
FIRST_OFFSET_KEY = state_key("meta", "first_offset")
"""The oldest offset that retention has not removed."""


class Header(Struct, frozen=True):
    """Content of the header. Every later format keeps these three fields."""

    format: int
    log_id: str
    check: int | None = None
    """Checksum: distinguishes a damaged header from that of a newer Penstock."""


def make_header(log_id: str) -> Header:
    """The header of a log, in the current format."""
    return Header(FORMAT, log_id, _checksum(FORMAT, log_id))


def read_header(path: Path) -> Header | None:
    """Read the header of a directory; None if it is missing or damaged.

    Raises:
        InvalidConfig: a newer Penstock wrote it.
    """
    try:
        header = msgspec.json.decode((path / HEADER_FILE).read_bytes(), type=Header)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    is_sound = header.check == _checksum(header.format, header.log_id)
    if header.format > FORMAT and (is_sound or header.check is None):
        raise InvalidConfig(
            f"data_dir: {path} has format {header.format}, from a newer Penstock; this one knows {FORMAT}"
        )
    return header if is_sound else None


def write_header(path: Path, header: Header) -> None:
    """Write atomically: to a draft file, which is synced and renamed."""
    draft = path / f"{HEADER_FILE}.new"
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(header))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path / HEADER_FILE)
    sync_folder(path)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, private and durable; an existing one stays as it is.

    A new folder outlives a power cut only if the folder above it was synced.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # payloads and sessions are private
    for folder in reversed(missing):
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that renames in it are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Sync a folder with everything below it, so that a copy is durable."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(Path(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(folder))


def _checksum(version: int, log_id: str) -> int:
    return crc32(f"{version} {log_id}".encode())
