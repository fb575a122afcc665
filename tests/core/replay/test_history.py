"""Reading back: exact statements of what was served and what is missing, and no seam."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.common.cursor import Cursor, Position
from penstock.common.statement import Gap, Missing
from penstock.common.topics import matches
from penstock.core.ports.log import Log, Span, Wanted
from penstock.core.ports.turn import Turn
from penstock.core.replay.history import READERS
from penstock.core.replay.reader import RINGS_A_SLICE, TOPICS_A_SLICE, Replay
from penstock.core.replay.sources import LEAST_BYTES, RUNS_AHEAD, RingSource, RingSources
from penstock.core.replay.statement import Chunk
from penstock.core.settings import CoreSettings, LogSettings, RingSettings, TopicRule
from penstock.errors import InvalidCursor
from penstock.model import Reason
from penstock.runs import Run
from penstock.storage.memory import MemoryLog
from tests.support.broker import Client, Stage
from tests.support.disk import Disk
from tests.support.examples import examples
from tests.support.samples import payloads_of
from tests.support.waiting import until

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


async def test_the_last_messages_of_a_topic_are_given_oldest_first() -> None:
    stage, sender = stage_with_ring(10)
    for payload in numbers(1, 5):
        sender.publish("a", payload)
        sender.publish("b", payload)
    assert [run.payload() for run in await stage.broker.history.last("a", 3)] == numbers(3, 5)
    assert [run.sequence for run in await stage.broker.history.last("a", 100)] == [1, 2, 3, 4, 5]


async def test_the_last_messages_may_begin_within_a_run() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", *numbers(1, 4))
    sender.publish("a", *numbers(5, 6))
    assert [payloads_of(run) for run in await stage.broker.history.last("a", 3)] == [
        numbers(4, 4),
        numbers(5, 6),
    ]


class Overtaken:
    """A log during whose look-up more is published: what a busy topic does to every read."""

    def __init__(self, log: Log, publish: Callable[[], object]) -> None:
        self._log, self._publish = log, publish

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def find_sequence(self, name: str, sequence: int) -> int | None:
        self._publish()
        return await self._log.find_sequence(name, sequence)


@pytest.mark.parametrize("more", [0, 1, 2, 7])
async def test_a_tail_under_traffic_is_as_long_as_asked_for_and_ends_at_the_head(more: int) -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", *numbers(1, 4))
    sender.publish("a", *numbers(5, 8))
    sender.publish("b", b"x")
    history = stage.broker.history
    history.log = Overtaken(history.log, lambda: sender.publish("a", *numbers(9, 8 + more)) if more else None)
    chunk = await history.tail("a", 3)
    assert payloads(chunk) == numbers(6 + more, 8 + more)
    assert (chunk.statement.served, chunk.statement.is_at_head) == (3, True)
    if more:
        assert chunk.statement.after is not None
        again = await history.replay(("a",), chunk.statement.after).read(ALL)
        assert payloads(again) == payloads(chunk)


async def test_a_tail_reports_what_of_it_is_missing_and_nothing_before() -> None:
    stage, sender = stage_with_ring(2)
    for payload in numbers(1, 6):
        sender.publish("a", payload)
    history = stage.broker.history
    history.log = Overtaken(history.log, lambda: sender.publish("a", b"007"))
    chunk = await history.tail("a", 4)
    assert payloads(chunk) == numbers(6, 7)
    assert missing(chunk) == [("a", 4, 5, "evicted")]


async def test_an_unknown_topic_has_no_past() -> None:
    stage, _ = stage_with_ring(10)
    assert await stage.broker.history.last("a", 3) == ()
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert (chunk.runs, chunk.statement.is_complete) == ((), True)
    assert len(stage.broker.topics) == 0


async def test_none_of_the_last_messages_is_none() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"x")
    assert await stage.broker.history.last("a", 0) == ()


async def test_what_has_expired_is_none_of_the_last_messages() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001")
    for payload in numbers(2, 6):
        sender.publish("a", payload, ttl=5.0)
    sender.publish("a", b"007")
    stage.clock.advance(5.0)
    assert [run.payload() for run in await stage.broker.history.last("a", 3)] == [b"001", b"007"]
    assert missing(await stage.broker.history.since_sequence("a", 0)) == [("a", 2, 6, "expired")]


# A retained value that is all there is


async def test_a_retained_value_is_the_history_of_a_topic_with_one_message() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001", retain=True)
    assert stage.broker.topics["a"].ring is None  # most such topics never get a second message
    (run,) = await stage.broker.history.last("a", 3)
    assert (run.payload(), run.sequence, run.offset, run.client_id) == (b"001", 1, 1, "s")
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([b"001"], [])
    assert payloads(await stage.broker.history.since_sequence("a", 1)) == []


@pytest.mark.parametrize("second", [b"002", b""])
@pytest.mark.parametrize("retain", [True, False])
async def test_the_first_value_stays_when_more_comes(second: bytes, retain: bool) -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001", retain=True)
    sender.publish("a", second, retain=retain)
    sender.publish("a", b"003")
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([b"001", second, b"003"], [])
    assert [run.sequence for run in chunk.runs] == [1, 2, 3]


async def test_a_replay_finds_the_only_value_and_says_when_it_is_gone() -> None:
    stage, sender = stage_with_ring(10)
    start = stage.broker.history.cursor()
    sender.publish("a", b"001", retain=True, ttl=5.0)
    assert payloads(await stage.broker.history.replay(["#"], start).read(ALL)) == [b"001"]
    stage.advance(6.0)
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([], [("a", 1, 1, "expired")])


async def test_without_rings_a_value_is_no_history() -> None:
    stage, sender = stage_with_ring(0)
    sender.publish("a", b"001", retain=True)
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == ([], [("a", 1, 1, "never-stored")])


# Since a sequence


async def test_a_ring_of_three_after_ten_messages_misses_six_and_seven_for_a_reader_at_five() -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 10):
        sender.publish("a", payload)
    chunk = await stage.broker.history.since_sequence("a", 5)
    assert [run.sequence for run in chunk.runs] == [8, 9, 10]
    assert missing(chunk) == [("a", 6, 7, "evicted")]
    assert (chunk.statement.served, chunk.statement.is_complete) == (3, False)


@pytest.mark.parametrize(
    ("at", "served", "gone"),
    [(0, [8, 9, 10], (1, 7)), (7, [8, 9, 10], None), (8, [9, 10], None), (10, [], None), (99, [], None)],
)
async def test_what_is_missing_is_exact_wherever_the_reader_stands(
    at: int, served: list[int], gone: tuple[int, int] | None
) -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 10):
        sender.publish("a", payload)
    chunk = await stage.broker.history.since_sequence("a", at)
    assert [run.sequence for run in chunk.runs] == served
    assert missing(chunk) == ([] if gone is None else [("a", *gone, "evicted")])


async def test_a_reader_may_stand_within_a_run() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", *numbers(1, 5))
    chunk = await stage.broker.history.since_sequence("a", 3)
    assert [(run.sequence, payloads_of(run)) for run in chunk.runs] == [(4, numbers(4, 5))]


async def test_a_ring_that_holds_more_than_its_limit_for_a_moment_does_not_show_it() -> None:
    stage, sender = stage_with_ring(8)
    for payload in numbers(1, 10):  # two more than the limit, not yet trimmed
        sender.publish("a", payload)
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert (payloads(chunk), missing(chunk)) == (numbers(3, 10), [("a", 1, 2, "evicted")])
    replay = await stage.broker.history.replay(["a"], stage.broker.history.cursor(0)).read(ALL)
    assert (payloads(replay), missing(replay)) == (numbers(3, 10), [("a", None, 2, "evicted")])


async def test_what_has_expired_is_reported_with_its_range() -> None:
    stage, sender = stage_with_ring(10)
    sender.publish("a", b"001")
    sender.publish("a", b"002", b"003", ttl=5.0)
    sender.publish("a", b"004", ttl=50.0)
    stage.clock.advance(5.0)
    chunk = await stage.broker.history.since_sequence("a", 0)
    assert payloads(chunk) == [b"001", b"004"]
    assert missing(chunk) == [("a", 2, 3, "expired")]
    replay = await stage.broker.history.replay(["#"], stage.broker.history.cursor(0)).read(ALL)
    assert (payloads(replay), missing(replay)) == ([b"001", b"004"], [("a", 2, 3, "expired")])


# By cursor


async def test_a_replay_gives_all_topics_of_its_filters_in_the_order_of_publication() -> None:
    stage, sender = stage_with_ring(100)
    for number, topic in enumerate(("a/1", "b", "a/2", "a/1", "c", "a/3")):
        sender.publish(topic, str(number).encode())
    history = stage.broker.history
    chunk = await history.replay(["a/+", "c"], history.cursor(0)).read(ALL)
    assert payloads(chunk) == [b"0", b"2", b"3", b"4", b"5"]
    assert chunk.statement.is_at_head
    assert chunk.statement.is_complete
    assert chunk.statement.next == history.cursor()


async def test_a_cursor_is_text_that_leads_back_to_its_place() -> None:
    stage, sender = stage_with_ring(100)
    for payload in numbers(1, 3):
        sender.publish("a", payload)
    text = stage.broker.history.cursor().encode()
    for payload in numbers(4, 6):
        sender.publish("a", payload)
    chunk = await stage.broker.history.replay(["a"], Cursor.decode(text)).read(ALL)
    assert payloads(chunk) == numbers(4, 6)


async def test_a_cursor_may_stand_within_a_run() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", *numbers(1, 5))
    chunk = await stage.broker.history.replay(["a"], stage.broker.history.cursor(2)).read(ALL)
    assert payloads(chunk) == numbers(3, 5)


async def test_a_replay_in_chunks_goes_on_where_it_stopped() -> None:
    stage, sender = stage_with_ring(100)
    for payload in numbers(1, 20):
        sender.publish("a", payload)
        sender.publish("b", payload)
    replay = stage.broker.history.replay(["+"], stage.broker.history.cursor(0))
    chunks = [await replay.read(10 * LEAST_BYTES)]
    while not chunks[-1].statement.is_at_head:
        chunks.append(await replay.read(10 * LEAST_BYTES))
    assert [len(chunk.runs) for chunk in chunks] == [10, 10, 10, 10]
    assert [run.offset for chunk in chunks for run in chunk.runs] == list(range(1, 41))
    assert all(before.statement.next == after.statement.after for before, after in pairwise(chunks))


async def test_a_cursor_of_another_log_is_refused() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", b"x")
    foreign = Cursor((Position(MemoryLog(0).log_id, 1, 0),))
    with pytest.raises(InvalidCursor, match="epoch-changed"):
        stage.broker.history.replay(["a"], foreign)


async def test_a_cursor_ahead_of_the_log_is_refused() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", b"x")
    with pytest.raises(InvalidCursor):
        stage.broker.history.replay(["a"], stage.broker.history.cursor(2))


async def read_to_head(replay: Replay, limit_bytes: int = ALL) -> Chunk:
    """All chunks up to the head as one."""
    chunks = [await replay.read(limit_bytes)]
    while not chunks[-1].statement.is_at_head:
        chunks.append(await replay.read(limit_bytes))
        assert chunks[-2].statement.next == chunks[-1].statement.after
    lost = tuple(one for chunk in chunks for one in chunk.statement.missing)
    gaps = tuple(gap for chunk in chunks for gap in chunk.statement.gaps)
    served = sum(chunk.statement.served for chunk in chunks)
    statement = replace(chunks[-1].statement, served=served, missing=lost, gaps=gaps)
    return Chunk(tuple(run for chunk in chunks for run in chunk.runs), statement)


async def test_what_is_evicted_between_two_chunks_is_reported_exactly() -> None:
    stage, sender = stage_with_ring(RUNS_AHEAD + 3)
    for payload in numbers(1, RUNS_AHEAD + 3):
        sender.publish("a", payload)
    replay = stage.broker.history.replay(["a"], stage.broker.history.cursor(0))
    assert payloads(await replay.read(1)) == numbers(1, 1)
    for payload in numbers(RUNS_AHEAD + 4, 100):
        sender.publish("a", payload)
    chunk = await read_to_head(replay)
    oldest = 100 - (RUNS_AHEAD + 3) + 1
    assert payloads(chunk) == numbers(2, RUNS_AHEAD) + numbers(oldest, 100)
    assert missing(chunk) == [("a", RUNS_AHEAD + 1, oldest - 1, "evicted")]


async def test_a_loss_that_a_chunk_did_not_reach_is_told_by_a_later_one_and_only_once() -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 3):
        sender.publish("early", payload)
    for payload in numbers(1, 5):
        sender.publish("late", payload)
    replay = stage.broker.history.replay(["+"], stage.broker.history.cursor(0))
    first = await replay.read(1)
    assert (payloads(first), missing(first)) == (numbers(1, 1), [])
    second = await replay.read(ALL)
    assert missing(second) == [("late", None, 2, "evicted")]
    assert missing(await replay.read(ALL)) == []


async def test_topics_that_are_new_since_the_replay_began_are_part_of_it() -> None:
    stage, sender = stage_with_ring(100)
    sender.publish("a", b"001")
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0))
    assert payloads(await replay.read(ALL)) == [b"001"]
    sender.publish("b", b"002")
    assert payloads(await replay.read(ALL)) == [b"002"]


async def test_many_topics_are_looked_at_in_slices() -> None:
    stage, sender = stage_with_ring(1)
    count = TOPICS_A_SLICE + 5
    for number in range(count):
        sender.publish(f"a/{number}", b"x")
    replay = stage.broker.history.replay(["a/+"], stage.broker.history.cursor(0))
    assert replay.look()
    assert not replay.look()
    assert len((await replay.read(ALL)).runs) == count


async def test_reading_to_the_head_and_subscribing_in_the_same_turn_leaves_no_hole_and_no_double() -> None:
    stage, sender = stage_with_ring(100)
    reader, other = stage.client("r"), stage.client("o")
    other.subscribe("a")
    for payload in numbers(1, 3):
        sender.publish("a", payload)
    stage.settle()
    for payload in numbers(4, 5):
        sender.publish("a", payload)  # published, and not flushed yet
    chunk = await stage.broker.history.replay(["a"], stage.broker.history.cursor(0)).read(ALL)
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


async def test_a_kept_topic_is_read_from_the_log_beyond_its_ring() -> None:
    stage, sender = kept_stage(ring=2)
    for payload in numbers(1, 6):
        sender.publish("kept/a", payload)
        sender.publish("other", payload)
    history = stage.broker.history
    assert [run.payload() for run in await history.last("kept/a", 4)] == numbers(3, 6)
    chunk = await history.replay(["#"], history.cursor(0)).read(ALL)
    assert [run.payload() for run in chunk.runs if run.topic == "kept/a"] == numbers(1, 6)
    assert missing(chunk) == [("other", None, 4, "evicted")]


async def test_kept_and_other_topics_are_served_in_one_order() -> None:
    stage, sender = kept_stage()
    for number, topic in enumerate(("kept/a", "other", "kept/b", "kept/a", "other")):
        sender.publish(topic, str(number).encode())
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0))
    got: list[bytes] = []
    while not (chunk := await replay.read(2)).statement.is_at_head:
        got += payloads(chunk)
    assert got + payloads(chunk) == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_left_the_log_by_retention_is_reported() -> None:
    stage, sender = kept_stage(memory_bytes=3 * 300)
    for payload in numbers(1, 9):
        sender.publish("kept/a", payload)
    stage.settle()  # into the log
    kept = [run.payload() for run in (await stage.log.read(0, ALL)).runs]
    assert 0 < len(kept) < 9
    gone = 9 - len(kept)
    chunk = await stage.broker.history.since_sequence("kept/a", 1)
    assert payloads(chunk) == kept
    assert missing(chunk) == [("kept/a", 2, gone, "retention")]
    replay = await stage.broker.history.replay(["kept/a"], stage.broker.history.cursor(2)).read(ALL)
    assert (payloads(replay), missing(replay)) == (kept, [("kept/a", 3, gone, "retention")])


async def test_retention_between_two_chunks_is_reported() -> None:
    stage, sender = kept_stage(memory_bytes=4 * 300, ring=1)
    for payload in numbers(1, 3):
        sender.publish("kept/a", payload)
    stage.settle()  # into the log
    replay = stage.broker.history.replay(["kept/a"], stage.broker.history.cursor(0))
    assert payloads(await replay.read(1)) == numbers(1, 1)
    for payload in numbers(4, 9):
        sender.publish("kept/a", payload)
    stage.settle()  # into the log
    chunk = await replay.read(ALL)
    first = chunk.runs[0].sequence
    assert first > 2
    assert missing(chunk) == [("kept/a", 2, first - 1, "retention")]
    assert [run.sequence for run in chunk.runs] == list(range(first, 10))


async def test_a_kept_topic_that_lost_nothing_is_not_said_to_miss_something() -> None:
    stage, sender = kept_stage(memory_bytes=3 * 300)
    sender.publish("kept/quiet", b"001")
    cursor = stage.broker.history.cursor()
    for payload in numbers(1, 9):
        sender.publish("kept/busy", payload)
    chunk = await stage.broker.history.replay(["kept/quiet"], cursor).read(ALL)
    assert (chunk.runs, missing(chunk)) == ((), [])


# Very many topics


async def test_a_replay_over_many_rings_reads_each_of_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, sender = stage_with_ring(10)
    count = 3 * RINGS_A_SLICE
    for number in range(3 * count):
        sender.publish(f"a/{number % count}", b"%d" % number)
    looks: list[RingSource] = []
    fill = RingSource.fill

    def counted(source: RingSource) -> None:
        looks.append(source)
        fill(source)

    sweeps: list[RingSources] = []
    find_news = RingSources.news

    def counted_sweep(rings: RingSources) -> list[RingSource]:
        sweeps.append(rings)
        return find_news(rings)

    monkeypatch.setattr(RingSource, "fill", counted)
    monkeypatch.setattr(RingSources, "news", counted_sweep)
    replay = stage.broker.history.replay(["a/+"], stage.broker.history.cursor(0))
    chunk = await read_to_head(replay, LEAST_BYTES)
    assert payloads(chunk) == [b"%d" % number for number in range(3 * count)]
    assert len(looks) == count
    assert len(sweeps) <= 4
    sender.publish("a/7", b"new")
    assert payloads(await replay.read(ALL)) == [b"new"]
    assert len(looks) == count + 1


async def test_topics_that_are_forgotten_meanwhile_do_not_hide_others() -> None:
    stage, sender = stage_with_ring(3)
    for number in range(5):
        for _ in range(9):
            sender.publish(f"gone/{number}", b"x")
    sender.publish("stays", b"001")
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(45))
    assert payloads(await replay.read(ALL)) == [b"001"]
    for topic in stage.broker.topics.values():
        assert topic.ring is not None
        topic.ring.clear()
    assert stage.broker.topics.forget_unused() == 6
    other = stage.client("other")
    for name in ("new/1", "stays", "new/2"):
        other.publish(name, b"002")
    chunk = await replay.read(ALL)
    assert [(run.topic, run.payload()) for run in chunk.runs] == [
        ("new/1", b"002"),
        ("stays", b"002"),
        ("new/2", b"002"),
    ]
    assert missing(chunk) == []  # its sequence went on elsewhere


async def test_a_reader_of_many_rings_reaches_the_head_although_they_go_on() -> None:
    stage, sender = stage_with_ring(50)
    reader = stage.client("r")
    topics = 3 * RINGS_A_SLICE
    sent = 0

    def publish(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            sent += 1
            sender.publish(f"a/{sent * 7 % topics}", b"%05d" % sent)

    publish(2 * topics)

    async def go_on() -> None:
        nonlocal topics
        while True:
            topics += 1  # a new one in every turn
            publish(9)
            stage.settle()
            await asyncio.sleep(0)

    publishing = asyncio.create_task(go_on())
    replay = stage.broker.history.replay(["a/#"], stage.broker.history.cursor(0))
    got = payloads(chunk := await replay.read(100 * LEAST_BYTES))
    while not chunk.statement.is_at_head:
        got += payloads(chunk := await replay.read(100 * LEAST_BYTES))
        assert missing(chunk) == []
        assert sent < 10_000
    reader.subscribe("a/#")  # in the same turn
    publishing.cancel()
    publish(50)
    stage.settle()
    assert got + reader.take_payloads() == [b"%05d" % number for number in range(1, sent + 1)]


# What the log has lost


class PatchyLog(MemoryLog):
    """A log that has lost some of what it was given, and knows it."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.lost: list[Gap] = []

    async def read(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        span = await super().read(after, limit_bytes, wanted)
        gaps = [
            Gap(max(gap.first, after + 1), min(gap.last, span.until), gap.reason)
            for gap in self.lost
            if gap.last > after and gap.first <= span.until
        ]
        runs = [run for run in span.runs if not any(gap.first <= run.offset <= gap.last for gap in self.lost)]
        return Span(tuple(runs), span.until, tuple(gaps))


def patchy_stage() -> tuple[Stage, Client, PatchyLog]:
    log = PatchyLog()
    stage = Stage(CoreSettings(log=LogSettings(capture=("kept/#",)), ring=RingSettings(messages=1)), log=log)
    return stage, stage.client("s"), log


@pytest.mark.parametrize("reason", [Reason.DAMAGED, Reason.NEVER_STORED])
@pytest.mark.parametrize("limit_bytes", [1, ALL])
async def test_a_hole_in_the_log_is_told_with_its_offsets_and_what_is_missing_of_each_topic(
    reason: Reason, limit_bytes: int
) -> None:
    stage, sender, log = patchy_stage()
    for number in range(1, 13):
        sender.publish(f"kept/{'ab'[number % 2]}", b"%03d" % number)
    stage.settle()  # into the log
    log.lost = [Gap(4, 8, reason)]
    chunk = await read_to_head(
        stage.broker.history.replay(["kept/#"], stage.broker.history.cursor(1)), limit_bytes
    )
    assert payloads(chunk) == [b"%03d" % number for number in (2, 3, 9, 10, 11, 12)]
    assert missing(chunk) == [("kept/b", 3, 4, str(reason)), ("kept/a", 2, 4, str(reason))]
    told = {offset for gap in chunk.statement.gaps for offset in range(gap.first, gap.last + 1)}
    assert told == set(range(4, 9))
    assert {gap.reason for gap in chunk.statement.gaps} == {reason}
    assert not chunk.statement.is_complete


@pytest.mark.parametrize("reopen", [False, True])
async def test_a_chunk_that_ends_within_a_hole_tells_what_it_has_passed_of_it(reopen: bool) -> None:
    stage, sender, log = patchy_stage()
    for topic in ("kept/a", "kept/a", *(f"other/{number}" for number in range(6)), "kept/a"):
        sender.publish(topic, b"x")
    stage.settle()  # into the log
    log.lost = [Gap(2, 8, Reason.DAMAGED)]
    history = stage.broker.history
    replay = history.replay(["#"], history.cursor(0))
    chunks = [await replay.read(2 * LEAST_BYTES)]
    while not chunks[-1].statement.is_at_head:
        if reopen:
            replay = history.replay(["#"], chunks[-1].statement.next)
        chunks.append(await replay.read(2 * LEAST_BYTES))
    told = [gap for chunk in chunks for gap in chunk.statement.gaps]
    assert [offset for gap in told for offset in range(gap.first, gap.last + 1)] == list(range(2, 9))
    assert [gap.last for gap in chunks[0].statement.gaps] == [3]


async def test_each_hole_has_its_own_reason() -> None:
    stage, sender, log = patchy_stage()
    for payload in numbers(1, 9):
        sender.publish("kept/a", payload)
    stage.settle()  # into the log
    log.lost = [Gap(2, 3, Reason.DAMAGED), Gap(6, 7, Reason.NEVER_STORED)]
    chunk = await stage.broker.history.replay(["#"], stage.broker.history.cursor(0)).read(ALL)
    assert missing(chunk) == [("kept/a", 2, 3, "damaged"), ("kept/a", 6, 7, "never-stored")]


async def test_what_is_lost_at_the_end_is_told_although_nothing_comes_after_it() -> None:
    stage, sender, log = patchy_stage()
    for payload in numbers(1, 4):
        sender.publish("kept/a", payload)
    stage.settle()  # into the log
    log.lost = [Gap(3, 4, Reason.NEVER_STORED)]
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0))
    chunk = await replay.read(ALL)
    assert (payloads(chunk), missing(chunk)) == (numbers(1, 2), [("kept/a", 3, 4, "never-stored")])
    sender.publish("kept/a", b"005")
    chunk = await replay.read(ALL)
    assert (payloads(chunk), missing(chunk), chunk.statement.is_complete) == ([b"005"], [], True)


