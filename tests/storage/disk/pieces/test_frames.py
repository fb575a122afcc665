"""Frames: encoded and decoded without loss; times are valid in another process."""

import json
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from msgspec import MsgspecError, msgpack

from penstock.common.stored_runs import expiry_of
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, Shape, bare_shape
from penstock.storage.disk.pieces.frames import (
    Extent,
    Frame,
    Range,
    Summary,
    decode_extents,
    decode_frame,
    decode_summary,
    encode_extents,
    encode_frame,
    encode_summary,
    join_ranges,
)
from tests.support.samples import fields_of, make_run, payloads_of

NOON = 1_700_000_000_000_000
PROPERTIES = Properties("text/plain", b"\0\1", "r/t", 1, "m", (("k", "1"), ("k", "2")))


def run_of(*payloads: bytes, ttl: float = NEVER) -> Run:
    """A run with every stamp there is."""
    run = make_run(
        "a/b", *payloads, qos=2, retain=True, sequence=5, offset=9, properties=PROPERTIES, client_id="c"
    )
    run.published_at, run.packet_id, run.ttl = NOON, 77, ttl
    return run


# Frames


def test_a_frame_comes_back_with_all_that_its_messages_carry() -> None:
    frame = Frame(3, 8, 12, NOON + 1, [run_of(b"one", b"two", ttl=4.5)], ((8, 8), (12, 12)))
    found = decode_frame(encode_frame(frame))
    assert (found.epoch, found.first, found.last, found.committed_at) == (3, 8, 12, NOON + 1)
    assert found.holes == ((8, 8), (12, 12))
    (run,) = found.runs
    assert (run.topic, payloads_of(run), run.client_id) == ("a/b", [b"one", b"two"], "c")
    assert (run.sequence, run.offset, run.published_at, run.ttl) == (5, 9, NOON, 4.5)
    assert run.properties == PROPERTIES


def stamped(run: Run, client_id: str, sequence: int, offset: int, published_at: int) -> Run:
    """A run with the stamps of core."""
    run.client_id, run.sequence, run.offset, run.published_at = client_id, sequence, offset, published_at
    return run


PLAIN_V3 = Shape("mqtt-3.1.1", Door.MQTT, 0, retain=False, is_plain=True)
PLAIN_V5 = Shape("mqtt-5", Door.MQTT, 1, retain=False, is_plain=False)
DRESSED = Run(
    "ü/☃",
    b"payload",
    0,
    7,
    1,
    PLAIN_V5,
    Properties("text/plain", b"\x00\xff", "reply/to", 1, "id-1", (("k", "v"), ("k", "ü"))),
    1.5,
    65_535,
    expires_at=12.25,
)
ANY_SHAPE = [bare_shape(door, qos, retain) for door in Door for qos in range(3) for retain in (False, True)]
FRAMES = {
    "one": Frame(
        1, 1, 1, NOON, [stamped(Run("a/b", b"0\x08\x00\x03a/bxyz", 7, 10, 1, PLAIN_V3), "c", 1, 1, NOON + 1)]
    ),
    "merged": Frame(
        3, 70_000, 70_002, 5, [stamped(Run("t", b"AxAyAz", 1, 2, 3, PLAIN_V3), "m", 2**40, 70_000, 7)]
    ),
    "dressed": Frame(2, 9, 9, 6, [stamped(DRESSED, "é", 300, 9, 8)]),
    "doors": Frame(
        2,
        10,
        39,
        6,
        [
            stamped(Run(f"d/{shape.door}", b"", 0, 0, 1, shape), "", 1, 10 + index, 9)
            for index, shape in enumerate(ANY_SHAPE)
        ],
    ),
    "holes": Frame(4, 1, 50, 0, [], ((1, 20), (22, 49))),
}
STORED: dict[str, str] = json.loads((Path(__file__).parent / "stored_frames.json").read_text())
"""Frames as servers stored them while runs were structs that msgpack encoded as they were."""


