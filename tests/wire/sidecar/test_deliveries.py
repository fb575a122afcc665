"""Deliveries for clients of our own service: every message once, in order, with all that belongs to it."""

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Door, Properties
from penstock.runs import Run, Shape, bare_shape
from penstock.wire.sidecar.batches import LAYOUT
from penstock.wire.sidecar.deliveries import LIMIT_BYTES, encode_deliveries
from penstock.wire.sidecar.fields import varint
from penstock.wire.sidecar.messages import penstock as v1
from tests.support.samples import changed
from tests.wire.sidecar.made_runs import made_runs, messages_in

SHAPE = bare_shape(Door.SIDECAR, 1, retain=False)


def cursor_of(offset: int) -> bytes:
    return b"cursor-%d" % offset


def epoch_of(offset: int) -> int:
    return 1 + offset // 1_000


def deliveries(
    runs: Sequence[Run], *, is_replay: bool = False, is_retained: bool = False
) -> list[v1.Delivery]:
    body = encode_deliveries(runs, cursor_of, epoch_of, is_replay=is_replay, is_retained=is_retained)
    return [v1.SubscribeEvent.FromString(message).delivery for message in messages_in(body)]


def made(sequence: int, *payloads: bytes, topic: str = "a", properties: Properties | None = None) -> Run:
    """A run of payloads of one length, whose offsets are a hundred more than its sequences."""
    slab, size = b"".join(payloads), len(payloads[0])
    run = Run(topic, slab, 0, size, len(payloads), SHAPE, properties)
    return changed(run, sequence=sequence, offset=100 + sequence, published_at=7)


def expected(run: Run, *, is_replay: bool, is_retained: bool) -> v1.Run:
    """A run, made of its class."""
    properties = run.properties or Properties()
    return v1.Run(
        topic=run.topic,
        payloads=[run.payload(index) for index in range(run.count)],
        sequence=run.sequence,
        epoch=epoch_of(run.offset) & 0xFFFFFFFF,
        published_at_us=run.published_at,
        content_type=properties.content_type or "",
        correlation_id=properties.correlation_id or b"",
        response_topic=properties.response_topic or "",
        message_id=properties.message_id or "",
        user_properties=[v1.Property(name=name, value=value) for name, value in properties.user],
        qos=run.shape.qos,
        is_retained=is_retained,
        is_replay=is_replay,
    )


RUNS = made_runs().map(lambda run: changed(run, offset=run.offset % 2**40))


@given(RUNS, st.booleans(), st.booleans())
def test_a_run_is_read_as_it_was(run: Run, is_replay: bool, is_retained: bool) -> None:
    (delivery,) = deliveries([run], is_replay=is_replay, is_retained=is_retained)
    assert list(delivery.runs) == [expected(run, is_replay=is_replay, is_retained=is_retained)]
    assert delivery.cursor == ("" if is_retained else f"cursor-{run.offset + run.count - 1}")


@given(st.lists(RUNS, min_size=2, max_size=6))
def test_runs_that_differ_stay_apart_and_in_order(runs: list[Run]) -> None:
    runs = [changed(run, topic=f"{index}/{run.topic}") for index, run in enumerate(runs)]
    (delivery,) = deliveries(runs)
    assert list(delivery.runs) == [expected(run, is_replay=False, is_retained=False) for run in runs]
    assert delivery.cursor == f"cursor-{runs[-1].offset + runs[-1].count - 1}"


def test_what_follows_and_is_alike_is_one_run_whatever_its_lengths() -> None:
    kind = Properties(content_type="text/plain")
    runs = [made(1, b"one", b"two", properties=kind), made(3, b"three", properties=kind)]
    ((run,),) = [delivery.runs for delivery in deliveries(runs)]
    assert list(run.payloads) == [b"one", b"two", b"three"]
    assert (run.sequence, run.content_type) == (1, "text/plain")


def test_runs_that_a_client_could_tell_apart_are_not_joined() -> None:
    first = made(1, b"x")
    second = made(2, b"y")
    others = [
        changed(second, topic="b"),
        changed(second, sequence=3),
        changed(second, published_at=8),
        changed(second, shape=bare_shape(Door.SIDECAR, 0, retain=False)),
        changed(second, properties=Properties(content_type="text/plain")),
        changed(second, offset=1_000),  # of the next epoch
    ]
    assert [len(deliveries([first, other])[0].runs) for other in others] == [2] * len(others)
    assert len(deliveries([first, second])[0].runs) == 1


def test_messages_with_ids_of_their_own_are_never_joined() -> None:
    named = Properties(message_id="same")
    (delivery,) = deliveries([made(1, b"x", properties=named), made(2, b"y", properties=named)])
    assert [run.message_id for run in delivery.runs] == ["same", "same"]


def test_frames_that_came_in_a_batch_go_out_as_they_are() -> None:
    payloads = [b"a" * 200, b"b" * 200]
    slab = b"".join(b"\x12" + varint(200) + payload for payload in payloads)
    run = Run(
        "a", slab, 3, 203, 2, Shape(LAYOUT, Door.SIDECAR, 1, False, is_plain=False), sequence=1, offset=1
    )
    (delivery,) = deliveries([run])
    assert list(delivery.runs[0].payloads) == payloads
    assert slab in encode_deliveries([run], cursor_of, epoch_of)


def payloads_in(given: Sequence[v1.Delivery]) -> Iterator[bytes]:
    return (payload for delivery in given for run in delivery.runs for payload in run.payloads)


def test_more_than_clients_take_at_once_is_split_with_a_cursor_for_each_part() -> None:
    runs = [made(1 + 10 * index, *[b"%010d" % index * 1_000] * 10) for index in range(10)]
    parts = deliveries(runs)
    assert list(payloads_in(parts)) == [run.payload(index) for run in runs for index in range(10)]
    assert len(parts) > 1 and max(part.ByteSize() for part in parts) < LIMIT_BYTES + 1_000
    for part in parts:
        last = part.runs[-1]
        assert part.cursor == f"cursor-{100 + last.sequence + len(last.payloads) - 1}"


def test_a_run_that_is_too_long_is_split_within() -> None:
    run = made(1, *[bytes((index,)) * 10_000 for index in range(100)])
    parts = deliveries([run])
    assert list(payloads_in(parts)) == [run.payload(index) for index in range(100)]
    assert max(part.ByteSize() for part in parts) < LIMIT_BYTES + 1_000
    assert parts[-1].cursor == "cursor-200"


def test_many_empty_payloads_are_split_as_well() -> None:
    run = changed(made(1, b""), count=200_000)
    parts = deliveries([run])
    assert sum(1 for _ in payloads_in(parts)) == 200_000
    assert len(parts) > 1 and max(part.ByteSize() for part in parts) < LIMIT_BYTES + 1_000


def test_what_travels_with_messages_counts_as_well() -> None:
    bulky = [
        made(1, b"x", properties=Properties(user=(("name", "v" * 60_000),)), topic=f"{n}") for n in range(20)
    ]
    assert max(part.ByteSize() for part in deliveries(bulky)) < LIMIT_BYTES + 1_000


def test_a_message_larger_than_the_limit_is_alone() -> None:
    runs = [made(1, b"x"), made(2, b"y" * (LIMIT_BYTES + 1)), made(3, b"z")]
    assert [len(run.payloads) for part in deliveries(runs) for run in part.runs] == [1, 1, 1]
    assert [part.cursor for part in deliveries(runs)] == ["cursor-101", "cursor-102", "cursor-103"]


def test_no_runs_are_no_event() -> None:
    assert encode_deliveries([], cursor_of, epoch_of) == b""