async def test_a_topic_of_which_nothing_is_known_before_a_hole_may_have_lost_something() -> None:
    stage, sender, log = patchy_stage()
    for topic in ("kept/a", "kept/b", "kept/b", "kept/a", "kept/c"):
        sender.publish(topic, b"x")
    stage.settle()  # into the log
    log.lost = [Gap(3, 3, Reason.DAMAGED)]
    for topic in ("kept/b", "kept/c"):
        sender.publish(topic, b"y")  # the rings forget what was before
    chunk = await stage.broker.history.replay(["#"], stage.broker.history.cursor(2)).read(ALL)
    assert missing(chunk) == [("kept/a", None, 1, "damaged"), ("kept/b", None, 2, "damaged")]


async def test_one_topic_is_told_exactly_what_it_has_lost_and_nothing_of_others() -> None:
    stage, sender, log = patchy_stage()
    for topic in ("kept/a", "kept/b", "kept/a", "kept/b", "kept/a"):
        sender.publish(topic, b"x")
    stage.settle()  # into the log
    log.lost = [Gap(2, 2, Reason.DAMAGED), Gap(5, 5, Reason.NEVER_STORED)]
    chunk = await stage.broker.history.since_sequence("kept/a", 0)
    assert ([run.sequence for run in chunk.runs], missing(chunk)) == (
        [1, 2],
        [("kept/a", 3, 3, "never-stored")],
    )
    assert chunk.statement.gaps == ()
    chunk = await stage.broker.history.since_sequence("kept/b", 0)
    assert ([run.sequence for run in chunk.runs], missing(chunk)) == ([2], [("kept/b", 1, 1, "damaged")])


