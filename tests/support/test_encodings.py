"""Frames that can be read back."""

import pytest

from penstock.core.ports.connection import Frame
from tests.support.connection import MemoryConnection
from tests.support.encodings import Delivered, PlainEncoding, read_frames
from tests.support.samples import make_run


def number(frames: list[Frame], first: int) -> bytes:
    """What delivery does: put a number into each frame."""
    return b"".join(
        before + (first + index).to_bytes(2, "big") + after for index, (before, after, _) in enumerate(frames)
    )


def test_a_frame_reads_back_with_everything_that_is_in_it() -> None:
    form = PlainEncoding(qos=2, identifiers=(3, 5)).as_retained()
    run = make_run("a/b", b"x: y", b"1234", qos=1, sequence=7, expires_at=12.5)
    data = number(form.frames([run], 10.0, again=True), 10)  # 10 is also a line end
    assert read_frames(data) == [
        Delivered("a/b", 7, b"x: y", 1, 10, True, True, (3, 5), 3),
        Delivered("a/b", 8, b"1234", 1, 11, True, True, (3, 5), 3),
    ]
    assert read_frames(form.encode([run], 10.0))[0] == Delivered(
        "a/b", 7, b"x: y", 0, 0, True, False, (3, 5), 3
    )


def test_bytes_that_are_no_frame_are_noticed() -> None:
    with pytest.raises(ValueError, match="no frame"):
        read_frames(PlainEncoding().encode([make_run("a", b"x")], 0.0) + b"rubbish")


def test_what_exceeds_the_limit_is_left_out_and_told_of() -> None:
    form = PlainEncoding(qos=1, limit_bytes=len(b"a 1: small\n"))
    small, large = make_run("a", b"small", sequence=1), make_run("a", b"larger", sequence=2)
    assert form.encode([small, large], 0.0) == b"a 1: small\n"
    assert form.oversize([small, large], 0.0) == [large]
    numbered = make_run("a", b"small", qos=1, sequence=1)
    assert form.frames([numbered], 0.0) == []
    assert form.oversize([numbered], 0.0) == [numbered]


def test_a_sink_tells_what_was_written_since_it_was_last_asked() -> None:
    sink = MemoryConnection()
    for sequence in (1, 2):
        sink.write(PlainEncoding().encode([make_run("a", b"x", sequence=sequence)], 0.0))
        assert [delivered.sequence for delivered in sink.take()] == [sequence]
    assert sink.take_payloads() == []
    assert len(sink.deliveries) == 2
    sink.close("slow")
    sink.write(b"too late")
    assert sink.data == b"a 1: x\na 2: x\n"
