"""Puts a damaged data directory in order: what can be read stays, and all that is stored agrees again.

Nothing else may have the directory meanwhile. Messages that are lost stay lost: their offsets remain empty,
so that every reader is told. A copy is a data directory of its own; it shares the tables, so it takes little
room until the server replaces them.
"""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from penstock.cli.log.batch_checks import extents_in, is_summary_of, open_batch, places_in
from penstock.cli.log.checking import Check, check_files
from penstock.cli.log.findings import Finding, Remedy, tidy
from penstock.cli.log.opened import describe_missing, lacks_database
from penstock.cli.log.snapshot import find_node_id
from penstock.cli.progress import bar
from penstock.core.ports import Gap
from penstock.errors import InvalidConfig
from penstock.storage.disk.frames import decode_summary, encode_extents, encode_summary
from penstock.storage.disk.header import read_header
from penstock.storage.disk.layout import (
    DATABASE_FOLDER,
    HEADER_FILE,
    INDEX,
    LOG,
    MARK_FILE,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_of,
)
from penstock.storage.disk.mark import Mark
from penstock.storage.disk.opening import is_served, open_store
from penstock.storage.disk.reindexing import find_batches
from penstock.storage.disk.salvage import Salvage, copy_files
from penstock.storage.disk.sealing import Sealer
from penstock.storage.disk.store import Changes, StorageFull, Store
from penstock.storage.disk.survey import Survey, survey
from penstock.storage.disk.worker import WorkerFailed

_COPY = f"{DATABASE_FOLDER}-before-repair-%Y%m%dT%H%M%S"
_ROUNDS = 5


class Mended(Struct, frozen=True):
    """What was wrong, and what is left of it."""

    findings: list[Finding]
    lost: tuple[Gap, ...]
    """Offsets of which nothing is left."""
    is_state_doubtful: bool
    """Changes of sessions may be lost."""
    has_changed: bool
    """Something could be done."""
    sealed: int
    """How many messages were sealed."""
    copy: Path | None
    """Where everything is as it was before."""


def mend(path: Path, *, keeps_copy: bool, may_empty: bool = False) -> Mended:
    """Put a data directory in order.

    Args:
        may_empty: if the database is missing, begin with an empty one.

    Raises:
        InvalidConfig: it is none, or a server runs on it, or its database is missing.
        StorageUnavailable: there is no room for what has to be written, or the disk fails.
    """
    if read_header(path) is None and not (path / DATABASE_FOLDER).is_dir():
        raise InvalidConfig(f"{path} is not a data directory")
    if is_served(path):
        raise InvalidConfig(f"{path} is in use by another process: stop the server first")
    findings = list(check_files(path))
    if lacks_database(path):
        if not may_empty:
            raise InvalidConfig(f"{path}: {describe_missing(path)}; --empty gives it up")
        findings.append(Finding(f"the database folder {DATABASE_FOLDER}/ is missing", Remedy.REBUILD))
    copy = _copy(path) if keeps_copy else None
    try:
        store, opening = open_store(path)
    except InvalidConfig:
        _remove(copy)
        raise
    mending = Mending(store, findings)
    try:
        mending.note(opening.salvage)
        mended = mending.run(copy)
    finally:
        store.close()
    for aside in (*mending.asides, None if mending.has_mended else copy):
        _remove(aside)  # the copy has it as it was before, or nobody wants it
    return mended


