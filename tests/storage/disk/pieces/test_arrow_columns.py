"""Arrow columns: messages are converted to columns and back without loss."""

from operator import attrgetter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.stored_runs import expiry_of
from penstock.model import Door, Properties
from penstock.runs import NEVER, Run, bare_shape
from penstock.storage.disk.pieces.arrow_columns import (
    RUN_COLUMNS,
    SCHEMA,
    decode_batch,
    encode_batch,
    summarize,
    to_batch,
    to_runs,
)
from penstock.storage.disk.pieces.frames import Extent, Frame, Summary, decode_frame, encode_frame
from tests.support.samples import fields_of, make_run, payloads_of

NOW_US = 1_750_000_000_000_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = texts | st.sampled_from(["$", "$$", "$response_topic", "$payload_format", "$$response_topic", "a"])
all_properties = st.builds(
    Properties,
    content_type=st.none() | texts,
    correlation_id=st.none() | st.binary(max_size=12),
    response_topic=st.none() | texts,
    payload_format=st.none() | st.integers(0, 255),
    message_id=st.none() | texts,
    user=st.lists(st.tuples(keys, texts), max_size=5).map(tuple),
)
lifetimes = (
    st.just(NEVER)
    | st.just(1e-9)  # what an expiry interval of zero becomes
    | st.integers(1, 2**32 - 1).map(float)
    | st.integers(1, 10**12).map(lambda microseconds: microseconds / 1_000_000)
)


@st.composite
def some_runs(draw: st.DrawFn) -> Run:
    """A run of some messages whose frames have a header of some bytes, as from a wire."""
    head, length, count = draw(st.integers(0, 4)), draw(st.integers(0, 20)), draw(st.integers(1, 4))
    stride = head + length
    return Run(
        draw(texts),
        draw(st.binary(min_size=stride * count, max_size=stride * count)),
        head,
        stride,
        count,
        bare_shape(draw(st.sampled_from(Door)), draw(st.integers(0, 2)), draw(st.booleans())),
        draw(st.none() | all_properties),
        draw(lifetimes),
        client_id=draw(texts),
        sequence=draw(st.integers(1, 2**60)),
        offset=draw(st.integers(1, 2**60)),
        published_at=draw(st.integers(0, 2 * NOW_US)),
    )


some_frames = st.lists(
    st.builds(
        Frame,
        epoch=st.integers(1, 2**40),
        first=st.just(1),
        last=st.just(2),
        committed_at=st.integers(0, 2 * NOW_US),
        runs=st.lists(some_runs(), max_size=4),
    ),
    max_size=4,
)


def contents(runs: list[Run]) -> list[dict[str, object]]:
    """Everything that is in runs."""
    return [fields_of(run) for run in runs]


def singles(frames: list[Frame]) -> list[Run]:
    """What is expected back: each message as a bare run of its own."""
    return [
        Run(
            run.topic,
            payload,
            0,
            len(payload),
            1,
            run.shape,
            run.properties,
            run.ttl,
            0,
            run.client_id,
            run.sequence + index,
            run.offset + index,
            run.published_at,
        )
        for frame in frames
        for run in frame.runs
        for index, payload in enumerate(payloads_of(run))
    ]