@pytest.mark.parametrize("name", STORED)
def test_the_stored_format_is_that_of_earlier_servers_byte_for_byte(name: str) -> None:
    stored, frame = b64decode(STORED[name]), FRAMES[name]
    assert encode_frame(frame) == stored
    found = decode_frame(stored)
    assert (found.epoch, found.first, found.last, found.committed_at, found.holes) == (
        frame.epoch,
        frame.first,
        frame.last,
        frame.committed_at,
        frame.holes,
    )
    for given, run in zip(frame.runs, found.runs, strict=True):
        bare = bare_shape(given.shape.door, given.shape.qos, given.shape.retain)
        assert fields_of(run) == fields_of(given) | {"shape": bare}


def test_a_frame_needs_no_messages() -> None:
    assert decode_frame(encode_frame(Frame(1, 5, 9, NOON, []))) == Frame(1, 5, 9, NOON, [])


def test_payloads_lose_the_wire_they_came_from() -> None:
    shape = Shape("mqtt-5", Door.MQTT, 1, retain=False, is_plain=True)
    run = Run("a", b"..one..two", 2, 5, 2, shape)
    (found,) = decode_frame(encode_frame(Frame(1, 1, 2, NOON, [run]))).runs
    assert payloads_of(found) == [b"one", b"two"]
    assert found.shape is bare_shape(Door.MQTT, 1, retain=False)  # shapes are compared by identity


@pytest.mark.parametrize("door", Door)
@pytest.mark.parametrize("qos", range(3))
def test_how_a_message_was_sent_is_kept(door: Door, qos: int) -> None:
    runs = [make_run("a", b"x", qos=qos, retain=retain, door=door) for retain in (False, True)]
    found = decode_frame(encode_frame(Frame(1, 1, 2, NOON, runs))).runs
    assert [run.shape for run in found] == [bare_shape(door, qos, retain) for retain in (False, True)]


def test_what_is_no_frame_is_refused() -> None:
    data = encode_frame(Frame(1, 1, 2, NOON, [run_of(b"one", b"two")]))
    chance = Random(1)
    for length in range(len(data)):
        with pytest.raises(MsgspecError):
            decode_frame(data[:length])
    for noise in (b"", b"\xc1", b"\0", chance.randbytes(100), b"\x95" + data[1:]):
        with pytest.raises(MsgspecError):
            decode_frame(noise)


# What the index says


def test_summaries_come_back_as_they_were() -> None:
    summary = Summary(1, 9, 5, 1_000, NOON, NOON + 1, 2, 3, ((4, 5),), 2)
    assert decode_summary(encode_summary(summary)) == summary


def test_summaries_of_older_and_of_newer_versions_are_understood() -> None:
    fields = [1, 9, 5, 1_000, NOON, NOON + 1, 2, 3, ((4, 5),)]
    older = decode_summary(msgpack.encode(fields))
    assert (older.holes, older.reserved) == (((4, 5),), None)
    newer = decode_summary(msgpack.encode([*fields, 2, "what comes next"]))
    assert (newer.holes, newer.reserved) == (((4, 5),), 2)


def test_extents_come_back_as_they_were() -> None:
    extents = {"a": Extent(1, 9, 9, 2), "ä/ö": Extent(3, 3, 1, 0)}
    assert decode_extents(encode_extents(extents)) == extents


def ranges_of(offsets: set[int]) -> list[Range]:
    return [(offset, offset) for offset in sorted(offsets)]


@pytest.mark.parametrize("seed", range(5))
def test_ranges_are_joined_where_they_touch_and_cover_the_same_offsets(seed: int) -> None:
    chance = Random(seed)
    offsets = {chance.randrange(60) for _ in range(chance.randrange(40))}
    joined = join_ranges(ranges_of(offsets))
    assert {offset for first, last in joined for offset in range(first, last + 1)} == offsets
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(joined))


# Expiry


def test_what_has_no_lifetime_does_not_expire() -> None:
    run = run_of(b"x")
    run.expires_at = 123.0  # of another process, and it means nothing here
    assert expiry_of(run) is None


def test_a_lifetime_is_not_cut_to_whole_microseconds_below_it() -> None:
    assert expiry_of(run_of(b"x", ttl=2.01)) == NOON + 2_010_000
