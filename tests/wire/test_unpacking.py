"""How large an Arrow stream is when it is unpacked; damaged ones are refused."""

from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

from penstock.errors import WireError
from penstock.wire.unpacking import unpacked_bytes

NAMES = pa.array(["one", "two"] * 500).dictionary_encode()
BATCH = pa.record_batch({"payload": pa.array([bytes(1000)] * 1000), "name": NAMES})


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