async def test_the_last_messages_are_those_before_a_hole_too() -> None:
    stage, sender, log = patchy_stage()
    for payload in numbers(1, 20):
        sender.publish("kept/a", payload)
    stage.settle()  # into the log
    log.lost = [Gap(6, 19, Reason.DAMAGED)]
    assert [run.sequence for run in await stage.broker.history.last("kept/a", 3)] == [4, 5, 20]
    assert len(await stage.broker.history.last("kept/a", 99)) == 6


# Between two sequences, and from a time on


@pytest.mark.parametrize("topic", ["kept/a", "other"])
@pytest.mark.parametrize(
    ("first", "last", "served", "at_head"),
    [
        (2, 4, [2, 3, 4], False),
        (0, 1, [1], False),
        (7, 99, [7, 8], True),
        (9, 12, [], True),
        (5, 4, [], True),
    ],
)
async def test_a_range_of_sequences_is_read_exactly(
    topic: str, first: int, last: int, served: list[int], at_head: bool
) -> None:
    stage, sender = kept_stage()
    for number in range(4):
        sender.publish(topic, b"%d" % (2 * number + 1), b"%d" % (2 * number + 2))
        sender.publish("kept/b", b"x")
    history = stage.broker.history
    chunk = await history.between(topic, first, last)
    assert [int(payload) for payload in payloads(chunk)] == served
    assert (missing(chunk), chunk.statement.served) == ([], len(served))
    assert chunk.statement.is_at_head is at_head
    rest = await history.replay([topic], chunk.statement.next).read(ALL)
    assert [int(payload) for payload in payloads(rest)] == (list(range(served[-1] + 1, 9)) if served else [])


