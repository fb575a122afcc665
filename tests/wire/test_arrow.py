"""Arrow streams cut by their framing, held against what Arrow itself says of them.

Fields of FlatBuffers tables, found or refused.

How large an Arrow stream is when it is unpacked; damaged ones are refused.
"""

import random
import struct
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.errors import WireError
from penstock.wire.arrow import END, Kind, cut, find_field, follow, layout_error, messages, unpacked_bytes

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = pytest.importorskip("pyarrow", reason="needs the extra `log`")

NAMES = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema({"topic": NAMES, "number": pa.int64(), "payload": pa.binary(), "door": NAMES})
KINDS = {"schema": Kind.SCHEMA, "dictionary": Kind.DICTIONARY, "record batch": Kind.BATCH}


def batch(*topics: str) -> "pa.RecordBatch":
    columns = [
        pa.array(topics, pa.string()).dictionary_encode(),
        pa.array(range(len(topics)), pa.int64()),
        pa.array([topic.encode() * 50 for topic in topics], pa.binary()),
        pa.array(["mqtt"] * len(topics), pa.string()).dictionary_encode(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def stream(*batches: "pa.RecordBatch", compression: str | None = "zstd") -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        for each in batches:
            writer.write_batch(each)
    return bytes(sink.getvalue().to_pybytes())


ONE, TWO = batch("a", "b", "a"), batch("c/d", "e", "e", "b")


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("batches", [(), (ONE,), (ONE, TWO), (batch(),)], ids=["no", "one", "two", "empty"])
def test_messages_are_found_where_arrow_finds_them(
    batches: "tuple[pa.RecordBatch, ...]", compression: str | None
) -> None:
    data = stream(*batches, compression=compression)
    reader = pa.ipc.MessageReader.open_stream(data)
    found = list(messages(data))
    for each in found:
        expected = reader.read_next_message()
        assert each.kind is KINDS[expected.type]
        assert pa.ipc.read_message(data[each.start : each.stop]).equals(expected)
    with pytest.raises(StopIteration):
        reader.read_next_message()
    assert [each.start for each in found[1:]] == [each.stop for each in found[:-1]], (
        "nothing lies between them"
    )


def test_streams_of_one_schema_make_one_stream_without_a_change() -> None:
    parts = [cut(stream(one)) for one in (ONE, TWO, batch(), ONE)]
    joined = b"".join((parts[0].schema, *(part.body for part in parts), END))
    with pa.ipc.open_stream(joined) as reader:
        assert [each.to_pylist() for each in reader] == [
            each.to_pylist() for each in (ONE, TWO, batch(), ONE)
        ]


def test_nothing_is_copied() -> None:
    data = stream(ONE)
    parts = cut(data)
    assert parts.schema.obj is data
    assert parts.body.obj is data
    assert bytes(parts.schema) + bytes(parts.body) + END == data


def test_a_stream_without_batches_has_nothing_behind_its_schema() -> None:
    assert not cut(stream()).body


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_stream_that_is_cut_off_anywhere_is_refused(compression: str | None) -> None:
    data = stream(ONE, compression=compression)
    for size in range(len(data)):
        with pytest.raises(WireError):
            cut(data[:size])


def test_what_follows_the_end_is_refused() -> None:
    with pytest.raises(WireError, match="behind the end"):
        cut(stream(ONE) + b"\0")


def test_an_end_alone_is_refused() -> None:
    with pytest.raises(WireError, match="one schema"):
        cut(END)


def test_a_stream_that_does_not_begin_with_its_schema_is_refused() -> None:
    parts = cut(stream(ONE))
    with pytest.raises(WireError, match="one schema"):
        cut(bytes(parts.body) + END)
    with pytest.raises(WireError, match="begins with"):
        cut(bytes(parts.body) + bytes(parts.schema) + END)


def test_two_schemas_are_refused() -> None:
    parts = cut(stream(ONE))
    with pytest.raises(WireError, match="one schema"):
        cut(bytes(parts.schema) * 2 + END)


def test_streams_of_long_ago_are_refused() -> None:
    data = stream(ONE)
    with pytest.raises(WireError, match="not a message"):
        cut(data[4:])  # they had no mark before the length of a message


def test_a_body_that_is_said_to_be_negative_is_refused() -> None:
    data = bytearray(stream(ONE))
    batches = [each for each in messages(bytes(data)) if each.kind is Kind.BATCH]
    head = batches[0].start + 8
    table = head + struct.unpack_from("<I", data, head)[0]
    slots = table - struct.unpack_from("<i", data, table)[0]
    struct.pack_into("<q", data, table + struct.unpack_from("<H", data, slots + 10)[0], -8)
    with pytest.raises(WireError, match="cut off"):
        cut(bytes(data))


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_are_cut_or_refused_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    whole = stream(ONE, TWO)
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 8))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            parts = cut(bytes(data))
        except WireError:
            continue
        assert len(parts.schema) + len(parts.body) + len(END) == len(whole)


