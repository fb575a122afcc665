"""Arrow uploads: rows of an Arrow stream from a client, each a message to publish.

The stream is untrusted: it must be complete, its uncompressed size is computed before it is decompressed, and
its batches are validated before they are read. pyarrow is imported with the first stream; without it a server
accepts rows as JSON lines only.
"""

from collections.abc import Iterator
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any

from penstock.core.publishing.properties import MAX_TTL_MS
from penstock.errors import InvalidRequest, TooLarge, UnsupportedMedia, WireError
from penstock.model import Door, Properties
from penstock.runs import Run, bare_shape
from penstock.wire.arrow import unpacked_bytes

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_ROWS, SLICE_BYTES = 1_000, 1024 * 1024
"""Rows that are Python objects at the same time; a single row may have more bytes."""
SLICE_PROPERTIES = 100_000
"""Most properties of these rows together."""
NAMES = (
    "topic",
    "payload",
    "qos",
    "retain",
    "ttl_ms",
    "properties",
    "content_type",
    "correlation_id",
    "message_id",
    "response_topic",
)
"""Names of the columns."""
BYTES = frozenset({"payload", "correlation_id"})
"""Binary columns; text in them is encoded as UTF-8."""
_SHAPES = {(qos, retain): bare_shape(Door.WEB, qos, retain) for qos in range(3) for retain in (False, True)}
_VIEW_BYTES = 16
_HINT = "the server lacks the extra `log`, which Arrow streams need; JSON lines (application/x-ndjson) do not"


def read_rows(stream: bytes, limit_bytes: int, limit_rows: int) -> Iterator[Run]:
    """Rows of a stream, each a run with one bare payload; topics and sizes are not checked.

    Args:
        limit_bytes: largest uncompressed size of the stream.
        limit_rows: most rows of all batches.

    Raises:
        UnsupportedMedia: pyarrow is not installed.
        InvalidRequest: not a valid stream of rows; the text has the reason.
        TooLarge: the stream exceeds a limit.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - heavy, and not needed before the first stream
    except ImportError:
        raise UnsupportedMedia(_HINT) from None
    try:
        size = unpacked_bytes(stream)
    except WireError as error:
        raise InvalidRequest(str(error)) from None
    if size > limit_bytes:
        raise TooLarge(f"this stream unpacks to {size} bytes and {limit_bytes} are allowed")
    try:
        yield from _read(pa, stream, limit_bytes, limit_rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last from a name in the schema
        raise InvalidRequest(f"not an Arrow stream: {error}") from None


def _read(pa: Any, stream: bytes, limit_bytes: int, limit_rows: int) -> Iterator[Run]:
    first = 0
    with pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
        columns = Columns(pa, reader.schema, limit_bytes)
        for batch in reader:
            if (
                first + batch.num_rows > limit_rows
            ):  # a dictionary column makes a million rows from a few bytes
                raise TooLarge(f"stage.max_part_rows: a part may have {limit_rows} rows")
            batch.validate(full=True)  # offsets, and UTF-8 of text
            columns.begin()
            for part in columns.slices(batch):
                yield from columns.rows(part, first)
                first += part.num_rows


class Columns:
    """Columns of a stream: validation, and conversion to runs."""

    def __init__(self, pa: Any, schema: "pa.Schema", limit_bytes: int) -> None:
        self._pa = pa
        self._limit_bytes = limit_bytes
        self._names: list[str] = schema.names
        self._words: dict[str, list[Any]] = {}  # values of dictionary columns
        unknown = [name for name in self._names if name not in NAMES]
        missing = [name for name in ("topic", "payload") if name not in self._names]
        if unknown or missing or len(set(self._names)) < len(self._names):
            raise InvalidRequest(
                f"columns are topic, payload and, if wanted, {', '.join(NAMES[2:])}; each once"
            )
        for field in schema:
            if not _is_fitting(pa, field.name, field.type):
                raise InvalidRequest(f"the column {field.name} cannot be {field.type}")

    def begin(self) -> None:
        """Start a batch, which may have other dictionaries."""
        self._words.clear()

    def slices(self, batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
        """Split a batch into small slices, at least one row each.

        Raises:
            TooLarge: rows share bytes, and would have too many without sharing.
        """
        for start in range(0, batch.num_rows, SLICE_ROWS):
            part = batch.slice(start, SLICE_ROWS)
            size = self._bytes_of(part)
            if size > self._limit_bytes:
                raise TooLarge(f"a thousand rows of this stream have more than {self._limit_bytes} bytes")
            yield from self._halves(part, size)

    def _halves(self, part: "pa.RecordBatch", size: int) -> Iterator["pa.RecordBatch"]:
        if part.num_rows == 1 or size <= SLICE_BYTES:
            yield part
            return
        for half in (part.slice(0, part.num_rows // 2), part.slice(part.num_rows // 2)):
            yield from self._halves(half, self._bytes_of(half))

    def _bytes_of(self, batch: "pa.RecordBatch") -> int:
        """Size of all rows without sharing, except for dictionaries."""
        return sum(self._column_bytes(column) for column in batch.columns)

    def _column_bytes(self, column: "pa.Array") -> int:
        pa, kind = self._pa, column.type
        if pa.types.is_dictionary(kind):
            return int(column.indices.nbytes)
        if kind in (pa.binary_view(), pa.string_view()):
            return _view_bytes(column)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return sum(map(self._column_bytes, _texts_of(column)))
        return int(column.nbytes)

    def rows(self, batch: "pa.RecordBatch", first: int) -> Iterator[Run]:
        """Rows of a slice as runs; `first` is the number of its first row."""
        columns = [self._values(batch, name) for name in NAMES]
        for number, (topic, payload, qos, retain, ttl_ms, properties, *known) in enumerate(
            zip(*columns, strict=False), first
        ):
            if topic is None or payload is None:
                raise InvalidRequest(f"row {number}: every row has a topic and a payload")
            shape = _SHAPES.get((1 if qos is None else qos, bool(retain)))
            if shape is None:
                raise InvalidRequest(f"row {number}: qos is 0, 1 or 2")
            if ttl_ms is not None and not 1 <= ttl_ms <= MAX_TTL_MS:
                raise InvalidRequest(f"row {number}: ttl_ms is a number from 1 to {MAX_TTL_MS}")
            run = Run(topic, payload, 0, len(payload), 1, shape)
            if ttl_ms is not None:
                run.ttl = ttl_ms / 1000
            if properties or any(each is not None for each in known):
                run.properties = _properties_of(number, properties or (), *known)
            yield run

    def _values(self, batch: "pa.RecordBatch", name: str) -> Any:
        """Values of a column, None for nulls and for a missing column."""
        if name not in self._names:
            return repeat(None)
        column = batch.column(name)
        if self._pa.types.is_dictionary(column.type):  # one object per distinct value
            if name not in self._words:
                self._words[name] = self._all(column.dictionary, name)
            words = self._words[name]
            return [None if place is None else words[place] for place in column.indices.to_pylist()]
        return self._list(column, name)

    def _all(self, words: "pa.Array", name: str) -> list[Any]:
        """All values of a dictionary, in steps so that other threads can run."""
        steps = range(0, len(words), SLICE_ROWS)
        return [word for start in steps for word in self._list(words.slice(start, SLICE_ROWS), name)]

    def _list(self, column: "pa.Array", name: str) -> list[Any]:
        pa = self._pa
        if name == "properties" and not pa.types.is_null(column.type):
            self._check_pairs(column)
        elif column.type in (pa.binary_view(), pa.string_view()):
            self._check_views(column)
        if name in BYTES and column.type == pa.string_view():
            column = column.view(pa.binary_view())
        elif name in BYTES and column.type in (pa.string(), pa.large_string()):
            column = column.view(pa.binary() if column.type == pa.string() else pa.large_binary())
        values: list[Any] = column.to_pylist()
        return values

    def _check_pairs(self, column: "pa.Array") -> None:
        """Refuse too many or too long properties in one slice."""
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        if last - first > SLICE_PROPERTIES:
            raise TooLarge(f"a thousand rows of this stream have more than {SLICE_PROPERTIES} properties")
        for texts in _texts_of(column):
            if texts.type == self._pa.string_view():
                self._check_views(texts)

    def _check_views(self, column: "pa.Array") -> None:
        """Refuse views that would be too large without sharing."""
        if _view_bytes(column) > self._limit_bytes:
            raise TooLarge(f"a thousand rows of this stream have more than {self._limit_bytes} bytes")


def _texts_of(column: "pa.Array") -> list["pa.Array"]:
    """Names and values of a properties column."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    pairs = column.values.slice(first, last - first)
    return [pairs.field(place) for place in range(pairs.type.num_fields)]


