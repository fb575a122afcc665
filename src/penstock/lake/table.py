"""Table on disk: data files, and the versions of a manifest as a commit log.

A version is a file named by its number. It is written under a temporary name, synced, and hard-linked to its
number, which fails if the number is taken. So versions form one line, each appears complete, and a committer
that lost the race decides again with the newest manifest. A version contains its change; every fiftieth also
contains the whole manifest, so that a reader opens at most fifty files. Files that a version adds are synced
before the commit.

Readers take no locks. A file that a reader's manifest names is deleted only a while after it was retired; see
`maintenance.py`.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from zlib import crc32

import msgspec
from msgspec import Struct

from penstock.errors import Conflict
from penstock.lake.errors import InvalidLake
from penstock.lake.layout import INSIGHTS, MANIFEST, MESSAGES, lake_path
from penstock.lake.manifest import Change, DataFile, Manifest, apply

FORMAT = 1
"""Increases when an older Penstock cannot read what a newer one writes."""
WHOLE_EVERY = 50

_DELTA = "_delta_log"
_SUFFIX = ".json"
_DRAFT_S = 3600.0
"""Age of a draft whose writer is dead."""
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Version(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of one file of the manifest."""

    format: int
    version: int
    id: str
    at: int
    change: Change
    whole: Manifest | None = None


class Commit(Struct, frozen=True, kw_only=True):
    """Change made by one version of a table."""

    version: int
    at: int
    """In microseconds since 1970."""
    change: Change


class _Format(Struct):
    format: int


