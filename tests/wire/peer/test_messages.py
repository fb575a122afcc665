"""Messages between shards: they come back as they were, and whatever else arrives is malformed."""

import math
from itertools import product
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.common.stored_runs import fields_of, rows_of
from penstock.model import Door
from penstock.runs import NEVER, bare_shape
from penstock.wire.peer import (
    MAX_RUNS,
    Batch,
    Fetch,
    Heartbeat,
    MalformedMessage,
    Message,
    Settled,
    decode_message,
    encode_message,
)
from tests.support.samples import make_run, payloads_of
from tests.wire.peer.peer_messages import MESSAGES, sample_runs, values_of

BATCH = Batch(3, 15, 4_711, True, sample_runs())
SHAPES, (ROW,) = msgpack.decode(encode_message(Batch(0, 0, 1, False, [make_run("a/b", b"xy")])))[5:]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert values_of(decode_message(encode_message(message))) == values_of(message)


def test_every_kind_has_a_number_of_its_own() -> None:
    kinds = {type(message): msgpack.decode(encode_message(message))[0] for message in MESSAGES}
    assert sorted(kinds.values()) == list(range(1, 13))


def test_bytes_of_messages_never_change() -> None:
    assert encode_message(Heartbeat()).hex() == "9102"
    assert encode_message(Settled(3, 15, True, 1, 300, "x")).hex() == "9704030fc301cd012ca178"
    assert encode_message(Fetch(1, 2, ((3, 4),))).hex() == "940901029192" + "0304"
    batch = encode_message(Batch(1, 2, 3, False, [make_run("a", b"xy", client_id="c")]))
    assert (
        batch.hex()
        == "9703010203c29193a46d71747400c2919da161c402787900020100c0cb000000000000000000a163000000"
    )


def test_runs_have_the_fields_that_the_log_stores() -> None:
    runs = sample_runs()
    (shapes, rows), stored = rows_of(runs), [fields_of(run) for run in runs]
    for row, fields in zip(rows, stored, strict=True):
        _layout, door, qos, retain, _is_plain = cast("tuple[Any, ...]", fields[5])
        assert row[:5] == fields[:5] and row[6:] == fields[6:-1]
        assert shapes[row[5]] == (door, qos, retain)


def test_runs_of_one_shape_share_it() -> None:
    runs = [make_run("a", b"x", qos=number % 2) for number in range(10)]
    shapes, rows = rows_of(runs)
    assert shapes == [("mqtt", 0, False), ("mqtt", 1, False)]
    assert [row[5] for row in rows] == [0, 1] * 5


@pytest.mark.parametrize(("door", "qos", "retain"), list(product(Door, range(3), (False, True))))
def test_a_run_keeps_its_door_qos_and_retain_flag(door: Door, qos: int, retain: bool) -> None:
    run = make_run("a", b"x", b"y", door=door, qos=qos, retain=retain)
    found = decode_message(encode_message(Batch(0, 0, 1, False, [run])))
    assert isinstance(found, Batch)
    assert found.runs[0].shape is bare_shape(door, qos, retain)
    assert payloads_of(found.runs[0]) == [b"x", b"y"]


def test_an_expiry_of_another_process_is_not_kept() -> None:
    run = make_run("a", b"x", ttl=5.0, expires_at=99.0)
    found = decode_message(encode_message(Batch(0, 0, 1, False, [run])))
    assert isinstance(found, Batch)
    assert (found.runs[0].ttl, found.runs[0].expires_at) == (5.0, NEVER)


def test_fields_of_a_later_version_are_ignored() -> None:
    assert decode_message(msgpack.encode([2, "more", {"and": "more"}])) == Heartbeat()


def with_row(**changes: Any) -> bytes:
    """A batch with one run, some fields of which are others."""
    row = list(ROW)
    for name, value in changes.items():
        row[int(name[1:])] = value
    return msgpack.encode((3, 0, 0, 1, False, SHAPES, [row]))


def with_shape(*shape: Any) -> bytes:
    """A batch with one run of this shape."""
    return msgpack.encode((3, 0, 0, 1, False, [shape], [ROW]))


