"""Arrow uploads, written by pyarrow and by polars, valid and invalid."""

import struct
import sys
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from penstock.errors import InvalidRequest, TooLarge, UnsupportedMedia
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run
from penstock.storage import arrow_uploads
from penstock.storage.arrow_uploads import read_rows
from penstock.wire.arrow import END, cut

ROOM, ROWS = 1_000_000, 100_000


def stream_of(columns: Mapping[str, Any], *, compression: str | None = None, batches: int = 1) -> bytes:
    batch = pa.record_batch(dict(columns))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def rows(columns: Mapping[str, Any], **options: Any) -> list[Run]:
    return list(read_rows(stream_of(columns, **options), ROOM, ROWS))


def brief(runs: list[Run]) -> list[tuple[str, bytes]]:
    return [(run.topic, run.payload()) for run in runs]


def test_a_topic_and_a_payload_are_enough() -> None:
    (first, second) = rows({"payload": [b"x", b""], "topic": ["a", "b"]})
    assert brief([first, second]) == [("a", b"x"), ("b", b"")]
    assert (first.shape.qos, first.shape.retain, first.shape.door) == (1, False, Door.WEB)
    assert (first.properties, first.ttl, first.count, first.head) == (None, NEVER, 1, 0)


def test_every_column_is_read() -> None:
    (first, second) = rows(
        {
            "topic": ["a", "a"],
            "payload": [b"x", b"y"],
            "qos": pa.array([2, None], pa.int8()),
            "retain": [True, None],
            "ttl_ms": [1_500, None],
            "content_type": ["text/plain", None],
            "correlation_id": [b"\xff", None],
            "message_id": ["id", None],
            "response_topic": ["r", None],
            "properties": pa.array([[("k", "v"), ("k", "w")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    assert (first.shape.qos, first.shape.retain, first.ttl) == (2, True, 1.5)
    assert first.properties == Properties("text/plain", b"\xff", "r", None, "id", (("k", "v"), ("k", "w")))
    assert (second.shape.qos, second.shape.retain, second.ttl, second.properties) == (1, False, NEVER, None)


@pytest.mark.parametrize(
    "payload",
    [
        pa.array(["ä", "y"]),
        pa.array(["ä", "y"], pa.large_string()),
        pa.array(["ä", "y"], pa.string_view()),
        pa.array(["ä", "y"]).dictionary_encode(),
        pa.array(["ä".encode(), b"y"]),
        pa.array(["ä".encode(), b"y"], pa.large_binary()),
        pa.array(["ä".encode(), b"y"], pa.binary_view()),
        pa.array(["ä".encode(), b"y"]).dictionary_encode(),
    ],
    ids=lambda payload: str(payload.type),
)
def test_a_payload_may_be_of_any_type_of_text_or_bytes(payload: pa.Array) -> None:
    topics = pa.array(["a", "b"], payload.type if payload.type == pa.string_view() else pa.string())
    assert brief(rows({"topic": topics, "payload": payload})) == [("a", "ä".encode()), ("b", b"y")]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_polars_writes_is_read(compression: Any) -> None:
    frame = pl.DataFrame(
        {
            "topic": ["a", "b"],
            "payload": ["short", "something longer than a view holds"],
            "qos": [0, 1],
            "properties": [[{"key": "k", "value": "v"}], []],
        }
    )
    file = BytesIO()
    frame.write_ipc_stream(file, compression=compression or "uncompressed")
    (first, second) = read_rows(file.getvalue(), ROOM, ROWS)
    assert brief([first, second]) == [("a", b"short"), ("b", b"something longer than a view holds")]
    assert first.shape.qos == 0
    assert first.properties == Properties(user=(("k", "v"),))
    assert second.properties is None


def test_all_rows_of_all_batches_come_in_order() -> None:
    count = 2 * arrow_uploads.SLICE_ROWS + 10
    columns = {
        "topic": pa.array([f"t/{number % 7}" for number in range(count)]).dictionary_encode(),
        "payload": pa.array([str(number).encode() for number in range(count)]),
    }
    expected = [(f"t/{number % 7}", str(number).encode()) for number in range(count)]
    assert brief(rows(columns, batches=2)) == expected * 2


def test_dictionaries_that_are_replaced_between_batches_are_read_anew() -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema({"topic": pa.dictionary(pa.int32(), pa.string()), "payload": pa.binary()})
    with pa.ipc.new_stream(sink, schema) as writer:
        for topic in ("a", "b"):
            column = pa.array([topic]).dictionary_encode()
            writer.write_batch(pa.record_batch([column, pa.array([b"x"])], schema=schema))
    assert brief(list(read_rows(sink.getvalue().to_pybytes(), ROOM, ROWS))) == [("a", b"x"), ("b", b"x")]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"topic": ["a"]}, "columns are"),
        ({"payload": [b"x"]}, "columns are"),
        ({"topic": ["a"], "payload": [b"x"], "pay_load": [b"x"]}, "columns are"),
        ({"topic": [1], "payload": [b"x"]}, "the column topic cannot be int64"),
        ({"topic": [b"a"], "payload": [b"x"]}, "the column topic cannot be binary"),
        ({"topic": ["a"], "payload": [1.5]}, "the column payload cannot be double"),
        ({"topic": ["a"], "payload": pa.nulls(1)}, "the column payload cannot be null"),
        ({"topic": ["a"], "payload": [b"x"], "qos": ["1"]}, "the column qos cannot be string"),
        ({"topic": ["a"], "payload": [b"x"], "retain": [1]}, "the column retain cannot be int64"),
        ({"topic": ["a"], "payload": [b"x"], "properties": [{"k": "v"}]}, "the column properties cannot be"),
        ({"topic": ["a"], "payload": [b"x"], "properties": [["v"]]}, "the column properties cannot be"),
        ({"topic": ["a", None], "payload": [b"x", b"y"]}, "row 1: every row has a topic and a payload"),
        ({"topic": ["a", "a"], "payload": [b"x", None]}, "row 1: every row has a topic and a payload"),
        ({"topic": ["a"], "payload": [b"x"], "qos": [3]}, "row 0: qos is 0, 1 or 2"),
        ({"topic": ["a"], "payload": [b"x"], "ttl_ms": [0]}, "row 0: ttl_ms is a number from 1"),
        (
            {
                "topic": ["a"],
                "payload": [b"x"],
                "properties": pa.array([[("k", None)]], pa.map_(pa.string(), pa.string())),
            },
            "row 0: a property has a name and a value",
        ),
    ],
)
def test_rows_that_are_none_are_refused_with_the_reason(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rows(columns)
    assert words in str(refused.value)


def test_a_column_comes_once() -> None:
    schema = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("topic", pa.string())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    with pytest.raises(InvalidRequest, match="each once"):
        list(read_rows(sink.getvalue().to_pybytes(), ROOM, ROWS))


def test_columns_of_nothing_but_nulls_are_as_good_as_none() -> None:
    (run,) = rows({"topic": ["a"], "payload": [b"x"], "qos": pa.nulls(1), "content_type": pa.nulls(1)})
    assert (run.shape.qos, run.properties) == (1, None)


@pytest.mark.parametrize("body", [b"", b"{}", b"ARROW1\0\0", bytes(1000), b"\xff" * 100])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        list(read_rows(body, ROOM, ROWS))


def test_a_stream_that_is_cut_off_is_refused_before_its_first_row() -> None:
    stream = stream_of({"topic": ["a"], "payload": [b"x"]}, batches=2)
    for length in range(0, len(stream), 5):
        with pytest.raises(InvalidRequest):
            next(read_rows(stream[:length], ROOM, ROWS))


def test_text_that_is_not_utf8_is_refused() -> None:
    broken = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidRequest):
        rows({"topic": broken, "payload": [b"x"]})


def test_a_stream_that_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    stream = stream_of({"topic": ["a"] * 2000, "payload": [bytes(1000)] * 2000}, compression="zstd")
    assert len(stream) < 20_000
    with pytest.raises(TooLarge, match="unpacks to"):
        next(read_rows(stream, ROOM, ROWS))


def test_rows_that_cost_no_bytes_are_counted_before_they_are_made() -> None:
    word = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int8()), pa.array(["a"]))
    stream = stream_of({"topic": word, "payload": word}, compression="zstd", batches=2)
    assert len(stream) < 5_000
    assert len(list(read_rows(stream, ROOM, 40_000))) == 40_000
    found = read_rows(stream, ROOM, 39_999)
    with pytest.raises(TooLarge, match=r"stage\.max_part_rows"):
        for number, _ in enumerate(found):
            assert number < 20_000
    with pytest.raises(TooLarge, match=r"stage\.max_part_rows"):
        next(read_rows(stream, ROOM, 19_999))


