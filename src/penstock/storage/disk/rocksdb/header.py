"""Header of a data directory (`penstock.json`): log id and format version.

Written once. The database has the log id too, so that a damaged header can be restored.
"""

import os
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec import Struct

from penstock.errors import InvalidConfig
from penstock.storage.disk.rocksdb.layout import FORMAT, HEADER_FILE


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


def sync_folder(path: Path) -> None:
    """Sync a folder, so that renames in it are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(version: int, log_id: str) -> int:
    return crc32(f"{version} {log_id}".encode())
