"""Copies of a data directory: what to copy of a snapshot, and what is told about it."""

import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from penstock.cli.log.endings import offsets_of
from penstock.cli.log.findings import tidy
from penstock.cli.log.snapshot import Snapshot
from penstock.cli.progress import bar
from penstock.core.records import RETAINED, SESSIONS
from penstock.storage.disk.copying import Ending, copy_store, epoch_of_copy
from penstock.storage.disk.failures import DamagedData, unavailable
from penstock.storage.disk.layout import COMMIT_KEY, STATE, offset_of


class Copied(Struct, frozen=True):
    """What a copy has, and what it lacks."""

    path: str
    log_id: str
    first_offset: int
    last_offset: int
    epoch: int
    """The one that the copy begins; a server that starts on it has a later one."""
    messages: int
    sessions: int
    retained: int
    missing: tuple[str, ...]
    """What could not be read, in words; empty if all is well."""


def copy(snapshot: Snapshot, target: Path) -> Copied:
    """Write what a snapshot shows into a new data directory.

    Raises:
        StorageUnavailable: it cannot be written there; the text says why.
    """
    pieces = snapshot.index.after(0, len(snapshot.index))
    ending = _ending(snapshot)
    damage: list[DamagedData] = []
    with bar("copying", sum(piece.bytes for piece in pieces)) as advance:
        try:
            copy_store(snapshot.store, target, ending, on_damage=damage.append, advance=advance)
        except OSError as error:
            raise unavailable(f"{target}: {error.strerror}") from error
    return Copied(
        path=str(target),
        log_id=snapshot.log_id,
        first_offset=snapshot.first_offset,
        last_offset=ending.last_offset,
        epoch=ending.epoch,
        messages=sum(piece.count for piece in pieces),
        sessions=sum(1 for _ in snapshot.records(SESSIONS)),
        retained=sum(1 for _ in snapshot.records(RETAINED)),
        missing=tuple(_missing(snapshot, damage)),
    )


def _ending(snapshot: Snapshot) -> Ending:
    """What is there counts, whether the mark covers it yet or not: the copy is as a crash would leave it."""
    offset, commit = (snapshot.mark.offset, snapshot.mark.commit) if snapshot.mark else (0, 0)
    stored = _stored_commit(snapshot)
    return Ending(
        last_offset=max(offset, snapshot.index.last_offset),
        last_commit=max(commit, stored),
        epoch=epoch_of_copy(snapshot.epoch, time.time_ns() // 1_000),
    )


def _stored_commit(snapshot: Snapshot) -> int:
    try:
        (value,) = snapshot.store.get(STATE, [COMMIT_KEY])
    except DamagedData:
        return 0
    return 0 if value is None else offset_of(value)


def _missing(snapshot: Snapshot, damage: list[DamagedData]) -> Iterator[str]:
    """What the copy lacks that its original was to have; what was given up long ago is none of it."""
    if snapshot.opening.salvage is not None:
        yield f"the database is damaged ({tidy(snapshot.opening.salvage.words, snapshot.store.path)})"
    if snapshot.is_state_behind:
        yield "changes of sessions are lost"
    for gap in snapshot.damage:
        if not snapshot.was_lost_earlier(gap):
            yield f"{offsets_of(gap)}: {gap.reason}"
    for error in damage:
        yield f"a part of the database cannot be read: {tidy(str(error), snapshot.store.path)}"
