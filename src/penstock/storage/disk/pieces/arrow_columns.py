"""Arrow schema of sealed batches, and the conversion of runs to columns and back.

Lossless, except for the grouping: each message is read as a run of its own. Properties without a column
are in the map `properties`, which keeps order and repeated keys.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from penstock.common.stored_runs import expiry_of
from penstock.model import Door, Properties, is_public
from penstock.runs import NEVER, Run, Shape, bare_shape
from penstock.storage.disk.pieces.frames import Extent, Frame, Summary, join_ranges

_NAME = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    {
        "offset": pa.int64(),
        "topic": _NAME,
        "sequence": pa.int64(),
        "epoch": pa.int64(),
        "published_at": _TIME,
        "expires_at": _TIME,  # null if never
        "qos": pa.int8(),
        "retain": pa.bool_(),
        "payload": pa.binary(),
        "content_type": _NAME,
        "correlation_id": pa.binary(),
        "message_id": pa.string(),
        "client_id": _NAME,
        "node_id": _NAME,
        "door": _NAME,
        "properties": _MAP,  # null if there are no properties at all
        "logged_at": _TIME,  # null in batches older than this column
    }
)
"""Columns of every batch, in this order. New ones are appended, so that positions stay."""

RUN_COLUMNS = tuple(name for name in SCHEMA.names if name not in {"epoch", "node_id", "logged_at"})
"""Columns that `to_runs` needs."""
LISTED_COLUMNS = ("offset", "topic", "expires_at", "qos", "payload")
"""Columns that a listing needs; payloads only for their sizes."""
_FIRST_COLUMNS = SCHEMA.get_field_index("logged_at")
"""Least number of columns of a batch."""

_RESPONSE_TOPIC = "$response_topic"
_PAYLOAD_FORMAT = "$payload_format"
_SECOND_US = 1_000_000
_SOON = 1e-9
"""Stands for a lifetime below the resolution of times, which must not become `NEVER`."""

_WRITING = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)  # threads do not pay off

_Pairs = list[tuple[str, str]]


def to_batch(frames: Sequence[Frame], node_id: str) -> pa.RecordBatch:
    """All messages of some frames in order, one row each."""
    runs = [run for frame in frames for run in frame.runs]
    columns = _columns_of(runs)
    columns["epoch"] = pa.array(_repeat((frame.epoch, len(frame.runs)) for frame in frames), pa.int64())
    logged_at = _repeat((frame.committed_at, len(frame.runs)) for frame in frames)
    columns["logged_at"] = pa.array(logged_at, pa.int64()).view(_TIME)
    counts = [run.count for run in runs]
    total = sum(counts)
    if total > len(runs):
        parents = pa.array(_repeat(enumerate(counts)), pa.int32())
        columns = {name: column.take(parents) for name, column in columns.items()}
    columns |= _own_columns_of(runs, counts, total)
    columns["node_id"] = pa.DictionaryArray.from_arrays(
        pa.array([0] * total, pa.int32()), pa.array([node_id])
    )
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _columns_of(runs: list[Run]) -> dict[str, pa.Array]:
    """Columns shared by all messages of a run: one row per run."""
    shapes = [run.shape for run in runs]
    return {
        "topic": pa.array([run.topic for run in runs], pa.string()).dictionary_encode(),
        "published_at": pa.array([run.published_at for run in runs], pa.int64()).view(_TIME),
        "expires_at": _expiries_of(runs),
        "qos": pa.array([shape.qos for shape in shapes], pa.int8()),
        "retain": pa.array([shape.retain for shape in shapes], pa.bool_()),
        "client_id": pa.array([run.client_id for run in runs], pa.string()).dictionary_encode(),
        "door": pa.array([shape.door for shape in shapes], pa.string()).dictionary_encode(),
        **_properties_of(runs),
    }


def _own_columns_of(runs: list[Run], counts: list[int], total: int) -> dict[str, pa.Array]:
    """Columns of single messages: one row per message."""
    if total == len(runs):
        offsets: Iterable[int] = [run.offset for run in runs]
        sequences: Iterable[int] = [run.sequence for run in runs]
        payloads = [run.slab[run.head : run.stride] for run in runs]
    else:
        offsets = chain.from_iterable(range(run.offset, run.offset + run.count) for run in runs)
        sequences = chain.from_iterable(range(run.sequence, run.sequence + run.count) for run in runs)
        payloads = [
            run.payload(index) for run, count in zip(runs, counts, strict=True) for index in range(count)
        ]
    return {
        "offset": pa.array(offsets, pa.int64(), size=total),
        "sequence": pa.array(sequences, pa.int64(), size=total),
        "payload": pa.array(payloads, pa.binary()),
    }


def _expiries_of(runs: list[Run]) -> pa.Array:
    if not any(run.ttl for run in runs):
        return pa.nulls(len(runs), _TIME)
    return pa.array([expiry_of(run) for run in runs], pa.int64()).view(_TIME)


def _properties_of(runs: list[Run]) -> dict[str, pa.Array]:
    all_properties = [run.properties for run in runs]
    if not any(all_properties):
        return {
            name: pa.nulls(len(runs), SCHEMA.field(name).type)
            for name in ("content_type", "correlation_id", "message_id", "properties")
        }
    known = [properties or Properties() for properties in all_properties]
    pairs = [None if properties is None else _pairs_of(properties) for properties in all_properties]
    return {
        "content_type": pa.array([each.content_type for each in known], pa.string()).dictionary_encode(),
        "correlation_id": pa.array([each.correlation_id for each in known], pa.binary()),
        "message_id": pa.array([each.message_id for each in known], pa.string()),
        "properties": pa.array(pairs, _MAP),
    }


def _pairs_of(properties: Properties) -> _Pairs:
    """Properties without a column of their own; a leading `$` in a name is doubled."""
    pairs = [("$" + key if key.startswith("$") else key, value) for key, value in properties.user]
    if properties.response_topic is not None:
        pairs.append((_RESPONSE_TOPIC, properties.response_topic))
    if properties.payload_format is not None:
        pairs.append((_PAYLOAD_FORMAT, str(properties.payload_format)))
    return pairs


def _repeat(values: Iterable[tuple[int, int]]) -> list[int]:
    """Repeat each value by its count."""
    return list(chain.from_iterable(repeat(value, count) for value, count in values))


def to_runs(batch: pa.RecordBatch) -> list[Run]:
    """Every message of a batch as a run with a bare payload."""
    rows = batch.num_rows
    if not rows:
        return []
    published = _times(batch, "published_at")
    shapes = _shapes_in(batch)
    return [
        Run(topic, payload, 0, len(payload), 1, shape, properties, ttl, 0, client_id, sequence, offset, began)
        for topic, payload, shape, properties, ttl, client_id, sequence, offset, began in zip(
            _names(batch, "topic"),
            batch.column("payload").to_pylist(),
            shapes,
            _properties_in(batch),
            _lifetimes_in(batch, published),
            _names(batch, "client_id"),
            batch.column("sequence").to_pylist(),
            batch.column("offset").to_pylist(),
            published,
            strict=True,
        )
    ]


def _shapes_in(batch: pa.RecordBatch) -> list[Shape]:
    door_column = batch.column("door")
    shapes = [
        bare_shape(Door(door), qos, retain)
        for door in door_column.dictionary.to_pylist()
        for qos in range(3)
        for retain in (False, True)
    ]
    return [
        shapes[door * 6 + qos * 2 + retain]
        for door, qos, retain in zip(
            door_column.indices.to_pylist(),
            batch.column("qos").to_pylist(),
            batch.column("retain").to_pylist(),
            strict=True,
        )
    ]


def _lifetimes_in(batch: pa.RecordBatch, published: list[int]) -> Iterable[float]:
    if batch.column("expires_at").null_count == batch.num_rows:
        return repeat(NEVER, batch.num_rows)
    return [
        NEVER if expires is None else (expires - began) / _SECOND_US or _SOON
        for expires, began in zip(_times(batch, "expires_at"), published, strict=True)
    ]


def _properties_in(batch: pa.RecordBatch) -> Iterable[Properties | None]:
    pairs = batch.column("properties")
    if pairs.null_count == batch.num_rows:
        return repeat(None, batch.num_rows)
    return [
        None if own is None else _properties_from(own, content_type, correlation_id, message_id)
        for own, content_type, correlation_id, message_id in zip(
            pairs.to_pylist(),
            _names(batch, "content_type"),
            batch.column("correlation_id").to_pylist(),
            batch.column("message_id").to_pylist(),
            strict=True,
        )
    ]


def _properties_from(
    pairs: _Pairs, content_type: str | None, correlation_id: bytes | None, message_id: str | None
) -> Properties:
    response_topic: str | None = None
    payload_format: int | None = None
    user: _Pairs = []
    for key, value in pairs:
        if not key.startswith("$"):
            user.append((key, value))
        elif key.startswith("$$"):
            user.append((key[1:], value))
        elif key == _RESPONSE_TOPIC:
            response_topic = value
        elif key == _PAYLOAD_FORMAT:
            payload_format = int(value)
    return Properties(content_type, correlation_id, response_topic, payload_format, message_id, tuple(user))


def _names(batch: pa.RecordBatch, column: str) -> list[Any]:
    """Values of a dictionary column; in a large batch equal values are one object."""
    coded = batch.column(column)
    if len(coded) < len(coded.dictionary):  # a slice of a batch: most names are unused
        few: list[Any] = coded.dictionary_decode().to_pylist()
        return few
    names = coded.dictionary.to_pylist()
    if coded.null_count:
        return [None if index is None else names[index] for index in coded.indices.to_pylist()]
    return [names[index] for index in coded.indices.to_pylist()]


def _times(batch: pa.RecordBatch, column: str) -> list[int]:
    times: list[int] = batch.column(column).view(pa.int64()).to_pylist()
    return times


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Encode a batch as a complete, compressed Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITING) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def decode_batch(data: bytes, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Decode the batch of a stream; with `columns` only these, in the order of the schema.

    Columns newer than the batch are null.

    Raises:
        ValueError: the bytes are not a sealed batch.
    """
    fields = None if columns is None else [SCHEMA.get_field_index(name) for name in columns]
    try:
        if fields and max(fields) >= _FIRST_COLUMNS:  # the batch may be older than these
            stored = len(pa.ipc.read_schema(pa.py_buffer(data)))
            fields = [field for field in fields if field < stored] or [
                0
            ]  # any column, for the number of rows
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        with pa.ipc.open_stream(data, options=options) as reader:
            return _completed(reader.read_next_batch(), columns)
    except (pa.ArrowException, OSError, StopIteration, KeyError) as error:
        raise ValueError(f"not a batch: {error}") from error


