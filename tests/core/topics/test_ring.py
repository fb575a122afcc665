"""The last messages of each topic: what a reader sees, what is gone, and who pays for memory."""

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.settings import RingSettings
from penstock.core.topics.ring import MOST_RELEASED, PLAIN_BYTES, RUN_BYTES, Partition, Ring, Rings
from penstock.model import Door
from penstock.runs import NEVER, Run, Shape
from tests.support.samples import fields_of, make_run, payloads_of

STEP = 4096  # the least a ring reserves
ROOMY = 1 << 30

Seen = tuple[int, int, bytes]  # offset, sequence and payload of one message


def seen_in(runs: list[Run]) -> list[Seen]:
    return [
        (run.offset + index, run.sequence + index, payload)
        for run in runs
        for index, payload in enumerate(payloads_of(run))
    ]


def cost(runs: list[Run]) -> int:
    return sum(len(run.slab) + RUN_BYTES for run in runs)


def least_cost(runs: list[Run]) -> int:
    """What they cost if every message that can be kept as plain is."""
    is_plain = [run.count == 1 and not run.expires_at for run in runs]
    return cost(runs) - (RUN_BYTES - PLAIN_BYTES) * sum(is_plain)


class Writer:
    """Publishes runs to one topic, and leaves gaps between offsets as other topics would."""

    def __init__(self, topic: str = "a", offset: int = 1) -> None:
        self.topic = topic
        self.offset = offset
        self.sequence = 1
        self.sizes: list[int] = []
        self.everything: list[Seen] = []

    def make(self, count: int, size: int, gap: int = 0, *, is_plain: bool = False) -> Run:
        payloads = [bytes([number % 256]) * size for number in range(self.sequence, self.sequence + count)]
        # With an expiry, however far away, a run is kept whole, which makes what it costs easy to tell.
        expires_at = NEVER if is_plain else 1e9
        offset = self.offset + gap
        run = make_run(self.topic, *payloads, sequence=self.sequence, offset=offset, expires_at=expires_at)
        self.sequence += count
        self.offset += gap + count
        self.sizes += [size] * count
        self.everything += seen_in([run])
        return run


runs = st.tuples(
    st.integers(1, 12), st.sampled_from((0, 1, 7, 100, 600)), st.integers(0, 3), st.booleans()
)  # count, size, gap, whether it is plain


@given(
    st.integers(0, 9),
    st.sampled_from((0, 1, PLAIN_BYTES, RUN_BYTES, RUN_BYTES + 3, 700, 1_500, 5_000, ROOMY)),
    st.lists(runs, max_size=8) | st.lists(runs, min_size=10, max_size=30),
)
@example(5, 700, [(1, 100, 0, False), (1, 600, 0, False)])  # the newest needs all the room that there is
@example(3, 700, [(1, 100, 0, False), (12, 100, 0, False)])  # only the end of the newest fits
def test_a_reader_sees_the_last_messages_within_both_limits(
    limit: int, limit_bytes: int, arrivals: list[tuple[int, int, int, bool]]
) -> None:
    ring = Ring(limit, limit_bytes, Partition(ROOMY))
    writer = Writer()
    for count, size, gap, is_plain in arrivals:
        ring.append(writer.make(count, size, gap, is_plain=is_plain))
        check_view(ring, writer, limit, limit_bytes)


def check_view(ring: Ring, writer: Writer, limit: int, limit_bytes: int) -> None:
    shown = ring.runs()
    seen = seen_in(shown)
    gone = len(writer.everything) - len(seen)
    assert seen == writer.everything[gone:]
    assert ring.messages == len(seen) <= limit
    assert least_cost(shown) <= limit_bytes
    assert ring.evicted_offset == (writer.everything[gone - 1][0] if gone else 0)
    assert ring.last_offset == (writer.everything[-1][0] if seen else 0)
    newest = ring.newest()
    assert seen_in([] if newest is None else [newest])[-1:] == seen[-1:]
    if gone and len(seen) < limit:  # then it was the bytes, and one more message would have been too much
        assert cost(shown) + writer.sizes[gone - 1] + RUN_BYTES > limit_bytes


