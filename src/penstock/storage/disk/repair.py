"""Repair of a damaged data directory: what can be read stays, and all stored parts agree again.

No other process may use the directory meanwhile. Lost messages stay lost: their offsets remain empty, so that
every reader gets a gap for them. The copy made before a repair is a data directory of its own; it shares the
tables by hard links, so it takes little room until the server replaces them.
"""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from penstock.common.statement import Gap
from penstock.errors import InvalidConfig
from penstock.storage.disk.commit.durable_mark import DurableMark
from penstock.storage.disk.pieces.frames import decode_summary, encode_extents, encode_summary
from penstock.storage.disk.pieces.sealing import Sealer
from penstock.storage.disk.pieces.sealing_process import SealingFailed
from penstock.storage.disk.recovery.opening import is_served, open_store
from penstock.storage.disk.recovery.salvage import copy_files
from penstock.storage.disk.recovery.survey import Survey, find_batches, survey
from penstock.storage.disk.rocksdb.errors import Salvage, StorageFull
from penstock.storage.disk.rocksdb.layout import (
    DATABASE_FOLDER,
    HEADER_FILE,
    INDEX,
    LOG,
    MARK_FILE,
    SEQUENCES,
    STATE,
    TOPICS,
    offset_of,
    read_header,
    sync_folder,
    sync_tree,
)
from penstock.storage.disk.rocksdb.store import Changes, Store
from penstock.storage.disk.snapshot import (
    database_error_text,
    describe_missing_database,
    find_node_id,
    lacks_database,
)
from penstock.storage.disk.verify import (
    Check,
    Finding,
    Progress,
    Remedy,
    check_files,
    extents_in,
    is_summary_of,
    no_progress,
    open_batch,
    places_in,
)

_COPY = f"{DATABASE_FOLDER}-before-repair-%Y%m%dT%H%M%S"
_ROUNDS = 5


class RepairReport(Struct, frozen=True):
    """Result of a repair."""

    findings: list[Finding]
    lost: tuple[Gap, ...]
    """Offsets that cannot be read any more."""
    is_state_doubtful: bool
    """Changes of sessions may be lost."""
    has_changed: bool
    """True if at least one finding had a remedy."""
    sealed: int
    """Messages that were sealed."""
    copy: Path | None
    """Copy of the directory as it was before."""


def repair_directory(
    path: Path, *, keeps_copy: bool, may_empty: bool = False, progress: Progress = no_progress
) -> RepairReport:
    """Repair a data directory.

    Args:
        may_empty: if the database is missing, begin with an empty one.

    Raises:
        InvalidConfig: this is not a data directory, a server runs on it, or its database is missing.
        StorageUnavailable: the disk is full, or fails.
    """
    if read_header(path) is None and not (path / DATABASE_FOLDER).is_dir():
        raise InvalidConfig(f"{path} is not a data directory")
    if is_served(path):
        raise InvalidConfig(f"{path} is in use by another process: stop the server first")
    findings = list(check_files(path))
    if lacks_database(path):
        if not may_empty:
            raise InvalidConfig(f"{path}: {describe_missing_database(path)}; --empty gives it up")
        findings.append(Finding(f"the database folder {DATABASE_FOLDER}/ is missing", Remedy.REBUILD))
    copy = _copy(path) if keeps_copy else None
    try:
        store, opening = open_store(path)
    except InvalidConfig:
        _remove(copy)
        raise
    repair = Repair(store, findings, progress)
    try:
        repair.note(opening.salvage)
        report = repair.run(copy)
    finally:
        store.close()
    for aside in (*repair.asides, None if repair.has_changed else copy):
        _remove(aside)  # the copy has the same, or nothing was changed
    return report