async def test_what_is_missing_of_a_range_is_within_it() -> None:
    stage, sender = stage_with_ring(3)
    for payload in numbers(1, 10):
        sender.publish("a", payload)
    chunk = await stage.broker.history.between("a", 4, 8)
    assert (payloads(chunk), missing(chunk)) == (numbers(8, 8), [("a", 4, 7, "evicted")])
    chunk = await stage.broker.history.between("a", 2, 3)
    assert (payloads(chunk), missing(chunk)) == ([], [("a", 2, 3, "evicted")])


@pytest.mark.parametrize("topic", ["kept/a", "other"])
async def test_a_long_range_is_read_in_chunks(topic: str) -> None:
    stage, sender = kept_stage()
    for payload in numbers(1, 50):
        sender.publish(topic, payload)
    got: list[bytes] = []
    chunks = 0
    while len(got) < 50:
        chunk = await stage.broker.history.since_sequence(topic, len(got), limit_bytes=20 * LEAST_BYTES)
        assert len(chunk.runs) <= 20
        got += payloads(chunk)
        chunks += 1
    assert (got, chunks, chunk.statement.is_at_head) == (numbers(1, 50), 3, True)


async def test_everything_since_a_time_is_read() -> None:
    stage, sender = kept_stage()
    times = []
    for payload in numbers(1, 5):
        stage.clock.advance(10.0)
        times.append(stage.clock.wall_us())
        sender.publish("kept/a", payload)
        stage.settle()
    history = stage.broker.history
    for number, at in enumerate(times, start=1):
        chunk = await history.replay(["kept/a"], history.at_time(at)).read(ALL)
        assert payloads(chunk) == numbers(number, 5)
    assert history.at_time(times[-1] + 1) == history.cursor()
    assert history.at_time(0) == history.cursor(0)


