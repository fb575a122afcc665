"""penstock.json: which log a data directory has, and in which format.

It is written once. The database knows the log id too, so that a damaged header can be written again.
"""

import os
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec import Struct

from penstock.errors import InvalidConfig
from penstock.storage.disk.layout import FORMAT, HEADER_FILE


class Header(Struct, frozen=True):
    """What wrote this directory. Every later format keeps these three."""

    format: int
    log_id: str
    check: int | None = None
    """Tells a damaged header from that of a newer Penstock."""


def make_header(log_id: str) -> Header:
    """The header of a log, in the format of today."""
    return Header(FORMAT, log_id, _check(FORMAT, log_id))


def read_header(path: Path) -> Header | None:
    """The header of a directory, None if it is missing or damaged.

    Raises:
        InvalidConfig: a newer Penstock wrote it.
    """
    try:
        header = msgspec.json.decode((path / HEADER_FILE).read_bytes(), type=Header)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    is_sound = header.check == _check(header.format, header.log_id)
    if header.format > FORMAT and (is_sound or header.check is None):
        raise InvalidConfig(
            f"data_dir: {path} has format {header.format}, from a newer Penstock; this one knows {FORMAT}"
        )
    return header if is_sound else None


def write_header(path: Path, header: Header) -> None:
    """Write it whole or not at all."""
    draft = path / f"{HEADER_FILE}.new"
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(header))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path / HEADER_FILE)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Make what was renamed in a folder last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(version: int, log_id: str) -> int:
    return crc32(f"{version} {log_id}".encode())
