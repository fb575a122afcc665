"""Rows of Arrow streams, written by pyarrow and by polars, good ones and others."""

import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from penstock.errors import InvalidRequest, TooLarge, UnsupportedMedia
from penstock.model import NEVER, Door, Properties, Run
from penstock.storage import staged
from penstock.storage.staged import read_rows

ROOM = 1_000_000


def stream_of(columns: Mapping[str, Any], *, compression: str | None = None, batches: int = 1) -> bytes:
    batch = pa.record_batch(dict(columns))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def rows(columns: Mapping[str, Any], **options: Any) -> list[Run]:
    return list(read_rows(stream_of(columns, **options), ROOM))


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
    (first, second) = read_rows(file.getvalue(), ROOM)
    assert brief([first, second]) == [("a", b"short"), ("b", b"something longer than a view holds")]
    assert first.shape.qos == 0
    assert first.properties == Properties(user=(("k", "v"),))
    assert second.properties is None


def test_all_rows_of_all_batches_come_in_order() -> None:
    count = 2 * staged.SLICE_ROWS + 10
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
    assert brief(list(read_rows(sink.getvalue().to_pybytes(), ROOM))) == [("a", b"x"), ("b", b"x")]


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
        list(read_rows(sink.getvalue().to_pybytes(), ROOM))


def test_columns_of_nothing_but_nulls_are_as_good_as_none() -> None:
    (run,) = rows({"topic": ["a"], "payload": [b"x"], "qos": pa.nulls(1), "content_type": pa.nulls(1)})
    assert (run.shape.qos, run.properties) == (1, None)


@pytest.mark.parametrize("body", [b"", b"{}", b"ARROW1\0\0", bytes(1000), b"\xff" * 100])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        list(read_rows(body, ROOM))


def test_a_stream_that_is_cut_off_is_refused_before_its_first_row() -> None:
    stream = stream_of({"topic": ["a"], "payload": [b"x"]}, batches=2)
    for length in range(0, len(stream), 5):
        with pytest.raises(InvalidRequest):
            next(read_rows(stream[:length], ROOM))


def test_text_that_is_not_utf8_is_refused() -> None:
    broken = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidRequest):
        rows({"topic": broken, "payload": [b"x"]})


def test_a_stream_that_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    stream = stream_of({"topic": ["a"] * 2000, "payload": [bytes(1000)] * 2000}, compression="zstd")
    assert len(stream) < 20_000
    with pytest.raises(TooLarge, match="unpacks to"):
        next(read_rows(stream, ROOM))


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
        list(read_rows(stream, ROOM))


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of({"topic": ["a"], "payload": [b"x"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedMedia, match=r"penstock\[log\]"):
        list(read_rows(stream, ROOM))