# A log that outlives its process


def durable(disk: Disk, stage: Stage | None = None, ring: int = 100) -> tuple[Stage, Client]:
    settings = CoreSettings(log=LogSettings(capture=("kept/#",)), ring=RingSettings(messages=ring))
    stage = Stage(settings, disk=disk, clock=None if stage is None else stage.clock)
    return stage, stage.client("s")


async def test_what_is_published_and_not_committed_yet_is_part_of_a_replay() -> None:
    disk = Disk()
    stage, sender = durable(disk)
    reader = stage.client("r")
    for payload in numbers(1, 3):
        sender.publish("kept/a", payload)
    stage.settle()
    disk.is_stuck = True
    for payload in numbers(4, 5):
        sender.publish("kept/a", payload)
    stage.settle()
    assert stage.log.last_offset == 3
    history = stage.broker.history
    assert [run.payload() for run in await history.last("kept/a", 4)] == numbers(2, 5)
    assert payloads(await history.since_sequence("kept/a", 3)) == numbers(4, 5)
    chunk = await history.replay(["#"], history.cursor(0)).read(ALL)
    assert (payloads(chunk), chunk.statement.is_at_head) == (numbers(1, 5), True)
    reader.subscribe("kept/a")
    for payload in numbers(6, 7):
        sender.publish("kept/a", payload)
    stage.settle()
    disk.sync()
    stage.settle()
    assert reader.take_payloads() == numbers(6, 7)