def _view_bytes(column: "pa.Array") -> int:
    """Total length of all views.

    The view of a null is arbitrary and not validated, and Arrow crashes the process on a negative length.
    """
    if not len(column):
        return 0
    first, last = column.offset * _VIEW_BYTES, (column.offset + len(column)) * _VIEW_BYTES
    lengths = memoryview(column.buffers()[1])[first:last].cast("i")[:: _VIEW_BYTES // 4]
    if min(lengths) < 0:
        raise InvalidRequest("a view in this stream has a negative length")
    return sum(compress(lengths, column.is_valid().to_pylist()))


def _is_fitting(pa: Any, name: str, kind: Any) -> bool:
    """The type is allowed for this column."""
    types = pa.types
    if types.is_null(kind):
        return name not in ("topic", "payload")
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_text = kind in (pa.string(), pa.large_string(), pa.string_view())
    if name in ("qos", "ttl_ms"):
        return bool(types.is_integer(kind))
    if name == "retain":
        return bool(types.is_boolean(kind))
    if name == "properties":
        return _are_pairs(pa, kind)
    return is_text or (name in BYTES and kind in (pa.binary(), pa.large_binary(), pa.binary_view()))


def _are_pairs(pa: Any, kind: Any) -> bool:
    """The type is a map of texts, or a list of structs with `key` and `value`."""
    types = pa.types
    if types.is_map(kind):
        return all(part in (pa.string(), pa.large_string()) for part in (kind.key_type, kind.item_type))
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        fields = list(kind.value_type)
        texts = (pa.string(), pa.large_string(), pa.string_view())
        is_pair = [field.name for field in fields] == ["key", "value"]
        return is_pair and all(field.type in texts for field in fields)
    return False


def _properties_of(
    number: int,
    pairs: Any,
    content_type: str | None,
    correlation_id: bytes | None,
    message_id: str | None,
    response_topic: str | None,
) -> Properties:
    user = tuple((pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in pairs)
    if any(pair is None or None in pair for pair in user):
        raise InvalidRequest(f"row {number}: a property has a name and a value")
    return Properties(content_type, correlation_id, response_topic, None, message_id, user)