@pytest.mark.parametrize("is_plain", [True, False])
def test_messages_since_a_time_are_counted(is_plain: bool) -> None:
    ring, writer = Ring(100, ROOMY, Partition(ROOMY)), Writer()
    for at in (10, 20, 20, 30):
        run = writer.make(1 if is_plain else 3, 1, is_plain=is_plain)
        run.published_at = at
        ring.append(run)
    size = 1 if is_plain else 3
    found = [ring.count_since(since) for since in (0, 10, 11, 20, 21, 30, 31)]
    assert found == [
        (4 * size, 10),
        (4 * size, 10),
        (3 * size, 20),
        (3 * size, 20),
        (size, 30),
        (size, 30),
        (0, 0),
    ]


def test_a_message_that_is_hidden_but_not_trimmed_yet_counts_as_evicted() -> None:
    ring = Ring(100, ROOMY, Partition(ROOMY))
    writer = Writer()
    for _ in range(110):
        ring.append(writer.make(1, 1))
    assert ring.messages == 100
    assert ring.evicted_offset == 10


def test_a_ring_of_no_messages_keeps_and_reserves_nothing() -> None:
    partition = Partition(ROOMY)
    ring = Ring(0, ROOMY, partition)
    ring.append(Writer().make(3, 10))
    assert ring.runs() == []
    assert ring.evicted_offset == 3
    assert partition.reserved_bytes == 0


def test_a_message_larger_than_the_ring_is_not_kept_and_nothing_older_either() -> None:
    ring = Ring(10, 1_000, Partition(ROOMY))
    writer = Writer()
    ring.append(writer.make(1, 10))
    ring.append(writer.make(1, 2_000))
    assert ring.runs() == []
    assert ring.evicted_offset == 2
    ring.append(writer.make(1, 10))
    assert seen_in(ring.runs()) == writer.everything[-1:]


def test_a_cleared_ring_says_what_went_and_can_be_filled_again() -> None:
    partition = Partition(ROOMY)
    ring = Ring(10, ROOMY, partition)
    writer = Writer()
    ring.append(writer.make(3, 10))
    ring.close()
    assert (ring.runs(), ring.evicted_offset, ring.last_offset) == ([], 3, 0)
    assert (partition.reserved_bytes, len(partition)) == (0, 0)
    ring.append(writer.make(1, 10))
    assert seen_in(ring.runs()) == writer.everything[3:]
    assert len(partition) == 1


# Partitions


def fill(partition: Partition, names: str, size: int = 10) -> dict[str, tuple[Ring, Writer]]:
    """One message in each of several rings, oldest first."""
    rings = {}
    for number, name in enumerate(names):
        ring, writer = Ring(1_000, partition.limit_bytes, partition), Writer(name, 1 + 1_000 * number)
        ring.append(writer.make(1, size))
        rings[name] = (ring, writer)
    return rings


def has_messages(rings: dict[str, tuple[Ring, Writer]]) -> str:
    return "".join(name for name, (ring, _) in rings.items() if ring.messages)


def test_rings_that_were_not_used_again_are_evicted_in_the_order_they_came() -> None:
    partition = Partition(3 * STEP)
    rings = fill(partition, "abc")
    ring, writer = rings["a"]
    ring.append(writer.make(1, 10))
    rings |= fill(partition, "d")
    assert has_messages(rings) == "acd"
    rings |= fill(partition, "e")
    assert has_messages(rings) == "ade"
    assert partition.evictions == 2


def test_when_all_are_in_use_someone_goes_nevertheless() -> None:
    partition = Partition(3 * STEP)
    rings = fill(partition, "abc")
    for ring, writer in rings.values():
        ring.append(writer.make(1, 10))
    rings |= fill(partition, "d")
    assert has_messages(rings) == "bcd"


def test_a_ring_in_use_outlives_those_that_are_not() -> None:
    partition = Partition(4 * STEP)
    hot, writer = Ring(10, STEP, partition), Writer("hot")
    hot.append(writer.make(1, 10))
    for number in range(50):
        hot.append(writer.make(1, 10))
        fill(partition, chr(1_000 + number))
    assert hot.messages == 10
    assert partition.evictions == 50 + 1 - 4