async def test_the_next_process_reads_topics_that_nobody_has_used_in_it() -> None:
    disk = Disk()
    stage, sender = durable(disk)
    for payload in numbers(1, 5):
        sender.publish("kept/a", payload)
    stage.settle()
    disk.crash()
    stage, _ = durable(disk, stage)
    history = stage.broker.history
    assert "kept/a" not in stage.broker.topics
    assert payloads(await history.replay(["kept/#"], history.cursor(0)).read(ALL)) == numbers(1, 5)
    assert [run.payload() for run in await history.last("kept/a", 2)] == numbers(4, 5)
    assert payloads(await history.between("kept/a", 2, 3)) == numbers(2, 3)
    assert "kept/a" not in stage.broker.topics


async def test_what_was_read_but_never_committed_is_told_to_whoever_comes_back_with_it() -> None:
    disk = Disk()
    stage, sender = durable(disk)
    for payload in numbers(1, 3):
        sender.publish("kept/a", payload)
    stage.settle()
    safe = stage.broker.history.cursor()
    disk.is_stuck = True
    for payload in numbers(4, 6):
        sender.publish("kept/a", payload)
    stage.settle()
    lost = stage.broker.history.cursor()
    disk.crash()
    disk.is_stuck = False
    stage, sender = durable(disk, stage)
    chunk = await stage.broker.history.since_sequence("kept/a", 6, epoch=1)
    assert (payloads(chunk), missing(chunk)) == ([], [("kept/a", 4, 6, "lost-uncommitted")])
    for payload in (b"104", b"105"):  # the same sequences, given to others
        sender.publish("kept/a", payload)
    stage.settle()
    history = stage.broker.history

    chunk = await history.replay(["#"], lost).read(ALL)
    assert payloads(chunk) == [b"104", b"105"]
    assert chunk.statement.gaps == (Gap(4, 6, Reason.LOST_UNCOMMITTED),)
    chunk = await history.replay(["#"], safe).read(ALL)
    assert (payloads(chunk), chunk.statement.is_complete) == ([b"104", b"105"], True)
    assert (await history.replay(["#"], history.cursor(4)).read(ALL)).statement.gaps == ()

    chunk = await history.since_sequence("kept/a", 6, epoch=1)
    assert (payloads(chunk), missing(chunk)) == ([b"104", b"105"], [("kept/a", 4, 6, "lost-uncommitted")])
    chunk = await history.since_sequence("kept/a", 3, epoch=1)
    assert (payloads(chunk), missing(chunk)) == ([b"104", b"105"], [])
    chunk = await history.since_sequence("kept/a", 4, epoch=2)
    assert (payloads(chunk), missing(chunk)) == ([b"105"], [])


