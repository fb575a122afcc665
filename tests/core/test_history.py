"""Reading back: exact statements of what was served and what is missing, and no seam."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.cursor import Cursor
from penstock.core.history import TOPICS_A_SLICE, Chunk, Replay
from penstock.core.ports import Position
from penstock.core.settings import CoreSettings, LogSettings, RingSettings, TopicRule
from penstock.core.topics import matches
from penstock.errors import InvalidCursor
from penstock.storage.memory import MemoryLog
from penstock.testing import Client, Stage, payloads_of

ALL = 1 << 30


def numbers(first: int, last: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(first, last + 1)]


def stage_with_ring(messages: int, **settings: object) -> tuple[Stage, Client]:
    stage = Stage(CoreSettings(ring=RingSettings(messages=messages, **settings)))  # type: ignore[arg-type]
    return stage, stage.client("s")


def payloads(chunk: Chunk) -> list[bytes]:
    return [payload for run in chunk.runs for payload in payloads_of(run)]


def missing(chunk: Chunk) -> list[tuple[str, int | None, int, str]]:
    return [(one.topic, one.first, one.last, str(one.reason)) for one in chunk.statement.missing]


# The last messages of a topic


def test_the_last_messages_of_a_topic_are_given_oldest_first() -> None:
    stage, sender = stage_with_ring(10)
    for payload in numbers(1, 5):
        sender.publish("a", payload)
        sender.publish("b", payload)
    assert [run.payload() for run in stage.broker.history.last("a", 3)] == numbers(3, 5)
    assert [run.sequence for run in stage.broker.history.last("a", 100)] == [1, 2, 3, 4, 5]


def test_the_last_messages_may_begin_within_a_run() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", *numbers(1, 4))
    sender.publish("a", *numbers(5, 6))
    assert [payloads_of(run) for run in stage.broker.history.last("a", 3)] == [numbers(4, 4), numbers(5, 6)]


def test_an_unknown_topic_has_no_past() -> None:
    stage, _ = stage_with_ring(10)
    assert stage.broker.history.last("a", 3) == ()
    chunk = stage.broker.history.since_sequence("a", 0)
    assert (chunk.runs, chunk.statement.is_complete) == ((), True)
    assert len(stage.broker.topics) == 0


def test_none_of_the_last_messages_is_none() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"x")
    assert stage.broker.history.last("a", 0) == ()


# A retained value that is all there is


def test_a_retained_value_is_the_history_of_a_topic_with_one_message() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001", retain=True)
    assert stage.broker.topics["a"].ring is None  # most such topics never get a second message
    (run,) = stage.broker.history.last("a", 3)
    assert (run.payload(), run.sequence, run.offset, run.client_id) == (b"001", 1, 1, "s")
    chunk = stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([b"001"], [])
    assert payloads(stage.broker.history.since_sequence("a", 1)) == []


@pytest.mark.parametrize("second", [b"002", b""])
@pytest.mark.parametrize("retain", [True, False])
def test_the_first_value_stays_when_more_comes(second: bytes, retain: bool) -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001", retain=True)
    sender.publish("a", second, retain=retain)
    sender.publish("a", b"003")
    chunk = stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([b"001", second, b"003"], [])
    assert [run.sequence for run in chunk.runs] == [1, 2, 3]


def test_a_replay_finds_the_only_value_and_says_when_it_is_gone() -> None:
    stage, sender = stage_with_ring(10)
    start = stage.broker.history.cursor()
    sender.publish("a", b"001", retain=True, ttl=5.0)
    assert payloads(stage.broker.history.replay(["#"], start).read(ALL)) == [b"001"]
    stage.advance(6.0)
    chunk = stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([], [("a", 1, 1, "expired")])


def test_without_rings_a_value_is_no_history() -> None:
    stage, sender = stage_with_ring(0)
    sender.publish("a", b"001", retain=True)
    chunk = stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([], [("a", 1, 1, "never-stored")])


# Since a sequence


def test_a_ring_of_three_after_ten_messages_misses_six_and_seven_for_a_reader_at_five() -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 10):
        sender.publish("a", payload)
    chunk = stage.broker.history.since_sequence("a", 5)
    assert [run.sequence for run in chunk.runs] == [8, 9, 10]
    assert missing(chunk) == [("a", 6, 7, "evicted")]
    assert (chunk.statement.served, chunk.statement.is_complete) == (3, False)


@pytest.mark.parametrize(
    ("at", "served", "gone"),
    [(0, [8, 9, 10], (1, 7)), (7, [8, 9, 10], None), (8, [9, 10], None), (10, [], None), (99, [], None)],
)
def test_what_is_missing_is_exact_wherever_the_reader_stands(
    at: int, served: list[int], gone: tuple[int, int] | None
) -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 10):
        sender.publish("a", payload)
    chunk = stage.broker.history.since_sequence("a", at)
    assert [run.sequence for run in chunk.runs] == served
    assert missing(chunk) == ([] if gone is None else [("a", *gone, "evicted")])


def test_a_reader_may_stand_within_a_run() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", *numbers(1, 5))
    chunk = stage.broker.history.since_sequence("a", 3)
    assert [(run.sequence, payloads_of(run)) for run in chunk.runs] == [(4, numbers(4, 5))]


def test_a_ring_that_holds_more_than_its_limit_for_a_moment_does_not_show_it() -> None:
    stage, sender = stage_with_ring(8)
    for payload in numbers(1, 10):  # two more than the limit, not yet trimmed
        sender.publish("a", payload)
    chunk = stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == (numbers(3, 10), [("a", 1, 2, "evicted")])
    replay = stage.broker.history.replay(["a"], stage.broker.history.cursor(0)).read(ALL)
    assert (payloads(replay), missing(replay)) == (numbers(3, 10), [("a", None, 2, "evicted")])


def test_what_has_expired_is_reported_with_its_range() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001")
    sender.publish("a", b"002", b"003", ttl=5.0)
    sender.publish("a", b"004", ttl=50.0)
    stage.clock.advance(5.0)
    chunk = stage.broker.history.since_sequence("a", 0)
    assert payloads(chunk) == [b"001", b"004"]
    assert missing(chunk) == [("a", 2, 3, "expired")]
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0)).read(ALL)
    assert (payloads(replay), missing(replay)) == ([b"001", b"004"], [("a", 2, 3, "expired")])


# By cursor


def test_a_replay_gives_all_topics_of_its_filters_in_the_order_of_publication() -> None:
    stage, sender = stage_with_ring(100)
    for number, topic in enumerate(("a/1", "b", "a/2", "a/1", "c", "a/3")):
        sender.publish(topic, str(number).encode())
    history = stage.broker.history
    chunk = history.replay(["a/+", "c"], history.cursor(0)).read(ALL)
    assert payloads(chunk) == [b"0", b"2", b"3", b"4", b"5"]
    assert chunk.statement.is_at_head
    assert chunk.statement.is_complete
    assert chunk.statement.next == history.cursor()


def test_a_cursor_is_text_that_leads_back_to_its_place() -> None:
    stage, sender = stage_with_ring(100)
    for payload in numbers(1, 3):
        sender.publish("a", payload)
    text = stage.broker.history.cursor().encode()
    for payload in numbers(4, 6):
        sender.publish("a", payload)
    chunk = stage.broker.history.replay(["a"], Cursor.decode(text)).read(ALL)
    assert payloads(chunk) == numbers(4, 6)


def test_a_cursor_may_stand_within_a_run() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", *numbers(1, 5))
    chunk = stage.broker.history.replay(["a"], stage.broker.history.cursor(2)).read(ALL)
    assert payloads(chunk) == numbers(3, 5)


def test_a_replay_in_chunks_goes_on_where_it_stopped() -> None:
    stage, sender = stage_with_ring(100)
    for payload in numbers(1, 20):
        sender.publish("a", payload)
        sender.publish("b", payload)
    replay = stage.broker.history.replay(["+"], stage.broker.history.cursor(0))
    chunks = [replay.read(30)]
    while not chunks[-1].statement.is_at_head:
        chunks.append(replay.read(30))
    assert [len(chunk.runs) for chunk in chunks] == [10, 10, 10, 10]
    assert [run.offset for chunk in chunks for run in chunk.runs] == list(range(1, 41))
    assert all(before.statement.next == after.statement.after for before, after in pairwise(chunks))


def test_a_cursor_of_another_log_is_refused() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", b"x")
    foreign = Cursor((Position(MemoryLog(0).log_id, 1, 0),))
    with pytest.raises(InvalidCursor, match="epoch-changed"):
        stage.broker.history.replay(["a"], foreign)


def test_a_cursor_ahead_of_the_log_is_refused() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", b"x")
    with pytest.raises(InvalidCursor):
        stage.broker.history.replay(["a"], stage.broker.history.cursor(2))


def test_what_is_evicted_between_two_chunks_is_reported_exactly() -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 3):
        sender.publish("a", payload)
    replay = stage.broker.history.replay(["a"], stage.broker.history.cursor(0))
    assert payloads(replay.read(1)) == numbers(1, 1)
    for payload in numbers(4, 8):
        sender.publish("a", payload)
    chunk = replay.read(ALL)
    assert payloads(chunk) == numbers(6, 8)
    assert missing(chunk) == [("a", 2, 5, "evicted")]


def test_a_loss_that_a_chunk_did_not_reach_is_told_by_a_later_one_and_only_once() -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 3):
        sender.publish("early", payload)
    for payload in numbers(1, 5):
        sender.publish("late", payload)
    replay = stage.broker.history.replay(["+"], stage.broker.history.cursor(0))
    first = replay.read(1)
    assert (payloads(first), missing(first)) == (numbers(1, 1), [])
    second = replay.read(ALL)
    assert missing(second) == [("late", None, 2, "evicted")]
    assert missing(replay.read(ALL)) == []


def test_topics_that_are_new_since_the_replay_began_are_part_of_it() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", b"001")
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0))
    assert payloads(replay.read(ALL)) == [b"001"]
    sender.publish("b", b"002")
    assert payloads(replay.read(ALL)) == [b"002"]


def test_many_topics_are_looked_at_in_slices() -> None:
    stage, sender = stage_with_ring(1)
    count = TOPICS_A_SLICE + 5
    for number in range(count):
        sender.publish(f"a/{number}", b"x")
    replay = stage.broker.history.replay(["a/+"], stage.broker.history.cursor(0))
    assert replay.look()
    assert not replay.look()
    assert len(replay.read(ALL).runs) == count


def test_reading_to_the_head_and_subscribing_in_the_same_turn_leaves_no_hole_and_no_double() -> None:
    stage, sender = stage_with_ring(100)
    reader, other = stage.client("r"), stage.client("o")
    other.subscribe("a")
    for payload in numbers(1, 3):
        sender.publish("a", payload)
    stage.settle()
    for payload in numbers(4, 5):
        sender.publish("a", payload)  # published, and not flushed yet
    chunk = stage.broker.history.replay(["a"], stage.broker.history.cursor(0)).read(ALL)
    assert chunk.statement.is_at_head
    reader.subscribe("a")
    for payload in numbers(6, 7):
        sender.publish("a", payload)
    stage.settle()
    assert payloads(chunk) + reader.take_payloads() == numbers(1, 7)
    assert other.take_payloads() == numbers(1, 7)


# Topics that the log keeps


def kept_stage(memory_bytes: int = 1 << 20, ring: int = 100) -> tuple[Stage, Client]:
    stage = Stage(
        CoreSettings(
            log=LogSettings(capture=("kept/#",), memory_bytes=memory_bytes), ring=RingSettings(messages=ring)
        )
    )
    return stage, stage.client("s")


def test_a_kept_topic_is_read_from_the_log_beyond_its_ring() -> None:
    stage, sender = kept_stage(ring=2)
    for payload in numbers(1, 6):
        sender.publish("kept/a", payload)
        sender.publish("other", payload)
    history = stage.broker.history
    assert [run.payload() for run in history.last("kept/a", 4)] == numbers(3, 6)
    chunk = history.replay(["#"], history.cursor(0)).read(ALL)
    assert [run.payload() for run in chunk.runs if run.topic == "kept/a"] == numbers(1, 6)
    assert missing(chunk) == [("other", None, 4, "evicted")]


def test_kept_and_other_topics_are_served_in_one_order() -> None:
    stage, sender = kept_stage()
    for number, topic in enumerate(("kept/a", "other", "kept/b", "kept/a", "other")):
        sender.publish(topic, str(number).encode())
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0))
    got: list[bytes] = []
    while not (chunk := replay.read(2)).statement.is_at_head:
        got += payloads(chunk)
    assert got + payloads(chunk) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_left_the_log_by_retention_is_reported() -> None:
    stage, sender = kept_stage(memory_bytes=3 * 300)
    for payload in numbers(1, 9):
        sender.publish("kept/a", payload)
    kept = [run.payload() for run in stage.log.read(0, ALL).runs]
    assert 0 < len(kept) < 9
    gone = 9 - len(kept)
    chunk = stage.broker.history.since_sequence("kept/a", 1)
    assert payloads(chunk) == kept
    assert missing(chunk) == [("kept/a", 2, gone, "retention")]
    replay = stage.broker.history.replay(["kept/a"], stage.broker.history.cursor(2)).read(ALL)
    assert (payloads(replay), missing(replay)) == (kept, [("kept/a", 3, gone, "retention")])


def test_retention_between_two_chunks_is_reported() -> None:
    stage, sender = kept_stage(memory_bytes=4 * 300, ring=1)
    for payload in numbers(1, 3):
        sender.publish("kept/a", payload)
    replay = stage.broker.history.replay(["kept/a"], stage.broker.history.cursor(0))
    assert payloads(replay.read(1)) == numbers(1, 1)
    for payload in numbers(4, 9):
        sender.publish("kept/a", payload)
    chunk = replay.read(ALL)
    first = chunk.runs[0].sequence
    assert first > 2
    assert missing(chunk) == [("kept/a", 2, first - 1, "retention")]
    assert [run.sequence for run in chunk.runs] == list(range(first, 10))


def test_a_kept_topic_that_lost_nothing_is_not_said_to_miss_something() -> None:
    stage, sender = kept_stage(memory_bytes=3 * 300)
    sender.publish("kept/quiet", b"001")
    cursor = stage.broker.history.cursor()
    for payload in numbers(1, 9):
        sender.publish("kept/busy", payload)
    chunk = stage.broker.history.replay(["kept/quiet"], cursor).read(ALL)
    assert (chunk.runs, missing(chunk)) == ((), [])


# Against a naive model


class Reader:
    """Checks each chunk against all that was ever published: nothing twice, no hole that is not told."""

    def __init__(self, stage: Stage, filter: str, start: int, published: list[tuple[str, int, int]]) -> None:
        self._stage = stage
        self._filter = filter
        self._published = published
        self._start = start
        self._accounted: dict[str, int] = {}
        for topic, sequence, offset in published:
            if offset <= start:
                self._accounted[topic] = sequence
        self._last_offset = start
        self._replay = self._open(stage.broker.history.cursor(start))
        self.is_at_head = False

    def _open(self, cursor: Cursor) -> Replay:
        return self._stage.broker.history.replay([self._filter], Cursor.decode(cursor.encode()))

    def read(self, limit_bytes: int, *, reopen: bool) -> None:
        chunk = self._replay.read(limit_bytes)
        for run in chunk.runs:
            assert run.offset > self._last_offset
            self._last_offset = run.offset + run.count - 1
        for topic, first, last in sorted(self._ranges(chunk), key=lambda one: (one[0], one[2])):
            expected = self._accounted.get(topic, 0) + 1
            assert (first or expected) == expected, f"{topic}: {first} to {last}, not {expected}"
            assert last >= expected, f"{topic}: {last} was accounted for already"
            self._accounted[topic] = last
        self.is_at_head = chunk.statement.is_at_head
        if reopen:
            self._replay = self._open(chunk.statement.next)

    @staticmethod
    def _ranges(chunk: Chunk) -> Iterator[tuple[str, int | None, int]]:
        for run in chunk.runs:
            yield run.topic, run.sequence, run.sequence + run.count - 1
        for lost in chunk.statement.missing:
            yield lost.topic, lost.first, lost.last

    def finish(self) -> None:
        self.read(50, reopen=False)
        while not self.is_at_head:
            self.read(50, reopen=False)
        wanted: dict[str, int] = {}
        for topic, sequence, offset in self._published:
            if matches(self._filter, topic) or offset <= self._start:
                wanted[topic] = sequence
        assert self._accounted == wanted


TOPICS = ("a", "a/b", "a/c", "d", "kept/e", "kept/f")
FILTERS = ("#", "a/#", "a", "+", "kept/+", "+/b")


@settings(max_examples=150, deadline=None)
@given(
    ring=st.integers(0, 9),
    # What the log has lost is told exactly as long as the ring remembers where a reader stood: so one
    # of the two may be short of memory, not both.
    memory=st.sampled_from([(3_000, 100_000), (100_000, 700), (100_000, 3_000), (100_000, 100_000)]),
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 4), st.booleans()),
            st.tuples(st.just("open"), st.sampled_from(FILTERS), st.integers(0, 10), st.booleans()),
            st.tuples(st.just("read"), st.just(""), st.sampled_from([1, 5, 50]), st.booleans()),
            st.tuples(st.just("wait"), st.just(""), st.integers(0, 3), st.booleans()),
        ),
        min_size=10,
        max_size=80,
    ),
)
def test_served_and_missing_are_together_everything_and_nothing_twice(
    ring: int, memory: tuple[int, int], moves: list[tuple[str, str, int, bool]]
) -> None:
    ring_bytes, log_bytes = memory
    stage = Stage(
        CoreSettings(
            ring=RingSettings(messages=ring, total_bytes=ring_bytes, partitions=1),
            log=LogSettings(capture=("kept/#",), memory_bytes=log_bytes),
            topics=(TopicRule(filter="kept/#", ring_messages=1_000),),
        )
    )
    sender = stage.client("s")
    published: list[tuple[str, int, int]] = []
    readers: list[Reader] = []
    for move, word, number, flag in moves:
        if move == "publish":
            run = sender.publish(word, *[b"x"] * number, ttl=2.0 if flag else 0.0).run
            published += [(word, run.sequence + index, run.offset + index) for index in range(number)]
        elif move == "open":
            start = stage.broker.history.head * number // 10
            readers.append(Reader(stage, word, start, published))
        elif move == "wait":
            stage.clock.advance(number)
        elif readers:
            readers[-1 if flag else 0].read(number, reopen=flag)
    for reader in readers:
        reader.finish()
