"""Whether a sealed batch can be read, and agrees with what is stored about it."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import MsgspecError

from penstock.storage.disk.columns import SCHEMA, count_reserved, decode_batch
from penstock.storage.disk.failures import DamagedData
from penstock.storage.disk.frames import Extent, Summary, decode_extents
from penstock.storage.disk.layout import SEQUENCES, TOPICS, offset_key, pack_place, sequence_key
from penstock.storage.disk.store import Store

_KEYS_AT_ONCE = 10_000


def open_batch(data: bytes) -> pa.RecordBatch:
    """A sealed batch, all of it unpacked.

    Raises:
        ValueError: it is none, or makes no sense.
    """
    batch = decode_batch(data)
    if not batch.schema.equals(SCHEMA):
        raise ValueError("its columns are not those of a log")
    batch.validate(full=True)
    offsets = batch.column("offset")
    if not batch.num_rows or not pc.all(pc.less(offsets[:-1], offsets[1:])).as_py():
        raise ValueError("its offsets do not rise")
    return batch


def extents_in(batch: pa.RecordBatch) -> dict[str, Extent]:
    """What a batch has of each topic."""
    columns = {
        "topic": batch.column("topic").dictionary_decode(),
        "sequence": batch.column("sequence"),
        "qos": batch.column("qos"),
    }
    figures = [("sequence", "min"), ("sequence", "max"), ("sequence", "count"), ("qos", "max")]
    grouped = pa.table(columns).group_by("topic").aggregate(figures)
    names = grouped.column("topic").to_pylist()
    values = (grouped.column(f"{column}_{figure}").to_pylist() for column, figure in figures)
    return {name: Extent(*extent) for name, *extent in zip(names, *values, strict=True)}


def places_in(first: int, extents: dict[str, Extent]) -> Iterator[tuple[bytes, bytes]]:
    """Where the sequences of each topic are, as it is stored."""
    for topic, extent in extents.items():
        yield sequence_key(topic, extent.first), pack_place(first, extent.last)


def disagreements(
    store: Store, first: int, batch: pa.RecordBatch, size: int, summary: Summary | None
) -> Iterator[str]:
    """What is stored about a batch, and is not so."""
    if summary is None:
        yield "the index does not know it"
    elif not is_summary_of(summary, first, batch, size):
        yield "the index says something else of it"
    extents = extents_in(batch)
    if _stored_extents(store, first) != extents:
        yield "the list of its topics is damaged"
    if not _has_places(store, dict(places_in(first, extents))):
        yield "the places of its sequences are damaged"


def is_summary_of(summary: Summary, first: int, batch: pa.RecordBatch, size: int) -> bool:
    """Whether what the index says of a batch is so."""
    offsets, epochs = batch.column("offset"), batch.column("epoch")
    return (
        summary.first == first
        and first <= offsets[0].as_py()
        and offsets[-1].as_py() <= summary.last
        and (summary.count, summary.bytes) == (batch.num_rows, size)
        and summary.began_at == batch.column("published_at")[0].value
        and summary.first_epoch <= epochs[0].as_py() <= epochs[-1].as_py() <= summary.last_epoch
        and summary.reserved in (None, count_reserved(batch))
    )


def _stored_extents(store: Store, first: int) -> dict[str, Extent] | None:
    try:
        (data,) = store.get(TOPICS, [offset_key(first)])
        return None if data is None else decode_extents(data)
    except (DamagedData, MsgspecError):
        return None


def _has_places(store: Store, places: dict[bytes, bytes]) -> bool:
    keys = list(places)
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        wanted = keys[start : start + _KEYS_AT_ONCE]
        try:
            found = store.get(SEQUENCES, wanted)
        except DamagedData:
            return False
        if found != [places[key] for key in wanted]:
            return False
    return True
