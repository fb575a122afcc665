"""Rows of an Arrow stream that somebody sends: each a message to publish.

The stream comes from outside, so nothing in it is believed: it has to be complete, what it would unpack to is
added up before it is unpacked, and its batches are checked before they are read. pyarrow is loaded with the
first of them; without it a server takes its rows as JSON lines.
"""

from collections.abc import Iterator
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any

from penstock.core.properties import MAX_TTL_MS
from penstock.errors import InvalidRequest, TooLarge, UnsupportedMedia, WireError
from penstock.model import Door, Properties, Run, bare_shape
from penstock.wire.unpacking import unpacked_bytes

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_ROWS, SLICE_BYTES = 1_000, 1024 * 1024
"""How many rows are Python objects at the same time; a single row may have more bytes."""
SLICE_PROPERTIES = 100_000
"""How many properties these rows may have together."""
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
"""What the columns are called."""
BYTES = frozenset({"payload", "correlation_id"})
"""Columns of bytes; text in them is taken as its UTF-8."""
_SHAPES = {(qos, retain): bare_shape(Door.WEB, qos, retain) for qos in range(3) for retain in (False, True)}
_VIEW_BYTES = 16
_HINT = "the server lacks the extra `log`, which Arrow streams need; JSON lines (application/x-ndjson) do not"


def read_rows(stream: bytes, limit_bytes: int, limit_rows: int) -> Iterator[Run]:
    """The rows of a stream, each a run of one bare payload; topics and sizes are not looked at.

    Args:
        limit_bytes: the most that the stream may have when it is unpacked.
        limit_rows: the most rows of all its batches.

    Raises:
        UnsupportedMedia: pyarrow is not installed.
        InvalidRequest: this is no stream of rows; the text says why.
        TooLarge: it unpacks to more than it may, or has more rows.
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
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last from a name in its schema
        raise InvalidRequest(f"not an Arrow stream: {error}") from None


def _read(pa: Any, stream: bytes, limit_bytes: int, limit_rows: int) -> Iterator[Run]:
    first = 0
    with pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
        columns = Columns(pa, reader.schema, limit_bytes)
        for batch in reader:
            if first + batch.num_rows > limit_rows:  # a dictionary makes a million of them from a few bytes
                raise TooLarge(f"stage.max_part_rows: a part may have {limit_rows} rows")
            batch.validate(full=True)  # its offsets, and whether text is UTF-8
            columns.begin()
            for part in columns.slices(batch):
                yield from columns.rows(part, first)
                first += part.num_rows


class Columns:
    """The columns of a stream, and how each is read."""

    def __init__(self, pa: Any, schema: "pa.Schema", limit_bytes: int) -> None:
        self._pa = pa
        self._limit_bytes = limit_bytes
        self._names: list[str] = schema.names
        self._words: dict[str, list[Any]] = {}  # of columns with a dictionary
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
        """Another batch comes, which may have other dictionaries."""
        self._words.clear()

    def slices(self, batch: "pa.RecordBatch") -> Iterator["pa.RecordBatch"]:
        """A batch in parts that are not large, unless a single row is.

        Raises:
            TooLarge: many rows show the same bytes, and have too many together.
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
        """What its rows have, each for itself; but what is in a dictionary they share."""
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
        """The rows of a batch that is not large, which are numbered from here on."""
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
        """The values of a column, None where there is none."""
        if name not in self._names:
            return repeat(None)
        column = batch.column(name)
        if self._pa.types.is_dictionary(column.type):  # each value becomes an object once
            if name not in self._words:
                self._words[name] = self._all(column.dictionary, name)
            words = self._words[name]
            return [None if place is None else words[place] for place in column.indices.to_pylist()]
        return self._list(column, name)

    def _all(self, words: "pa.Array", name: str) -> list[Any]:
        """All values of a dictionary, in steps between which other threads have their turn."""
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
        """Refuse more properties, or longer ones, than should be Python objects at the same time."""
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        if last - first > SLICE_PROPERTIES:
            raise TooLarge(f"a thousand rows of this stream have more than {SLICE_PROPERTIES} properties")
        for texts in _texts_of(column):
            if texts.type == self._pa.string_view():
                self._check_views(texts)

    def _check_views(self, column: "pa.Array") -> None:
        """Many views may show the same bytes: refuse what would be too much if each had its own."""
        if _view_bytes(column) > self._limit_bytes:
            raise TooLarge(f"a thousand rows of this stream have more than {self._limit_bytes} bytes")


def _texts_of(column: "pa.Array") -> list["pa.Array"]:
    """The names and the values of a column of properties."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    pairs = column.values.slice(first, last - first)
    return [pairs.field(place) for place in range(pairs.type.num_fields)]


def _view_bytes(column: "pa.Array") -> int:
    """What views show, added up.

    Where there is no value a view may be anything, and nobody has looked at it; what Arrow does with one
    whose length is negative is no error but the end of the process.
    """
    if not len(column):
        return 0
    first, last = column.offset * _VIEW_BYTES, (column.offset + len(column)) * _VIEW_BYTES
    lengths = memoryview(column.buffers()[1])[first:last].cast("i")[:: _VIEW_BYTES // 4]
    if min(lengths) < 0:
        raise InvalidRequest("a view in this stream has a length below zero")
    return sum(compress(lengths, column.is_valid().to_pylist()))


def _is_fitting(pa: Any, name: str, kind: Any) -> bool:
    """Whether a column may be of this type."""
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
    """A map of texts, or, where there are no maps, a list of structs with a key and a value."""
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