@pytest.mark.parametrize("kind", ["map", "list", "views"])
def test_long_rows_are_not_all_in_memory_at_the_same_time(kind: str) -> None:
    text = pa.string_view() if kind == "views" else pa.string()
    pairs = pa.struct([("key", text), ("value", text)])
    values = [[("k", "v" * 60_000)]] * 300 + [[]] * 300
    properties = (
        pa.array(values, pa.map_(text, text))
        if kind == "map"
        else pa.array(
            [[{"key": key, "value": value} for key, value in row] for row in values], pa.list_(pairs)
        )
    )
    columns = {"topic": ["a"] * 600, "payload": [b"x"] * 600, "properties": properties}
    stream = stream_of(columns, compression="zstd")
    tracemalloc.start()
    try:
        found = sum(
            len(run.properties.user[0][1]) for run in read_rows(stream, 32 << 20, ROWS) if run.properties
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == 300 * 60_000
    assert peak < 4 * arrow_uploads.SLICE_BYTES


@pytest.mark.parametrize("column", ["payload", "properties"])
def test_views_that_show_the_same_bytes_again_and_again_count_each_time(column: str) -> None:
    _, view, data = pa.array(["x" * 100_000], pa.string_view()).buffers()
    views = pa.py_buffer(view.to_pybytes() * 20)
    text = pa.Array.from_buffers(pa.string_view(), 20, [None, views, data])
    topics = pa.array(["a"] * 20)
    if column == "payload":
        columns = {"topic": topics, "payload": text}
    else:
        pairs = pa.StructArray.from_arrays([text, text], ["key", "value"])
        lists = pa.ListArray.from_arrays(pa.array(range(21), pa.int32()), pairs)
        columns = {"topic": topics, "payload": topics, "properties": lists}
    stream = stream_of(columns)
    assert len(stream) < ROOM
    with pytest.raises(TooLarge):
        list(read_rows(stream, ROOM, ROWS))


def view_stream(null_length: int, *, where: str) -> bytes:
    """Two rows; the second has no value in a column of views, and its view says that it has a length."""
    mark = b"MARK"
    views = struct.pack("<i12si4sii", 5, b"hello", 0, mark, 0, 0)
    text = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(views)])
    places = pa.array([0, 0], pa.int8())
    columns: dict[str, Any] = {"topic": ["a", "b"], "payload": [b"x", b"y"]}
    if where == "properties":
        pairs = pa.StructArray.from_arrays([pa.array(["k", "l"]), text], ["key", "value"])
        columns[where] = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pairs)
    elif where == "dictionary":
        columns["content_type"] = pa.DictionaryArray.from_arrays(places, text)
    else:
        columns[where] = text if where != "correlation_id" else text.view(pa.binary_view())
    stream = stream_of(columns)
    assert mark in stream
    return stream.replace(bytes(4) + mark, struct.pack("<i", null_length) + mark)