def test_the_row_that_is_damaged_below_is_sound() -> None:
    assert isinstance(decode_message(with_row()), Batch)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="a byte that msgpack does not use"),
        pytest.param(msgpack.encode([]), id="no kind"),
        pytest.param(msgpack.encode([0]), id="unknown kind"),
        pytest.param(msgpack.encode([13, 1]), id="kind of the future"),
        pytest.param(msgpack.encode({"a": 1}), id="not an array"),
        pytest.param(encode_message(BATCH)[:-1], id="cut short"),
        pytest.param(encode_message(BATCH) + b"\0", id="bytes behind it"),
        pytest.param(b"\x91" * 1_000_000, id="deep"),
        pytest.param(b"\x92\x02" + b"\x91" * 1_000_000, id="deep in a field that is ignored"),
        pytest.param(b"\xdd\xff\xff\xff\xff\x02", id="four billion fields"),
        pytest.param(b"\x97\x03\x00\x00\x01\xc2\x90\xdd\xff\xff\xff\xff", id="four billion runs"),
        pytest.param(msgpack.encode([4, 64, 0, True, 1, 1]), id="shard 64"),
        pytest.param(msgpack.encode([4, -1, 0, True, 1, 1]), id="shard -1"),
        pytest.param(msgpack.encode([4, 0, 0, True, 1, 2**63]), id="number of 64 bits"),
        pytest.param(msgpack.encode([4, 0, 0, 1, 1, 1]), id="number for a flag"),
        pytest.param(msgpack.encode([4, 0, 0, True, 1, 1, "x" * 65]), id="long code"),
        pytest.param(msgpack.encode([3, 0, 0, 1, False, SHAPES, [ROW] * (MAX_RUNS + 1)]), id="too many runs"),
        pytest.param(msgpack.encode([9, 0, 1, [[1, 1]] * 10_001]), id="too many ranges"),
        pytest.param(msgpack.encode([5, 0, 0, 1, 1, 1, [["a", True]] * 10_001]), id="too many filters"),
        pytest.param(msgpack.encode([5, 0, 0, 1, 1, 1, [["", True]]]), id="empty filter"),
        pytest.param(msgpack.encode([11, 0, 1, "q", b"", 3_600_001]), id="more than an hour to answer"),
        pytest.param(with_row(_0=""), id="empty topic"),
        pytest.param(with_row(_0="x" * 65_536), id="long topic"),
        pytest.param(
            msgpack.encode([3, 0, 0, 1, False, SHAPES, [ROW]]).replace(b"a/b", b"a\xff\xfe"), id="not UTF-8"
        ),
        pytest.param(with_row(_1="xy"), id="text for a slab"),
        pytest.param(with_row(_1=b"xyz"), id="slab longer than its messages"),
        pytest.param(with_row(_2=3), id="payload behind its frame"),
        pytest.param(with_row(_2=-1), id="payload before its frame"),
        pytest.param(with_row(_3=3), id="slab shorter than its messages"),
        pytest.param(with_row(_4=0), id="no message"),
        pytest.param(with_row(_1=b"", _3=0, _4=1_000_001), id="a million empty messages"),
        pytest.param(with_row(_5=1), id="shape behind the table"),
        pytest.param(with_row(_5=-1), id="shape before the table"),
        pytest.param(with_shape("window", 0, False), id="unknown door"),
        pytest.param(with_shape("mqtt", 3, False), id="QoS 3"),
        pytest.param(with_shape("mqtt", 1, 0), id="number for retain"),
        pytest.param(with_shape("mqtt"), id="half a shape"),
        pytest.param(msgpack.encode([3, 0, 0, 1, False, SHAPES * 65, [ROW]]), id="too many shapes"),
        pytest.param(with_row(_6={"user": "x"}), id="properties of another type"),
        pytest.param(with_row(_7=math.nan), id="ttl that is not a number"),
        pytest.param(with_row(_7=math.inf), id="endless ttl"),
        pytest.param(with_row(_7=-1.0), id="negative ttl"),
        pytest.param(with_row(_10=-1), id="negative sequence"),
    ],
)
def test_what_is_not_a_message_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage) as refused:
        decode_message(data)
    assert refused.value.code == "malformed"


@given(st.binary())
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        decode_message(data)
    except MalformedMessage:
        return


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary()
    ),
    lambda inner: st.lists(inner, max_size=16),
    max_leaves=40,
)


@given(st.integers(0, 14), st.lists(values, max_size=8))
def test_any_fields_are_a_message_or_malformed(kind: int, fields: list[Any]) -> None:
    try:
        decode_message(msgpack.encode([kind, *fields]))
    except MalformedMessage:
        return