async def test_a_cursor_of_an_epoch_to_come_is_refused() -> None:
    stage, sender = durable(Disk())
    sender.publish("kept/a", b"x")
    with pytest.raises(InvalidCursor, match="ahead"):
        stage.broker.history.replay(["#"], Cursor((Position(stage.log.log_id, 2, 0),)))


async def test_a_topic_that_is_kept_only_for_someone_is_read_from_log_and_ring_without_doubles() -> None:
    stage, sender = durable(Disk(), ring=3)
    stage.client("away", clean=False, expiry=100.0).subscribe("some", qos=1)
    for number in range(1, 13):
        sender.publish("some", b"%03d" % number, qos=1 if number in (2, 5, 11) else 0)
        if number == 6:
            stage.settle()
    history = stage.broker.history
    for limit_bytes in (1, ALL):
        chunk = await read_to_head(history.replay(["some"], history.cursor(0)), limit_bytes)
        assert payloads(chunk) == [b"%03d" % number for number in (2, 5, 10, 11, 12)]
        assert [(first, last) for _, first, last, _ in missing(chunk)] == [(None, 1), (3, 4), (6, 9)]
        assert chunk.statement.served == len(chunk.runs) == 5
        stage.settle()


# A reader that comes to the head while it moves on


class SlowLog(MemoryLog):
    """A log that commits a turn after it was given something, and takes several turns to read."""

    def __init__(self, turns: int) -> None:
        super().__init__(1 << 20)
        self._turns = turns
        self._waiting: list[Turn] = []

    def commit(self, turn: Turn) -> None:
        self._waiting.append(turn)
        asyncio.get_running_loop().call_soon(self._commit, turn)

    def _commit(self, turn: Turn) -> None:
        self._waiting.remove(turn)
        super().commit(turn)

    def uncommitted(self, after: int) -> list[Run]:
        turns = (*self._waiting, self.sequencer.turn)
        return [run for turn in turns for run in turn.runs if run.offset > after]

    async def read(self, after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        span = await super().read(after, limit_bytes, wanted)
        for _ in range(self._turns):
            await asyncio.sleep(0)
        return span


@pytest.mark.parametrize("limit_bytes", [10 * LEAST_BYTES, ALL])
@pytest.mark.parametrize("turns", range(6))
async def test_a_reader_reaches_the_head_although_something_is_published_in_every_turn(
    turns: int, limit_bytes: int
) -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("a/#",))), log=SlowLog(turns))
    sender, reader = stage.client("s"), stage.client("r")
    sent = 0

    async def publish() -> None:
        nonlocal sent
        while True:
            sent += 1
            sender.publish(f"a/{sent % 3}" if sent % 2 else f"b/{sent}", b"%03d" % sent)
            stage.settle()
            await asyncio.sleep(0)

    publishing = asyncio.create_task(publish())
    await until(lambda: sent >= 20, "fewer than 20 messages were sent", every_s=0)
    replay = stage.broker.history.replay(["#"], stage.broker.history.cursor(0))
    got = payloads(chunk := await replay.read(limit_bytes))
    chunks = 1
    while not chunk.statement.is_at_head:
        got += payloads(chunk := await replay.read(limit_bytes))
        chunks += 1
        assert chunks < 20
    reader.subscribe("#")  # in the same turn
    joined = sent
    await until(lambda: sent >= joined + 20, "fewer than 20 further messages were sent", every_s=0)
    publishing.cancel()
    assert got + reader.take_payloads() == numbers(1, sent)
    assert replay.look() is False


# Against a naive model


Message = tuple[str, int]
"""A topic and a sequence."""