PLACES_OF_VIEWS = ["content_type", "correlation_id", "dictionary", "properties"]


@pytest.mark.parametrize("where", PLACES_OF_VIEWS[:-1])  # a property that has no value is none
@pytest.mark.parametrize("null_length", [0, 5, ROOM * 2])
def test_a_view_that_stands_for_no_value_may_have_any_length(null_length: int, where: str) -> None:
    (first, second) = read_rows(view_stream(null_length, where=where), ROOM, ROWS)
    assert first.properties is not None
    assert brief([first, second]) == [("a", b"x"), ("b", b"y")]


@pytest.mark.parametrize("where", PLACES_OF_VIEWS)
@pytest.mark.parametrize("null_length", [-1, -900_000, -(2**31)])
def test_a_view_with_a_negative_length_is_refused_even_where_there_is_no_value(
    null_length: int, where: str
) -> None:
    with pytest.raises(InvalidRequest, match="negative length"):
        list(read_rows(view_stream(null_length, where=where), ROOM, ROWS))


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": ["a"], "payload": [b"x"], "content_type": ["WORD"]},
        {"topic": ["a"], "payload": [b"x"], "properties": [[{"WORD": "k", "value": "v"}]]},
        {"topic": ["a"], "payload": [b"x"], "WORD": [1]},
    ],
)
def test_names_and_texts_that_are_not_utf8_are_refused(columns: dict[str, Any]) -> None:
    stream = stream_of(columns)
    assert b"WORD" in stream
    with pytest.raises(InvalidRequest):
        list(read_rows(stream.replace(b"WORD", b"\xff\xfe\xff\xfe"), ROOM, ROWS))


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_a_property_that_is_null_is_refused(is_dictionary: bool) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    column = pa.array([[None]], kind)
    if is_dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), column)
    with pytest.raises(InvalidRequest, match="row 0: a property has a name and a value"):
        rows({"topic": ["a"], "payload": [b"x"], "properties": column})