class Table:
    """Data files below one folder, and a manifest of the live ones.

    Thread-safe. Any number of objects, processes and machines may use the same table.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = lake_path(path)
        self._known = Manifest()

    def __repr__(self) -> str:
        return f"Table({str(self.path)!r})"

    def __reduce__(self) -> tuple[type["Table"], tuple[Path]]:
        return Table, (self.path,)  # the cached manifest does not travel

    @property
    def is_delta(self) -> bool:
        """The folder is a Delta table, with a commit log of Delta's own."""
        return (self.path / _DELTA).exists()

    def exists(self) -> bool:
        """Something was committed."""
        return self.newest() > 0

    def absolute(self, file: DataFile | str) -> Path:
        """Path of a data file."""
        return self.path / (file if isinstance(file, str) else file.path)

    def newest(self) -> int:
        """Number of the newest version; 0 if there is none."""
        return max(self._numbers(), default=0)

    def manifest(self) -> Manifest:
        """The newest manifest; a commit is visible completely or not at all.

        Raises:
            InvalidLake: a version is missing, damaged, or from a newer Penstock.
        """
        while True:
            newest, known = self.newest(), self._known
            if newest == known.version:
                return known
            try:
                manifest = self._read_up_to(newest, known)
            except FileNotFoundError as error:
                if self.newest() == newest:
                    raise InvalidLake(f"{error.filename}: this version of the manifest is missing") from None
                continue  # pruning removed it, so there is a newer whole manifest
            self._known = manifest
            return manifest

    def recent(self, most: int) -> list[Commit]:
        """The last commits, newest first, as far as their versions were not pruned.

        Raises:
            InvalidLake: a version is damaged, or from a newer Penstock.
        """
        commits: list[Commit] = []
        for number in sorted(self._numbers(), reverse=True)[:most]:
            with suppress(FileNotFoundError):  # pruned meanwhile
                version = self._version(number)
                commits.append(Commit(version=version.version, at=version.at, change=version.change))
        return commits

    def commit(self, change: Callable[[Manifest], Change | None]) -> Manifest:
        """Commit the next version, with optimistic concurrency control.

        Args:
            change: computes the change from the newest manifest; None for nothing. Called again with the
                newest manifest if another committer was faster.

        Raises:
            Conflict: an added file has vanished, or was retired because it looked orphaned.
        """
        while True:
            manifest = self.manifest()
            wanted = change(manifest)
            if wanted is None:
                return manifest
            self._check_added(wanted.added)
            at = max(time.time_ns() // 1000, manifest.at + 1)
            after = apply(manifest, wanted, id=token_hex(8), at=at)
            if self._publish(after, wanted):
                self._known = after
                return after

    def prune(self, older_than_s: float) -> int:
        """Delete versions that no reader needs, and orphaned drafts; returns the number of versions."""
        numbers = sorted(self._numbers())
        whole = max(numbers, default=0) // WHOLE_EVERY * WHOLE_EVERY
        # The oldest first, and never the one before the whole: see `_is_in_line`.
        unneeded = [number for number in numbers if number < whole - 1]
        count = sum(_delete_old(self._path_of(number), older_than_s) for number in unneeded)
        for draft in self._folder.glob(".*"):
            _delete_old(draft, _DRAFT_S)
        return count

    @property
    def _folder(self) -> Path:
        return self.path / MANIFEST

    def _path_of(self, version: int) -> Path:
        return self._folder / f"{version:020d}{_SUFFIX}"

    def _numbers(self) -> Iterable[int]:
        try:
            with os.scandir(self._folder) as entries:
                found = [_number_of(entry.name) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return [number for number in found if number is not None]

    def _read_up_to(self, newest: int, known: Manifest) -> Manifest:
        whole = newest // WHOLE_EVERY * WHOLE_EVERY
        manifest = known
        if not whole <= known.version < newest:
            manifest = self._whole(whole) if whole else Manifest()
        for number in range(manifest.version + 1, newest + 1):
            version = self._version(number)
            manifest = apply(manifest, version.change, id=version.id, at=version.at)
        return manifest

    def _whole(self, number: int) -> Manifest:
        manifest = self._version(number).whole
        if manifest is None:
            raise InvalidLake(
                f"{self._path_of(number)}: this version should contain the whole manifest and does not"
            )
        return manifest

    def _version(self, number: int) -> Version:
        path = self._path_of(number)
        body, _, check = path.read_bytes().partition(b"\n")
        if check.strip() != _check(body):
            raise InvalidLake(f"{path}: this version of the manifest is damaged")
        try:
            written_by = msgspec.json.decode(body, type=_Format)
            if written_by.format > FORMAT:
                raise InvalidLake(
                    f"{path} has format {written_by.format}, from a newer Penstock; this one knows {FORMAT}"
                )
            return msgspec.json.decode(body, type=Version)
        except msgspec.MsgspecError as error:
            raise InvalidLake(f"{path}: this is not a valid version of a manifest: {error}") from None

    def _check_added(self, files: Iterable[DataFile]) -> None:
        """Refuse files that are missing or incomplete."""
        for file in files:
            path = self.absolute(file)
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                raise Conflict(f"{path} vanished before it was committed") from None
            if size != file.bytes:
                raise Conflict(f"{path} has {size} bytes, but {file.bytes} were written")

    def _publish(self, manifest: Manifest, change: Change) -> bool:
        """Create the file of a version; False if the number is taken."""
        version = Version(
            format=FORMAT,
            version=manifest.version,
            id=manifest.id,
            at=manifest.at,
            change=change,
            whole=None if manifest.version % WHOLE_EVERY else manifest,
        )
        body = msgspec.json.encode(version)
        make_folder(self._folder)
        draft = self._folder / f".{token_hex(8)}"
        path = self._path_of(manifest.version)
        try:
            with draft.open("xb") as file:
                file.write(body + b"\n" + _check(body) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if not _link(draft, path):
                return False
            if not self._is_in_line(manifest.version):
                path.unlink(missing_ok=True)  # else the next late committer would take it for a line
                return False
            sync_folder(self._folder)
            return True
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()

    def _is_in_line(self, number: int) -> bool:
        """A version that was just created follows an existing one.

        A committer that slept for hours may find its number free because pruning deleted the versions around
        it. Pruning deletes the oldest first, so if the version before still exists, the number was never
        used. Pruning spares the version before the newest whole manifest: the committer of that manifest
        still looks for it.
        """
        numbers = set(self._numbers())
        if number > 1:
            return number - 1 in numbers
        return max(numbers) == 1 or 2 in numbers


def lake_messages(lake: str | Path) -> Table:
    """The table of the messages of a lake."""
    return Table(lake_path(lake) / MESSAGES)


def lake_insights(lake: str | Path, name: str) -> Table:
    """A table of the job insights."""
    return Table(lake_path(lake) / INSIGHTS / name)


def lake_table(lake: str | Path, name: str = MESSAGES) -> Table:
    """An existing table, by its folder in the lake: `messages`, `insights/topics`.

    Raises:
        InvalidLake: it does not exist, or is not a table of Penstock.
    """
    path = lake_path(lake)
    table = Table(path / name)
    if not table.path.is_relative_to(path) or ".." in Path(name).parts:
        raise InvalidLake(f"{name!r} is not a valid table name: it points outside of the lake")
    if table.is_delta:
        raise InvalidLake(f"{table.path} is a Delta table: use OPTIMIZE, DELETE and VACUUM of Delta")
    if not table.exists():
        is_lake = name != MESSAGES and path.is_dir()
        raise no_such_table(table) if is_lake else InvalidLake(f"{path}: there is no lake here")
    return table


def no_such_table(table: Table) -> InvalidLake:
    """The error for a table that does not exist, with the names of those beside it."""
    beside = sorted(each.parent.name for each in table.path.parent.glob(f"[!_]*/{MANIFEST}"))
    there = f"; there are {', '.join(beside)}" if beside else ""
    return InvalidLake(f"{table.path}: there is no table here{there}")


def make_lake(lake: str | Path) -> None:
    """Create the folder of a lake, if it does not exist.

    Raises:
        InvalidLake: it cannot be created, or is not writable.
    """
    path = lake_path(lake)
    try:
        make_folder(path)
    except OSError as error:
        raise InvalidLake(f"the lake {path} cannot be created: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise InvalidLake(f"the lake {path} cannot be written to: {os.strerror(errno.EACCES)}")


def make_folder(path: Path) -> None:
    """Create a folder and its parents durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that created and renamed entries are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link(draft: Path, path: Path) -> bool:
    """Give a file its name unless it is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        with suppress(FileNotFoundError):
            return path.samefile(draft)  # over NFS the response to a first try may be lost
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise InvalidLake(
                f"{path.parent}: this file system has no hard links, which a lake needs"
            ) from None
        raise
    return True


def _delete_old(path: Path, seconds: float) -> bool:
    """Delete a file that was not modified for this many seconds."""
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < time.time() - seconds:
            path.unlink()
            return True
    return False


def _number_of(name: str) -> int | None:
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and digits.isdecimal() else None


def _check(body: bytes) -> bytes:
    return f"{crc32(body):08x}".encode()