class Mending:
    """The work on a directory that nobody else has."""

    def __init__(self, store: Store, findings: list[Finding]) -> None:
        self._store = store
        self._findings = findings
        self.asides: list[Path] = []
        """Damaged databases that others have replaced."""

    def note(self, salvage: Salvage | None) -> None:
        """The database had to be replaced when it was opened."""
        if salvage is not None:
            self.asides.append(salvage.aside)
            what = f"the database was damaged ({tidy(salvage.words, self._store.path)})"
            self._findings.append(Finding(what, Remedy.REBUILD))

    def run(self, copy: Path | None) -> Mended:
        """Look and mend until there is nothing to mend any more."""
        found = self._survey()
        for number in range(_ROUNDS):
            findings = self._check(found)
            mendable = [each for each in findings if each.can_be_mended]
            news = mendable if number else findings  # that what was removed is missing is none
            self._findings += [each for each in news if each not in self._findings]
            if not mendable:
                break
            self._mend(mendable)
            found = self._survey()
        if any(each.remedy is Remedy.REWRITE for each in self._findings):
            self._write_mark(found)
        return Mended(
            findings=self._findings,
            lost=found.damage,
            is_state_doubtful=found.is_state_behind or any(map(_is_about_state, self._findings)),
            has_changed=self.has_mended,
            sealed=self._seal(found) if self.has_mended else 0,
            copy=copy if self.has_mended else None,
        )

    @property
    def has_mended(self) -> bool:
        """Whether anything could be done."""
        return any(each.can_be_mended for each in self._findings)

    def _survey(self) -> Survey:
        return survey(self._store, Mark.read(self._store.path))

    def _check(self, found: Survey) -> list[Finding]:
        with bar("reading", found.index.bytes) as advance:
            return list(Check(self._store, found.index, found.last_offset, advance).findings(found.damage))

    def _mend(self, findings: Iterable[Finding]) -> None:
        if any(each.remedy is Remedy.REBUILD for each in findings):
            self._rebuild()
            return  # what it left out shows in the next round
        for finding in findings:
            if finding.remedy is Remedy.REMOVE:
                self._store.write(_removal(finding), sync=True)
            elif finding.remedy is Remedy.REINDEX:
                self._store.write(_index_anew(self._store, finding.key), sync=True)

    def _rebuild(self) -> None:
        self._store.rebuild()
        if self._store.salvage is None:
            raise StorageFull(f"{self._store.path}: there is no room for another copy of the database")
        self.asides.append(self._store.salvage.aside)

    def _write_mark(self, found: Survey) -> None:
        mark = Mark.open(self._store.path)
        try:
            if mark.value is None:
                mark.epoch = found.epoch
                mark.write(found.last_offset, found.last_commit)
        finally:
            mark.close()

    def _seal(self, found: Survey) -> int:
        node_id = find_node_id(self._store, found.index)
        sealer = Sealer(self._store, found.index, node_id, on_error=lambda _: None)
        try:
            return sealer.seal_now()
        except WorkerFailed:  # the server does it later
            return 0
        finally:
            sealer.stop()


def _removal(finding: Finding) -> Changes:
    changes = Changes()
    for family in (LOG, INDEX, TOPICS) if finding.family == LOG else (finding.family,):
        changes.delete(family, finding.key)
    return changes


def _index_anew(store: Store, key: bytes) -> Changes:
    """What is to be stored about a sealed batch."""
    first = offset_of(key)
    data, known = store.get(LOG, [key])[0], store.get(INDEX, [key])[0]
    assert data is not None
    batch = open_batch(data)
    (summary,) = find_batches(store, first, first)
    if known is not None and is_summary_of(decode_summary(known), first, batch, len(data)):
        summary = decode_summary(known)  # which also knows what a batch does not tell: where holes are
    extents = extents_in(batch)
    changes = Changes()
    changes.put(INDEX, key, encode_summary(summary))
    changes.put(TOPICS, key, encode_extents(extents))
    for place, value in places_in(first, extents):
        changes.put(SEQUENCES, place, value)
    return changes


def _is_about_state(finding: Finding) -> bool:
    """Whether sessions may be concerned: they are if whole commits are lost, or records."""
    return finding.family == STATE or (finding.remedy in {Remedy.REBUILD, Remedy.NONE} and not finding.family)


def _copy(path: Path) -> Path:
    """A copy of a data directory, inside of it."""
    copy = path / time.strftime(_COPY)
    while copy.exists():
        copy = copy.with_name(f"{copy.name}-again")
    copy.mkdir()
    try:
        for name in (HEADER_FILE, MARK_FILE):
            with suppress(FileNotFoundError):
                shutil.copyfile(path / name, copy / name)
        if (path / DATABASE_FOLDER).is_dir():
            copy_files(path / DATABASE_FOLDER, copy / DATABASE_FOLDER)
    except OSError:
        _remove(copy)
        raise
    return copy


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