def older(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as it was sealed before there was `logged_at`."""
    return batch.drop_columns(["logged_at"])


def frame_of(*runs: Run, first: int = 1, last: int = 9, epoch: int = 3) -> Frame:
    return Frame(epoch, first, last, NOW_US, runs)


@given(some_frames)
def test_messages_come_back_as_they_were(frames: list[Frame]) -> None:
    batch = decode_batch(encode_batch(to_batch(frames, "node")))
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert contents(to_runs(batch)) == contents(singles(frames))
    for name, value_of in (("epoch", attrgetter("epoch")), ("logged_at", attrgetter("committed_at"))):
        assert batch.column(name).cast(pa.int64()).to_pylist() == [
            value_of(frame) for frame in frames for run in frame.runs for _ in range(run.count)
        ]


@given(some_frames, st.data())
def test_a_part_of_a_batch_gives_its_own_messages(frames: list[Frame], data: st.DataObject) -> None:
    expected = singles(frames)
    start = data.draw(st.integers(0, len(expected)))
    length = data.draw(st.integers(0, len(expected)))
    batch = to_batch(frames, "node")
    assert contents(to_runs(batch.slice(start, length))) == contents(expected[start : start + length])


def test_a_row_has_what_readers_of_the_table_expect() -> None:
    properties = Properties("text/plain", b"\x01", "answers", 1, "m-1", (("b", "1"), ("$a", "2"), ("b", "1")))
    run = make_run(
        "a/b",
        b"x",
        b"y",
        qos=1,
        retain=True,
        sequence=7,
        offset=40,
        ttl=1.5,
        properties=properties,
        client_id="c",
    )
    run.published_at = NOW_US
    rows = to_batch([frame_of(run)], "node-1").to_pylist(maps_as_pydicts=None)
    assert [(row["offset"], row["sequence"], row["payload"]) for row in rows] == [
        (40, 7, b"x"),
        (41, 8, b"y"),
    ]
    assert rows[1]["expires_at"].timestamp() == NOW_US / 1_000_000 + 1.5
    assert rows[1]["published_at"].isoformat() == "2025-06-15T15:06:40+00:00"
    assert rows[1]["logged_at"].isoformat() == "2025-06-15T15:06:40+00:00"
    named = ("topic", "epoch", "qos", "retain", "content_type", "correlation_id", "message_id", "client_id")
    assert [rows[1][name] for name in named] == ["a/b", 3, 1, True, "text/plain", b"\x01", "m-1", "c"]
    assert (rows[1]["node_id"], rows[1]["door"]) == ("node-1", "mqtt")
    assert rows[1]["properties"] == [
        ("b", "1"),
        ("$$a", "2"),
        ("b", "1"),
        ("$response_topic", "answers"),
        ("$payload_format", "1"),
    ]


def test_what_a_message_does_not_have_is_null() -> None:
    row = to_batch([frame_of(make_run("a", b""))], "node").to_pylist()[0]
    empty = ("expires_at", "content_type", "correlation_id", "message_id", "properties")
    assert [row[name] for name in empty] == [None] * len(empty)
    assert (row["payload"], row["client_id"]) == (b"", "")


def test_a_run_keeps_its_expiry_on_the_wall_clock() -> None:
    run = make_run("a", b"x", ttl=3_600.0)
    run.published_at = NOW_US
    (back,) = to_runs(to_batch([frame_of(run)], "node"))
    assert expiry_of(back) == expiry_of(run) == NOW_US + 3_600_000_000


def test_stored_frames_and_given_ones_make_the_same_batch() -> None:
    frame = frame_of(make_run("a", b"12", b"34", qos=1, sequence=5, offset=1), make_run("b", b"", offset=3))
    assert to_batch([decode_frame(encode_frame(frame))], "node") == to_batch([frame], "node")


def test_only_the_columns_asked_for_are_unpacked() -> None:
    data = encode_batch(to_batch([frame_of(make_run("a", b"x", offset=4))], "node"))
    assert decode_batch(data, ["topic", "offset"]).to_pylist() == [{"offset": 4, "topic": "a"}]
    assert contents(to_runs(decode_batch(data, RUN_COLUMNS))) == contents(to_runs(decode_batch(data)))


def test_a_batch_that_was_sealed_before_there_was_a_column_has_nulls_in_it() -> None:
    now = to_batch([frame_of(make_run("a", b"x", b"y", offset=4))], "node")
    data = encode_batch(older(now))
    whole = decode_batch(data)
    assert whole.schema == SCHEMA
    assert older(whole) == older(now)
    assert whole.column("logged_at").to_pylist() == [None, None]
    for columns in (["logged_at"], ["logged_at", "offset"], ["topic"]):
        found = decode_batch(data, columns)
        expected = [name for name in SCHEMA.names if name in columns]
        assert (found.schema.names, found) == (expected, whole.select(expected))
    assert contents(to_runs(decode_batch(data, RUN_COLUMNS))) == contents(to_runs(now))


def test_a_stored_batch_is_a_small_stream_that_any_arrow_reader_opens() -> None:
    data = encode_batch(to_batch([frame_of(make_run("a", b"x" * 100_000, offset=4))], "node"))
    with pa.ipc.open_stream(data) as reader:
        assert reader.read_all().column("offset").to_pylist() == [4]
    assert len(data) < 10_000


@pytest.mark.parametrize("columns", [None, ["offset", "logged_at"]])
@pytest.mark.parametrize("kept_bytes", [0, 100, -200])
def test_bytes_that_are_no_batch_are_refused(kept_bytes: int, columns: list[str] | None) -> None:
    data = encode_batch(to_batch([frame_of(make_run("a", b"x"))], "node"))
    with pytest.raises(ValueError, match="not a batch"):
        decode_batch(data[:kept_bytes], columns)


def test_a_table_of_something_else_is_refused() -> None:
    data = encode_batch(pa.record_batch({"fruit": ["apple"], "color": ["red"]}))
    with pytest.raises(ValueError, match="not a batch"):
        decode_batch(data, ["offset", "logged_at"])


def stamped(run: Run, published_at: int) -> Run:
    run.published_at = published_at
    return run


def test_a_summary_tells_what_the_frames_cover() -> None:
    frames = [
        Frame(
            2,
            10,
            14,
            500,
            [stamped(make_run("a", b"1", b"2", qos=1, sequence=3, offset=11), 111)],
            ((10, 10),),
        ),
        Frame(3, 15, 20, 600, [], ((15, 20),)),
        Frame(
            4,
            21,
            30,
            700,
            [
                stamped(make_run("b", b"1", qos=2, sequence=9, offset=21), 222),
                stamped(make_run("a", b"1", sequence=5, offset=22), 333),
            ],
            ((23, 24), (25, 26), (29, 30)),
        ),
    ]
    summary, extents = summarize(frames, to_batch(frames, "node"), 1_234)
    assert summary == Summary(
        first=10,
        last=30,
        count=4,
        bytes=1_234,
        began_at=111,
        ended_at=333,
        first_epoch=2,
        last_epoch=4,
        holes=((10, 10), (15, 20), (23, 26), (29, 30)),
        reserved=0,
    )
    assert extents == {"a": Extent(3, 5, 3, 1), "b": Extent(9, 9, 1, 2)}


def test_a_summary_counts_reserved_topics() -> None:
    frames = [frame_of(make_run("$penstock/a", b"1", b"2"), make_run("a/$b", b"3"), make_run("$x", b"4"))]
    summary, _ = summarize(frames, to_batch(frames, "node"), 1)
    assert (summary.count, summary.reserved) == (4, 3)


def test_frames_without_messages_are_summarized_by_when_they_were_committed() -> None:
    frames = [Frame(2, 1, 4, 500, []), Frame(2, 5, 9, 600, [])]
    summary, extents = summarize(frames, to_batch(frames, "node"), 0)
    assert (summary.first, summary.last, summary.count) == (1, 9, 0)
    assert (summary.began_at, summary.ended_at) == (500, 600)
    assert extents == {}