def _completed(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Batch with null columns for those newer than itself."""
    known, wanted = batch.schema.names, SCHEMA.names if columns is None else columns
    missing = [name for name in SCHEMA.names[_FIRST_COLUMNS:] if name in wanted and name not in known]
    for name in missing:
        field = SCHEMA.field(name)
        batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
    if missing and columns is not None:
        batch = batch.select([name for name in SCHEMA.names if name in columns])
    return batch


def summarize(frames: Sequence[Frame], batch: pa.RecordBatch, size: int) -> tuple[Summary, dict[str, Extent]]:
    """Summary and topic extents of frames that became a batch of `size` bytes."""
    runs = [run for frame in frames for run in frame.runs]
    first, last = frames[0], frames[-1]
    extents = _extents_of(runs)
    summary = Summary(
        first.first,
        last.last,
        batch.num_rows,
        size,
        runs[0].published_at if runs else first.committed_at,
        runs[-1].published_at if runs else last.committed_at,
        first.epoch,
        last.epoch,
        tuple(join_ranges(chain.from_iterable(frame.holes for frame in frames))),
        sum(extent.count for topic, extent in extents.items() if not is_public(topic)),
    )
    return summary, extents


def count_reserved(batch: pa.RecordBatch) -> int:
    """Number of messages of a batch that are not `is_public`."""
    topics = batch.column("topic")
    flags = [not is_public(topic) for topic in topics.dictionary.to_pylist()]
    return int(pa.array(flags, pa.bool_()).take(topics.indices).true_count) if any(flags) else 0


def _extents_of(runs: list[Run]) -> dict[str, Extent]:
    found: dict[str, tuple[int, int, int, int]] = {}
    for run in runs:
        count, lowest, qos = run.count, run.sequence, run.shape.qos
        highest = lowest + count - 1
        known = found.get(run.topic)
        if known is not None:
            lowest, highest = min(known[0], lowest), max(known[1], highest)
            count, qos = known[2] + count, max(known[3], qos)
        found[run.topic] = (lowest, highest, count, qos)
    return {topic: Extent(*extent) for topic, extent in found.items()}
