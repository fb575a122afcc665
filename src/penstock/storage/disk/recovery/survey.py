"""Survey of the log at start: its pieces, its end, and the offsets that are missing.

Every offset from the first that retention left to the last that was acknowledged belongs to a piece. Those
that do not are damaged, even if RocksDB reports no error. Only the index and the unsealed rows are read:
damage inside a sealed batch shows when it is read.

Reindexing: where the index has a gap, sealed batches are read for their own summary. A damaged block of the
index would otherwise hide many intact batches. A batch does not know its holes, nor empty offsets after its
last message: these count as missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import MsgspecError, Struct

from penstock.common.statement import Gap
from penstock.model import Reason
from penstock.storage.disk.commit.durable_mark import MarkValue
from penstock.storage.disk.pieces.frames import Range, Summary, decode_outline, decode_summary
from penstock.storage.disk.pieces.index import Index
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import (
    COMMIT_KEY,
    FIRST_OFFSET_KEY,
    INDEX,
    LOG,
    ROWS,
    STATE,
    offset_key,
    offset_of,
    table_prefix,
)
from penstock.storage.disk.rocksdb.store import Store

EPOCHS = "epochs"
"""Table with the first offset of each epoch; its keys are the epochs."""


class EpochRecord(Struct, frozen=True, array_like=True):
    """First offset of an epoch."""

    first: int


class Survey(Struct, frozen=True):
    """Result of a survey."""

    index: Index
    last_offset: int
    """The last known acknowledged offset: new ones follow it, even if it is lost."""
    epoch: int
    """The last known epoch; 0 if there was none."""
    last_commit: int
    sequences: dict[str, int]
    """The last sequence of each topic among unsealed rows."""
    damage: tuple[Gap, ...]
    rows: int
    """Number of unsealed messages."""
    is_state_behind: bool
    """Commits were lost, and perhaps session changes with them."""


def survey(store: Store, mark: MarkValue | None) -> Survey:
    """Survey a log; `mark` is None if it is missing or damaged."""
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
    """The last offset of a past epoch, None if unknown; `epochs` has the first offset of each.

    An unknown epoch later than the first one belongs to a copy of this log that has diverged: their common
    part ends where the next known epoch begins.
    """
    following = [first for number, first in epochs.items() if number > epoch]
    return min(following) - 1 if following and epoch >= min(epochs) else None


class _Frame(Struct, frozen=True):
    """A frame without its messages."""

    epoch: int
    piece: Piece
    sequences: dict[str, int]


def _read_frames(store: Store) -> Iterator[_Frame]:
    for _, data in store.scan_readable(ROWS, on_damage=_skip_damage):
        with suppress(MsgspecError):
            outline = decode_outline(data)
            yield _Frame(outline.epoch, Piece.of_outline(outline, len(data)), outline.sequences)


def _read_summaries(store: Store) -> Iterator[Summary]:
    for _, data in store.scan_readable(INDEX, on_damage=_skip_damage):
        with suppress(MsgspecError):
            yield decode_summary(data)


def _read_epochs(store: Store) -> Iterator[int]:
    prefix = table_prefix(EPOCHS)
    for key, _ in store.scan_readable(STATE, prefix, prefix[:-1] + b"\1", on_damage=_skip_damage):
        yield int(key.removeprefix(prefix))


def _read_number(store: Store, key: bytes, *, missing: int) -> int | None:
    """Read a number from the state; None if it is damaged."""
    try:
        (value,) = store.get(STATE, [key])
    except DamagedData:
        return None
    return missing if value is None else offset_of(value)


def _skip_damage(_error: DamagedData, _place: bytes | None) -> None:
    """Ignore unreadable entries: they show as gaps."""


def _index(summaries: Iterable[Summary], frames: Iterable[_Frame], first_offset: int | None) -> Index:
    """All pieces in order without overlap; a batch takes precedence over rows."""
    batches = map(Piece.of_summary, summaries)
    pieces: list[Piece] = []
    for piece in sorted([*batches, *(frame.piece for frame in frames)], key=_first_and_sealed):
        if not pieces or piece.first > pieces[-1].last:
            pieces.append(piece)
    if first_offset is None:  # unknown, so nothing before them counts as missing
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


def find_batches(store: Store, first: int, last: int) -> list[Summary]:
    """Summaries of the sealed batches that begin between two offsets, read from the batches."""
    found: list[Summary] = []
    for key, value in store.scan_readable(
        LOG, offset_key(first), offset_key(last + 1), on_damage=_skip_damage
    ):
        summary = _summarize_batch(offset_of(key), value)
        if summary is not None:
            found.append(summary)
    return found


def _summarize_batch(first: int, data: bytes) -> Summary | None:
    from penstock.storage.disk.pieces.arrow_columns import (  # noqa: PLC0415 - slow, and seldom needed
        count_reserved,
        decode_batch,
    )

    try:
        batch = decode_batch(data, ["offset", "topic", "epoch", "published_at"])
    except ValueError:
        return None
    offsets, epochs, times = (batch.column(name) for name in ("offset", "epoch", "published_at"))
    return Summary(
        first,
        offsets[-1].as_py(),
        batch.num_rows,
        len(data),
        times[0].value,
        times[-1].value,
        epochs[0].as_py(),
        epochs[-1].as_py(),
        reserved=count_reserved(batch),
    )