SLOTS = struct.pack("<4H", 8, 12, 4, 0)  # of a table with two fields, the second of which it lacks
TABLE = len(SLOTS)
DATA = SLOTS + struct.pack("<iI", TABLE, 77)


def test_a_field_is_where_its_slot_says() -> None:
    place = find_field(DATA, TABLE, 4)
    assert struct.unpack_from("<I", DATA, place) == (77,)


@pytest.mark.parametrize("slot", [6, 8, 100])
def test_a_field_that_a_table_lacks_is_nowhere(slot: int) -> None:
    assert find_field(DATA, TABLE, slot) == 0


def test_slots_before_the_first_byte_are_refused() -> None:
    with pytest.raises(WireError):
        find_field(struct.pack("<iI", 4, 0), 0, 4)


@pytest.mark.parametrize("distance", [-1000, -(2**31)])
def test_slots_behind_the_last_byte_are_an_error_of_the_layout(distance: int) -> None:
    with pytest.raises(layout_error):
        find_field(struct.pack("<iI", distance, 0), 0, 4)


def test_a_reference_counts_from_where_it_stands() -> None:
    assert follow(bytes(4) + struct.pack("<I", 6), 4) == 10


def test_nothing_refers_to_nothing() -> None:
    with pytest.raises(WireError):
        follow(DATA, 0)


NAME_COLUMN = pa.array(["one", "two"] * 500).dictionary_encode()
BATCH = pa.record_batch({"payload": pa.array([bytes(1000)] * 1000), "name": NAME_COLUMN})


def stream_of(compression: str | None, batches: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, BATCH.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(BATCH)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_the_real_length_of_what_is_compressed_is_found(compression: str) -> None:
    stream = stream_of(compression, batches=3)
    assert len(stream) < 100_000
    assert 3_000_000 < unpacked_bytes(stream) < 3_050_000


def test_what_is_not_compressed_counts_as_it_is() -> None:
    stream = stream_of(None)
    assert len(stream) - 2_000 < unpacked_bytes(stream) < len(stream)


def test_a_stream_without_batches_has_nothing_to_unpack() -> None:
    assert unpacked_bytes(stream_of(None, batches=0)) == 0


@pytest.mark.parametrize("compression", ["zstd", None])
def test_a_stream_that_is_cut_off_is_refused(compression: str | None) -> None:
    stream = stream_of(compression)
    for length in (*range(0, 900), *range(900, len(stream), 1 + len(stream) // 200)):
        with pytest.raises(WireError):
            unpacked_bytes(stream[:length])


def test_damage_is_refused_or_does_no_harm(scale: int) -> None:
    dice, stream = Random(1), stream_of("zstd")
    for _ in range(1_000 * scale):
        damaged = bytearray(stream)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        with suppress(WireError):
            assert unpacked_bytes(bytes(damaged)) >= 0