class Repair:
    """Repair of one store, which no other process has open."""

    def __init__(self, store: Store, findings: list[Finding], progress: Progress) -> None:
        self._store = store
        self._findings = findings
        self._progress = progress
        self.asides: list[Path] = []
        """Damaged databases that were replaced."""

    def note(self, salvage: Salvage | None) -> None:
        """Record that the database was replaced when it was opened."""
        if salvage is not None:
            self.asides.append(salvage.aside)
            what = f"the database was damaged ({database_error_text(salvage.words, self._store.path)})"
            self._findings.append(Finding(what, Remedy.REBUILD))

    def run(self, copy: Path | None) -> RepairReport:
        """Check and repair until nothing repairable is found."""
        found = self._survey()
        for number in range(_ROUNDS):
            findings = self._check(found)
            repairable = [each for each in findings if each.is_repairable]
            news = repairable if number else findings  # later, what was removed shows as missing
            self._findings += [each for each in news if each not in self._findings]
            if not repairable:
                break
            self._repair(repairable)
            found = self._survey()
        if any(each.remedy is Remedy.REWRITE for each in self._findings):
            self._write_mark(found)
        return RepairReport(
            findings=self._findings,
            lost=found.damage,
            is_state_doubtful=found.is_state_behind or any(map(_is_about_state, self._findings)),
            has_changed=self.has_changed,
            sealed=self._seal(found) if self.has_changed else 0,
            copy=copy if self.has_changed else None,
        )

    @property
    def has_changed(self) -> bool:
        """True if at least one finding had a remedy."""
        return any(each.is_repairable for each in self._findings)

    def _survey(self) -> Survey:
        return survey(self._store, DurableMark.read(self._store.path))

    def _check(self, found: Survey) -> list[Finding]:
        with self._progress("reading", found.index.bytes) as advance:
            return list(Check(self._store, found.index, found.last_offset, advance).findings(found.damage))

    def _repair(self, findings: Iterable[Finding]) -> None:
        if any(each.remedy is Remedy.REBUILD for each in findings):
            self._rebuild()
            return  # what could not be copied shows in the next round
        for finding in findings:
            if finding.remedy is Remedy.REMOVE:
                self._store.write(_removal(finding), sync=True)
            elif finding.remedy is Remedy.REINDEX:
                self._store.write(_reindex(self._store, finding.key), sync=True)

    def _rebuild(self) -> None:
        self._store.rebuild()
        if self._store.salvage is None:
            raise StorageFull(f"{self._store.path}: there is no room for another copy of the database")
        self.asides.append(self._store.salvage.aside)

    def _write_mark(self, found: Survey) -> None:
        mark = DurableMark.open(self._store.path)
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
        except SealingFailed:  # the server does it later
            return 0
        finally:
            sealer.stop()


def _removal(finding: Finding) -> Changes:
    changes = Changes()
    for family in (LOG, INDEX, TOPICS) if finding.family == LOG else (finding.family,):
        changes.delete(family, finding.key)
    return changes


def _reindex(store: Store, key: bytes) -> Changes:
    """The index entries of a sealed batch."""
    first = offset_of(key)
    data, known = store.get(LOG, [key])[0], store.get(INDEX, [key])[0]
    assert data is not None
    batch = open_batch(data)
    (summary,) = find_batches(store, first, first)
    if known is not None and is_summary_of(decode_summary(known), first, batch, len(data)):
        summary = decode_summary(known)  # it also has the gaps, which a batch does not show
    extents = extents_in(batch)
    changes = Changes()
    changes.put(INDEX, key, encode_summary(summary))
    changes.put(TOPICS, key, encode_extents(extents))
    for place, value in places_in(first, extents):
        changes.put(SEQUENCES, place, value)
    return changes


def _is_about_state(finding: Finding) -> bool:
    """True if sessions may be affected: whole commits or records are lost."""
    return finding.family == STATE or (finding.remedy in {Remedy.REBUILD, Remedy.NONE} and not finding.family)


def _copy(path: Path) -> Path:
    """Copy a data directory into a folder inside of it."""
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
        sync_tree(copy)
        sync_folder(path)
    except OSError:
        _remove(copy)
        raise
    return copy


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
