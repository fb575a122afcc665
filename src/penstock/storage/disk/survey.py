"""The walk through the log at start: what is there, where it ends, and what is missing.

Every offset from the first that retention left to the last that was acknowledged belongs to a piece. Those
that do not are damaged, whether RocksDB complained or not. Only the index and the unsealed rows are read:
damage inside a sealed batch shows when it is read.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import MsgspecError, Struct

from penstock.core.ports import Gap
from penstock.model import Reason
from penstock.storage.disk.frames import Range, Summary, decode_frame, decode_summary
from penstock.storage.disk.index import Index, Piece
from penstock.storage.disk.layout import (
    COMMIT_KEY,
    FIRST_OFFSET_KEY,
    INDEX,
    ROWS,
    STATE,
    offset_of,
    table_prefix,
)
from penstock.storage.disk.mark import MarkValue
from penstock.storage.disk.reindexing import find_batches
from penstock.storage.disk.store import DamagedData, Store

EPOCHS = "epochs"
"""The table that tells where each epoch began; its keys are the epochs."""


class Survey(Struct, frozen=True):
    """What the log is at start."""

    index: Index
    last_offset: int
    """The last that was ever acknowledged, as far as is known: new ones come after it, even if it is lost."""
    epoch: int
    """The last one that is known of; 0 if there was none."""
    last_commit: int
    sequences: dict[str, int]
    """The last sequence of each topic in what is not sealed."""
    damage: tuple[Gap, ...]
    rows: int
    """How many messages are not sealed."""
    is_state_behind: bool
    """Commits were lost, and with them perhaps changes of sessions."""


def survey(store: Store, mark: MarkValue | None) -> Survey:
    """Walk through a log."""
    mark = mark or MarkValue(0, 0)
    frames = list(_read_frames(store))
    summaries = list(_read_summaries(store))
    first_offset = _read_number(store, FIRST_OFFSET_KEY, missing=1)
    last_commit = _read_number(store, COMMIT_KEY, missing=0)
    index = _index(summaries, frames, first_offset)
    last_offset = max(index.last_offset, mark.offset)
    if damage := _missing(index, last_offset):
        summaries += [summary for gap in damage for summary in find_batches(store, *gap)]
        index = _index(summaries, frames, first_offset)
        damage = _missing(index, last_offset)
    epochs = [frame.epoch for frame in frames] + [summary.last_epoch for summary in summaries]
    return Survey(
        index=index,
        last_offset=last_offset,
        epoch=max(mark.epoch, *epochs, *_read_epochs(store), 0),
        last_commit=max(last_commit or 0, mark.commit),
        sequences=_last_sequences(frames),
        damage=tuple(Gap(first, last, Reason.DAMAGED) for first, last in damage),
        rows=sum(piece.count for piece in index.after(0, len(index)) if not piece.is_sealed),
        is_state_behind=last_commit is None or last_commit < mark.commit,
    )


def end_of_epoch(epochs: Mapping[int, int], epoch: int) -> int | None:
    """The last offset of an epoch that is over, by where the known ones began; None if it is not known.

    One that this log never had, but later than its first, is of a log that went another way after a copy was
    made of it: what it has in common with this one ends where the next epoch begins.
    """
    following = [first for number, first in epochs.items() if number > epoch]
    return min(following) - 1 if following and epoch >= min(epochs) else None


class _Frame(Struct, frozen=True):
    """What is needed of a frame when its messages are not."""

    epoch: int
    piece: Piece
    sequences: dict[str, int]


def _read_frames(store: Store) -> Iterator[_Frame]:
    for _, data in store.scan_around(ROWS, on_damage=_go_on):
        with suppress(MsgspecError):
            frame = decode_frame(data)
            sequences = {run.topic: run.sequence + run.count - 1 for run in frame.runs}
            yield _Frame(frame.epoch, Piece.of_frame(frame, len(data)), sequences)


def _read_summaries(store: Store) -> Iterator[Summary]:
    for _, data in store.scan_around(INDEX, on_damage=_go_on):
        with suppress(MsgspecError):
            yield decode_summary(data)


def _read_epochs(store: Store) -> Iterator[int]:
    prefix = table_prefix(EPOCHS)
    for key, _ in store.scan_around(STATE, prefix, prefix[:-1] + b"\1", on_damage=_go_on):
        yield int(key.removeprefix(prefix))


def _read_number(store: Store, key: bytes, *, missing: int) -> int | None:
    """A number of the state; None if it cannot be read."""
    try:
        (value,) = store.get(STATE, [key])
    except DamagedData:
        return None
    return missing if value is None else offset_of(value)


def _go_on(_error: DamagedData, _place: bytes | None) -> None:
    """What cannot be read shows as a gap."""


def _index(summaries: Iterable[Summary], frames: Iterable[_Frame], first_offset: int | None) -> Index:
    """All pieces in order, each offset once: where there are rows and a batch, the batch counts."""
    batches = map(Piece.of_summary, summaries)
    pieces: list[Piece] = []
    for piece in sorted([*batches, *(frame.piece for frame in frames)], key=_first_and_sealed):
        if not pieces or piece.first > pieces[-1].last:
            pieces.append(piece)
    if first_offset is None:  # whether something is missing before them cannot be told
        first_offset = pieces[0].first if pieces else 1
    return Index(pieces, first_offset)


def _first_and_sealed(piece: Piece) -> tuple[int, bool]:
    return piece.first, not piece.is_sealed


def _missing(index: Index, last_offset: int) -> list[Range]:
    first_offset = index.first_offset
    if not len(index):
        return [(first_offset, last_offset)] if first_offset <= last_offset else []
    return index.gaps(first_offset - 1, last_offset)


def _last_sequences(frames: Iterable[_Frame]) -> dict[str, int]:
    sequences: dict[str, int] = {}
    for frame in frames:
        sequences.update(frame.sequences)
    return sequences