def test_rings_that_were_closed_leave_the_line_and_may_be_filled_again() -> None:
    partition = Partition(ROOMY)
    names = "".join(chr(1_000 + number) for number in range(1_000))
    rings = fill(partition, names)
    for name in names[:999]:
        rings[name][0].close()
    assert (len(partition), partition.reserved_bytes) == (1, STEP)
    assert len(partition._rings) <= 1 + MOST_RELEASED, "what is gone is kept alive"
    for name in names[990:999]:  # some of these still are in the line
        ring, writer = rings[name]
        ring.append(writer.make(1, 10))
    assert (len(partition), partition.reserved_bytes) == (10, 10 * STEP)
    assert has_messages(rings) == names[990:]
    partition.resize(0)
    while partition.shed():
        pass
    assert (len(partition), partition.reserved_bytes, has_messages(rings)) == (0, 0, "")


@pytest.mark.parametrize("is_plain", [True, False])
def test_an_evicted_ring_says_so_and_starts_again(is_plain: bool) -> None:
    partition = Partition(STEP)
    ring, writer = Ring(100, STEP, partition), Writer()
    for _ in range(3):
        ring.append(writer.make(1, 10, is_plain=is_plain))
    others = fill(partition, "b")
    assert ring.runs() == []
    assert ring.evicted_offset == 3
    for _ in range(2):
        ring.append(writer.make(1, 10, is_plain=is_plain))
    assert seen_in(ring.runs()) == writer.everything[3:]
    assert has_messages(others) == ""


def test_one_growing_ring_takes_the_room_of_all_others_and_then_its_own() -> None:
    partition = Partition(4 * STEP)
    rings = fill(partition, "abcd")
    ring, writer = rings["b"]
    for _ in range(40):
        ring.append(writer.make(4, 400))
    assert has_messages(rings) == "b"
    assert cost(ring.runs()) <= partition.limit_bytes
    assert partition.reserved_bytes == partition.limit_bytes
    assert partition.evictions == 3


@given(
    st.integers(0, 6 * STEP),
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 9), st.sampled_from((0, 50, 900, 5_000)), st.booleans()),
        min_size=10,
        max_size=60,
    ),
)
def test_a_partition_never_holds_more_than_its_share(
    share: int, arrivals: list[tuple[int, int, int, bool]]
) -> None:
    partition = Partition(share)
    rings = [Ring(20, min(3 * STEP, share), partition) for _ in range(6)]
    writers = [Writer(str(number)) for number in range(6)]
    offset = 1
    for which, count, size, is_plain in arrivals:
        writers[which].offset = offset
        rings[which].append(writers[which].make(1 if is_plain else count, size, is_plain=is_plain))
        offset = writers[which].offset
        assert partition.reserved_bytes == sum(ring.reserved_bytes for ring in rings) <= share
        assert len(partition) == sum(ring.reserved_bytes > 0 for ring in rings)
        for ring, writer in zip(rings, writers, strict=True):
            shown = ring.runs()
            assert least_cost(shown) <= ring.reserved_bytes
            gone = len(writer.everything) - ring.messages
            assert seen_in(shown) == writer.everything[gone:]
            assert ring.evicted_offset == (writer.everything[gone - 1][0] if gone else 0)


def test_a_busy_topic_evicts_nobody_in_another_partition() -> None:
    rings = Rings(RingSettings(total_bytes=8 * STEP, partitions=2))
    made = {f"topic/{number}": rings.make(f"topic/{number}", 100, ROOMY) for number in range(40)}
    for name, ring in made.items():
        ring.append(make_run(name, b"x", sequence=1, offset=1))
    kept = [name for name, ring in made.items() if ring.messages]
    assert len(kept) == 8  # all that fit into both partitions
    loud = made[kept[0]]
    before = [len(partition) for partition in rings.partitions]
    for offset in range(2, 2_000):
        loud.append(make_run(kept[0], bytes(100), sequence=offset, offset=offset))
    after = [len(partition) for partition in rings.partitions]
    assert loud.messages > 0
    assert sorted(was - now for was, now in zip(before, after, strict=True)) == [0, before[0] - 1]