@pytest.mark.parametrize("value", [[None], [{"key": None, "value": "v"}]])
def test_a_map_with_an_entry_that_no_map_may_have_is_refused(value: list[Any]) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    rest = {"topic": ["a"], "payload": [b"x"]}
    wrong = cut(stream_of({**rest, "properties": pa.array([value], kind)}))
    right = cut(stream_of({**rest, "properties": pa.array([[]], pa.map_(pa.string(), pa.string()))}))
    with pytest.raises(InvalidRequest, match="no nulls"):  # the same layout, but for what is allowed in it
        list(read_rows(b"".join((right.schema, wrong.body, END)), ROOM, ROWS))


def test_properties_that_weigh_nothing_are_counted() -> None:
    count = arrow_uploads.SLICE_PROPERTIES + 1
    empty = pa.array([""] * count)
    pairs = pa.StructArray.from_arrays([empty, empty], ["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pairs)
    with pytest.raises(TooLarge, match="properties"):
        rows({"topic": ["a"], "payload": [b"x"], "properties": lists}, compression="zstd")


def test_views_count_where_their_slice_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_uploads, "SLICE_ROWS", 2)
    _, view, data = pa.array([b"x" * 100_000], pa.binary_view()).buffers()
    short, long = struct.pack("<i12s", 1, b"y"), view.to_pybytes()
    views = pa.py_buffer(short + short + long + long)
    payload = pa.Array.from_buffers(pa.binary_view(), 4, [None, views, data])
    stream = stream_of({"topic": ["a"] * 4, "payload": payload})
    assert [len(run.payload()) for run in read_rows(stream, 250_000, ROWS)] == [1, 1, 100_000, 100_000]
    with pytest.raises(TooLarge):
        list(read_rows(stream, 150_000, ROWS))


def test_lists_of_no_views_say_nothing() -> None:
    kind = pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.string_view())]))
    runs = rows({"topic": ["a", "b"], "payload": ["x", "y"], "properties": pa.array([None, []], kind)})
    assert [run.properties for run in runs] == [None, None]


def test_all_words_of_a_large_dictionary_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_uploads, "SLICE_ROWS", 3)
    topics = [f"t/{number}" for number in range(10)]
    runs = rows({"topic": pa.array(topics).dictionary_encode(), "payload": topics})
    assert [run.topic for run in runs] == topics


def test_a_dictionary_of_no_words_says_nothing() -> None:
    nothing = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string_view()))
    (run,) = rows({"topic": ["a"], "payload": [b"x"], "content_type": nothing})
    assert run.properties is None


def test_damage_is_refused_or_does_no_harm(scale: int) -> None:
    dice = Random(1)
    texts = pa.array(["short", None, "something longer than a view holds"], pa.string_view())
    pairs = pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string()))
    columns = {"topic": ["a", "b", "c"], "payload": ["x", "y", "z"]}
    streams = [
        stream_of({**columns, "correlation_id": texts, "message_id": texts.cast(pa.string())}),
        stream_of({**columns, "properties": pairs}, compression="zstd"),
    ]
    for _ in range(1_000 * scale):
        damaged = bytearray(dice.choice(streams))
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        with suppress(InvalidRequest, TooLarge):
            list(read_rows(bytes(damaged), ROOM, ROWS))


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of({"topic": ["a"], "payload": [b"x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedMedia, match="lacks the extra `log`"):
        list(read_rows(stream, ROOM, ROWS))
