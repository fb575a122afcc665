"""The properties of messages that are replayed: their own, then those that say what they were.

It is done column by column: a replay spends most of its time here otherwise.
"""

from base64 import urlsafe_b64decode
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.cursor import Cursor
from penstock.core.ports import Position

ORIGINAL = "ps-original-"
"""How the properties begin that say what a message was."""
NAMES = tuple(f"{ORIGINAL}{name}" for name in ("topic", "time", "sequence", "epoch", "cursor"))

TEXT = pa.string()
PAIRS = pa.list_(pa.struct([("key", TEXT), ("value", TEXT)]))

Pairs = list[tuple[str, str]]

_RESPONSE_TOPIC = "$response_topic"  # so the log keeps what has no column of its own
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_EPOCH_AT, _OFFSET_AT, _CURSOR_BYTES = 9, 13, 21


def properties_of(batch: pa.RecordBatch, log_id: str) -> tuple[pa.Array, pa.Array]:
    """The response topics and the properties of messages that are rows of the log."""
    responses, own = _own_of(batch.column("properties"))
    originals = (
        batch.column("topic").cast(TEXT),
        _times_of(batch.column("published_at")),
        batch.column("sequence").cast(TEXT),
        batch.column("epoch").cast(TEXT),
        cursors_of(log_id, batch.column("epoch"), batch.column("offset")),
    )
    return responses, _joined(own, originals, batch.num_rows)


def _own_of(column: pa.Array) -> tuple[pa.Array, list[Pairs]]:
    """What senders gave, by row; nothing at all if none of them gave anything."""
    if column.null_count == len(column):
        return pa.nulls(len(column), TEXT), []
    split = [_split(pairs or []) for pairs in column.to_pylist()]
    return pa.array([response for response, _ in split], TEXT), [pairs for _, pairs in split]


def _split(kept: Pairs) -> tuple[str | None, Pairs]:
    """The response topic among the properties that the log keeps, and those that the sender gave."""
    response: str | None = None
    pairs: Pairs = []
    for key, value in kept:
        if key == _RESPONSE_TOPIC:
            response = value
        elif key.startswith("$$"):  # one more than the sender wrote
            pairs.append((key[1:], value))
        elif not key.startswith(("$", ORIGINAL)):
            pairs.append((key, value))
    return response, pairs


def _times_of(column: pa.Array) -> pa.Array:
    """Times to the microsecond, in UTC."""
    times = column.cast(pa.timestamp("us", "UTC"))
    return pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ")


def cursors_of(log_id: str, epochs: pa.Array, offsets: pa.Array) -> pa.Array:
    """The cursor of each place in a log, as `Cursor.encode` writes it."""
    rows, first = len(offsets), Cursor((Position(log_id, 0, 0),)).encode()
    packed = np.empty((rows, _CURSOR_BYTES), np.uint8)
    packed[:] = np.frombuffer(urlsafe_b64decode(first), np.uint8)
    packed[:, _EPOCH_AT:_OFFSET_AT] = _bytes_of(epochs, ">u4")
    packed[:, _OFFSET_AT:] = _bytes_of(offsets, ">u8")
    threes = packed.reshape(rows, _CURSOR_BYTES // 3, 3).astype(np.uint32)
    bits = (threes[:, :, 0] << 16) | (threes[:, :, 1] << 8) | threes[:, :, 2]
    letters = _LETTERS[np.stack([(bits >> shift) & 63 for shift in (18, 12, 6, 0)], axis=2)]
    ends = np.arange(rows + 1, dtype=np.int32) * len(first)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(letters.tobytes()))


def _bytes_of(numbers: pa.Array, kind: str) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    written = numbers.to_numpy().astype(kind)
    return np.frombuffer(written.tobytes(), np.uint8).reshape(len(numbers), written.itemsize)


def _joined(own: list[Pairs], originals: tuple[pa.Array, ...], rows: int) -> pa.Array:
    """Lists of pairs: in each row its own, then one of each column of originals."""
    flat = [pair for pairs in own for pair in pairs]
    counts = np.array([len(pairs) for pairs in own] or [0] * rows, np.int64)
    keys = pa.concat_arrays(
        [pa.array([key for key, _ in flat], TEXT), *(pa.repeat(pa.scalar(name), rows) for name in NAMES)]
    )
    values = pa.concat_arrays([pa.array([value for _, value in flat], TEXT), *originals])
    ends = np.concatenate([[0], np.cumsum(counts + len(NAMES))])
    places = np.full(ends[-1], -1, np.int64)  # of each pair, among all that there are
    columns = np.arange(len(NAMES))
    places[(ends[:-1] + counts)[:, None] + columns] = len(flat) + columns * rows + np.arange(rows)[:, None]
    places[places < 0] = np.arange(len(flat))
    pairs = pa.StructArray.from_arrays(
        [keys.take(places), values.take(places)], fields=list(PAIRS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs)