def test_a_ring_is_never_promised_more_than_its_partition_has() -> None:
    rings = Rings(RingSettings(total_bytes=2_000, partitions=2))
    ring = rings.make("a", 100, ROOMY)
    for offset in range(1, 50):
        ring.append(make_run("a", bytes(50), sequence=offset, offset=offset))
    assert 0 < sum(len(run.slab) + PLAIN_BYTES for run in ring.runs()) <= 1_000


@pytest.mark.parametrize("total_bytes", [0, 1, 15])
def test_without_memory_nothing_is_kept_and_nothing_fails(total_bytes: int) -> None:
    rings = Rings(RingSettings(total_bytes=total_bytes))
    ring = rings.make("a", 100, 1_000)
    ring.append(make_run("a", b"x", b"y", sequence=1, offset=1))
    assert ring.runs() == []
    assert ring.evicted_offset == 2


PLAIN = [Shape("framed", Door.MQTT, qos, False, True) for qos in (0, 1)]
WHOLE = Shape("", Door.WEB, 0, False, False)
kinds = st.tuples(
    st.sampled_from([*PLAIN, None]),  # None: a run that is kept as it is
    st.sampled_from(["anna", "ben"]),
    st.integers(0, 3),  # where the payload starts
    st.integers(1, 4),
    st.integers(0, 3),
)


@given(st.integers(0, 12), st.lists(kinds, max_size=60))
def test_plain_messages_and_others_are_read_back_as_they_were_published(
    limit: int, script: list[tuple[Shape | None, str, int, int, int]]
) -> None:
    ring, offset = Ring(limit, ROOMY, Partition(ROOMY)), 1
    published: list[Run] = []
    for shape, client_id, head, count, gap in script:
        offset += gap
        sequence = len(published) + 1
        frames = [b"." * head + bytes([number % 256]) * (number % 7) for number in range(count)]
        if shape is not None:
            slab, stride, number = frames[0], len(frames[0]), 1
        else:
            slab, stride, number = b"." * (head + 3) * count, head + 3, count
        run = Run("a", slab, head, stride, number, shape or WHOLE, client_id=client_id)
        run.sequence, run.offset, run.published_at = sequence, offset, 7 * offset
        ring.append(run)
        published += [run.part(index, 1) for index in range(number)]
        offset += number
    singles = [run.part(index, 1) for run in ring.runs() for index in range(run.count)]
    expected = published[-limit:] if limit else []
    assert list(map(fields_of, singles)) == list(map(fields_of, expected))
    gone = published[: len(published) - len(expected)]
    assert ring.evicted_offset == (gone[-1].offset if gone else 0)
    assert ring.last_offset == (published[-1].offset if expected else 0)


def test_messages_that_expire_because_their_topic_says_so_still_do_when_they_are_read() -> None:
    ring = Ring(10, ROOMY, Partition(ROOMY))
    for number in (1, 2):
        ring.append(make_run("a", b"x", sequence=number, offset=number, expires_at=50.0 + number))
    assert [run.expires_at for run in ring.runs()] == [51.0, 52.0]


def test_plain_messages_cost_less_and_still_stay_within_the_bytes() -> None:
    ring = Ring(1_000, 10_000, Partition(ROOMY))
    for number in range(1, 301):
        ring.append(Run("a", bytes(100), 0, 100, 1, PLAIN[0], sequence=number, offset=number))
    assert ring.messages == 10_000 // (100 + PLAIN_BYTES)
    assert [run.sequence for run in ring.runs()] == list(range(301 - ring.messages, 301))


def test_a_ring_keeps_nothing_of_a_message_that_was_too_large_for_it() -> None:
    slab = bytes(2_000)
    before = sys.getrefcount(slab)
    ring = Ring(10, 1_000, Partition(ROOMY))
    ring.append(Run("a", slab, 0, len(slab), 1, PLAIN[0], sequence=1, offset=1))
    assert ring.runs() == []
    assert sys.getrefcount(slab) == before