class Reader:
    """Checks each chunk against all that was ever published: nothing twice, no hole that is not told."""

    def __init__(self, stage: Stage, filter: str, start: int, published: dict[Message, int]) -> None:
        self._stage = stage
        self._filter = filter
        self._published = published  # and their offsets
        self._start = start
        self._accounted = {message for message, offset in published.items() if offset <= start}
        self._in_gaps: set[Message] = set()
        self._last_offset = start
        self._replay = self._open(stage.broker.history.cursor(start))
        self.is_at_head = False

    def _open(self, cursor: Cursor) -> Replay:
        return self._stage.broker.history.replay([self._filter], Cursor.decode(cursor.encode()))

    async def read(self, limit_bytes: int, *, reopen: bool) -> None:
        chunk = await self._replay.read(limit_bytes)
        for gap in chunk.statement.gaps:
            gone = {message for message, offset in self._published.items() if gap.first <= offset <= gap.last}
            self._in_gaps |= {message for message in gone if message[0].startswith("kept/")}
        for run in chunk.runs:
            assert run.offset > self._last_offset
            self._last_offset = run.offset + run.count - 1
            self._account(run.topic, range(run.sequence, run.sequence + run.count))
        for lost in chunk.statement.missing:
            self._account_for_lost(lost)
        self.is_at_head = chunk.statement.is_at_head
        if reopen:
            self._replay = self._open(chunk.statement.next)

    def _account(self, topic: str, sequences: Iterable[int]) -> None:
        messages = {(topic, sequence) for sequence in sequences}
        assert not messages & self._accounted, "told twice"
        assert messages <= self._published.keys(), "never published"
        self._accounted |= messages

    def _account_for_lost(self, lost: Missing) -> None:
        topic = lost.topic
        if lost.first is not None:
            sequences = range(lost.first, lost.last + 1)
            self._account(topic, sequences)
            if topic.startswith("kept/") and lost.reason is not Reason.EXPIRED:
                assert {(topic, sequence) for sequence in sequences} <= self._in_gaps
        else:
            everything = {(topic, sequence) for sequence in range(1, lost.last + 1)}
            self._account(topic, {sequence for _, sequence in everything - self._accounted})

    async def finish(self) -> None:
        await self.read(50, reopen=False)
        while not self.is_at_head:
            await self.read(50, reopen=False)
        wanted = {message for message in self._published if matches(self._filter, message[0])}
        assert wanted <= self._accounted | self._in_gaps


TOPICS = ("a", "a/b", "a/c", "d", "kept/e", "kept/f")
FILTERS = ("#", "a/#", "a", "+", "kept/+", "+/b")


@examples(40)
@given(
    ring=st.integers(0, 9),
    memory=st.sampled_from([(3_000, 100_000), (100_000, 700), (3_000, 700), (100_000, 100_000)]),
    journal=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 4), st.booleans()),
            st.tuples(st.just("open"), st.sampled_from(FILTERS), st.integers(0, 10), st.booleans()),
            st.tuples(st.just("read"), st.just(""), st.sampled_from([1, 150, 1_000]), st.booleans()),
            st.tuples(st.just("wait"), st.just(""), st.integers(0, 3), st.booleans()),
        ),
        min_size=10,
        max_size=80,
    ),
)
async def test_served_and_missing_are_together_everything_and_nothing_twice(
    ring: int, memory: tuple[int, int], journal: list[tuple[str, str, int, bool]]
) -> None:
    ring_bytes, log_bytes = memory
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.core.replay.sources.RUNS_AHEAD", 2)
        await play(ring, ring_bytes, log_bytes, journal)


async def play(ring: int, ring_bytes: int, log_bytes: int, journal: list[tuple[str, str, int, bool]]) -> None:
    stage = Stage(
        CoreSettings(
            ring=RingSettings(messages=ring, total_bytes=ring_bytes, partitions=1),
            log=LogSettings(capture=("kept/#",), memory_bytes=log_bytes),
            topics=(TopicRule(filter="kept/#", ring_messages=1_000),),
        )
    )
    sender = stage.client("s")
    published: dict[Message, int] = {}
    readers: list[Reader] = []
    for move, word, number, flag in journal:
        if move == "publish":
            run = sender.publish(word, *[b"x"] * number, ttl=2.0 if flag else 0.0).run
            published |= {(word, run.sequence + index): run.offset + index for index in range(number)}
        elif move == "open":
            start = stage.broker.history.head * number // 10
            readers.append(Reader(stage, word, start, published))
        elif move == "wait":
            stage.clock.advance(number)
        elif readers:
            await readers[-1 if flag else 0].read(number, reopen=flag)
    for reader in readers:
        await reader.finish()


async def test_few_chunks_are_read_at_the_same_time_and_nobody_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=Disk())
    sender = stage.client("s")
    sender.publish("a", b"001")
    stage.settle()
    reading, most, read = 0, 0, stage.log.read

    async def count(after: int, limit_bytes: int, wanted: Wanted | None = None) -> Span:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1
        return await read(after, limit_bytes, wanted)

    monkeypatch.setattr(stage.log, "read", count)
    replays = [stage.broker.history.replay(["#"], stage.broker.history.cursor(0)) for _ in range(10)]
    reads = [asyncio.create_task(replay.read(ALL)) for replay in replays]
    await asyncio.sleep(0)
    reads[7].cancel()
    chunks = await asyncio.gather(*reads[:7], *reads[8:])
    assert [payloads(chunk) for chunk in chunks] == [[b"001"]] * 9
    assert most == READERS
