"""What a manifest, damaged files and the log itself say of messages that are not there."""

from collections.abc import Iterable, Iterator

from penstock.pipeline.jobs.audit.evidence import DAMAGED, GAP, READ, Evidence
from penstock.pipeline.jobs.audit.explaining import (
    DAMAGED_FILE,
    EXPIRED,
    Absence,
    Explaining,
    Range,
    subtract,
)
from penstock.pipeline.jobs.audit.log_side import LOG
from penstock.pipeline.lake import DataFile, Manifest
from penstock.pipeline.lake.layout import BUCKET

NEVER_IN_LOG = "never-stored"
"""What the log says of messages that were published and never committed."""
SEEN_BEFORE = "lost-uncommitted"
"""What it says of messages that a reader had before the log lost its end: they explain no hole, because the
lake has them, and the next epoch gives their sequences again."""


def explaining_with(manifest: Manifest, seen: Iterable[Evidence], captured: tuple[str, ...]) -> Explaining:
    """All reasons that there can be.

    Args:
        seen: what was seen of files and of the log; runs need not be among it.
        captured: filters of the topics that the log keeps completely.
    """
    seen = list(seen)
    readable = {each.path for each in seen if each.kind == READ}
    damaged = [
        manifest.files[each.path] for each in seen if each.kind == DAMAGED and each.path not in readable
    ]
    gaps = [each for each in seen if each.kind == GAP and each.path == LOG]
    return Explaining(
        absences=(
            *_expired(manifest),
            *(Absence(gap.first, gap.last, gap.reason) for gap in manifest.gaps if gap.reason != SEEN_BEFORE),
            *(_of_damaged(file) for file in damaged),
            *(Absence(*_offsets(gap), str(gap.text)) for gap in gaps if gap.text == NEVER_IN_LOG),
        ),
        log_has=tuple(_read_of_log(seen, [_offsets(gap) for gap in gaps])),
        captured=captured,
        buckets=max(manifest.buckets, 1),
    )


def _expired(manifest: Manifest) -> Iterator[Absence]:
    for entry in manifest.expired:
        bucket = entry.partition.get(BUCKET)
        yield Absence(
            entry.first_offset,
            entry.last_offset,
            EXPIRED,
            entry.rows,
            None if bucket is None else int(bucket),
            is_of_lake=True,
        )


def _of_damaged(file: DataFile) -> Absence:
    bucket = file.partition.get(BUCKET)
    return Absence(
        file.first_offset or 0,
        file.last_offset or 0,
        DAMAGED_FILE,
        file.rows,
        None if bucket is None else int(bucket),
        is_of_lake=True,
    )


def _read_of_log(seen: Iterable[Evidence], gaps: list[Range]) -> Iterator[Range]:
    for each in seen:
        if each.kind == READ and each.path == LOG:
            yield from subtract(_offsets(each), gaps)


def _offsets(each: Evidence) -> Range:
    assert each.first_offset is not None
    assert each.last_offset is not None
    return each.first_offset, each.last_offset
