"""One flush per turn: stretches in order, acknowledgements after them, batches when they are due."""

from collections.abc import Callable

import pytest

from penstock.core.runtime.tick import Stretch, Tick, TrainPart
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings, TopicRule
from penstock.core.subscriptions.audience import Audience, Group
from penstock.core.subscriptions.subscription import Options, Subscription
from penstock.core.topics.registry import Registry
from penstock.core.topics.topic import Topic
from penstock.model import Door, Policy
from penstock.runs import Run, Shape, Train
from tests.support.clock import ManualClock, ManualScheduler
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run, make_session

RULES = (
    TopicRule(filter="batched/#", batch_size=3, batch_timeout_ms=20),
    TopicRule(filter="turn", batch_size=100),
)


class Turns:
    """A tick, and what it delivered: one list of stretches for each flush."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.topics = Registry(CoreSettings(topics=RULES))
        self.tick = Tick(self.clock, self.scheduler)
        self.tick.on_flush = self.deliver
        self.flushes: list[list[Stretch]] = []
        self.on_deliver: Callable[[], None] = lambda: None

    def deliver(self, stretches: list[Stretch]) -> None:
        self.flushes.append(stretches)
        self.on_deliver()

    def topic(self, name: str, audience: Audience[Session] | None = None) -> Topic:
        topic = self.topics.make(name)
        topic.audience = Audience((), ()) if audience is None else audience
        return topic

    def publish(self, topic: Topic, payload: bytes, *more: bytes, qos: int = 0) -> Run:
        """What the broker does: let a run join the last stretch if it may, else begin another."""
        if not self.tick.is_open:
            self.tick.open()
        run = make_run(topic.name, payload, *more, qos=qos)
        last = self.tick.last
        if topic.rules.batch_size or last is None:
            self.tick.add(topic, run)
        elif last.audience is topic.audience and last.shape is run.shape:
            last.runs.append(run)
        else:
            assert self.tick.add(topic, run) is self.tick.last is not last
        return run

    def payloads(self) -> list[list[list[bytes]]]:
        """Slabs by flush and stretch."""
        return [[[run.slab for run in stretch.runs] for stretch in flush] for flush in self.flushes]


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_everything_of_a_turn_leaves_together_and_once(turns: Turns) -> None:
    topic = turns.topic("a")
    turns.publish(topic, b"1")
    turns.publish(topic, b"2")
    assert turns.flushes == []
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"1", b"2"]]]
    turns.scheduler.settle()
    assert len(turns.flushes) == 1


def test_consecutive_runs_of_one_audience_and_shape_make_a_stretch(turns: Turns) -> None:
    same = Audience[Session]((), ())
    one, other = turns.topic("a", same), turns.topic("b", same)
    stranger = turns.topic("c")
    turns.publish(one, b"1")
    turns.publish(other, b"2")
    turns.publish(stranger, b"3")
    turns.publish(one, b"4")
    turns.publish(one, b"5", qos=1)
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"1", b"2"], [b"3"], [b"4"], [b"5"]]]
    first, second, _, last = turns.flushes[0]
    assert first.audience is same
    assert second.audience is stranger.audience
    assert (first.shape.qos, last.shape.qos) == (0, 1)


def test_a_stretch_ends_with_its_turn(turns: Turns) -> None:
    topic = turns.topic("a")
    turns.publish(topic, b"1")
    turns.scheduler.turn()
    assert turns.tick.last is None
    turns.publish(topic, b"2")
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"1"]], [[b"2"]]]


def test_a_turn_has_one_time(turns: Turns) -> None:
    turns.tick.open()
    opened = turns.clock.wall_us()
    turns.clock.advance(1)
    assert turns.tick.wall_us == opened
    turns.scheduler.turn()
    turns.tick.open()
    assert turns.tick.wall_us == opened + 1_000_000


def test_who_waits_for_a_turn_is_called_after_its_deliveries(turns: Turns) -> None:
    events: list[str] = []
    turns.on_deliver = lambda: events.append("delivered")
    turns.publish(turns.topic("a"), b"1")
    turns.tick.after(lambda: events.append("acknowledged"))
    turns.scheduler.settle()
    assert events == ["delivered", "acknowledged"]


def test_who_waits_is_called_even_if_nothing_was_published(turns: Turns) -> None:
    events: list[str] = []
    turns.tick.after(lambda: events.append("called"))
    assert events == []
    turns.scheduler.settle()
    assert events == ["called"]
    assert turns.flushes == []


def test_what_is_published_while_delivering_leaves_with_the_next_turn(turns: Turns) -> None:
    topic = turns.topic("a")

    def publish_once() -> None:
        turns.on_deliver = lambda: None
        turns.publish(topic, b"2")

    turns.on_deliver = publish_once
    turns.publish(topic, b"1")
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"1"]]]
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"1"]], [[b"2"]]]


# Topics that are gathered


def test_a_batch_leaves_when_it_has_its_size(turns: Turns) -> None:
    topic = turns.topic("batched/a")
    turns.publish(topic, b"1")
    turns.publish(topic, b"2")
    turns.scheduler.settle()
    assert turns.flushes == []
    turns.publish(topic, b"3")
    turns.scheduler.settle()
    assert turns.payloads() == [[[b"1", b"2", b"3"]]]
    assert turns.scheduler.timers == 0


def test_a_run_of_many_counts_each_of_its_messages(turns: Turns) -> None:
    topic = turns.topic("batched/a")
    turns.publish(topic, b"1", b"2", b"3")
    turns.scheduler.settle()
    assert turns.payloads() == [[[b"123"]]]


def test_a_batch_leaves_when_its_time_is_over(turns: Turns) -> None:
    topic = turns.topic("batched/a")
    turns.publish(topic, b"1")
    turns.scheduler.advance(0.01)
    turns.publish(topic, b"2")
    turns.scheduler.advance(0.009)
    assert turns.flushes == []
    turns.scheduler.advance(0.001)
    assert turns.payloads() == [[[b"1", b"2"]]]
    turns.publish(topic, b"3")  # the next batch has a time of its own
    turns.scheduler.advance(0.019)
    assert len(turns.flushes) == 1
    turns.scheduler.advance(0.001)
    assert turns.payloads()[1:] == [[[b"3"]]]


def test_batches_of_two_topics_do_not_wait_for_each_other(turns: Turns) -> None:
    one, other = turns.topic("batched/a"), turns.topic("batched/b")
    turns.publish(one, b"1")
    turns.publish(other, b"2", b"3", b"4")
    turns.publish(turns.topic("quick"), b"5")
    turns.scheduler.settle()
    assert turns.payloads() == [[[b"234"], [b"5"]]]
    turns.scheduler.advance(0.02)
    assert turns.payloads()[1:] == [[[b"1"]]]


def test_a_batch_without_a_time_waits_for_one_turn_only(turns: Turns) -> None:
    turns.publish(turns.topic("turn"), b"1")
    turns.scheduler.settle()
    assert turns.payloads() == [[[b"1"]]]


def test_nothing_is_left_behind_at_the_close(turns: Turns) -> None:
    events: list[str] = []
    turns.publish(turns.topic("a"), b"1")
    turns.publish(turns.topic("batched/a"), b"2")
    turns.tick.after(lambda: events.append("called"))
    turns.tick.close()
    assert turns.payloads() == [[[b"1"], [b"2"]]]
    assert events == ["called"]
    turns.scheduler.advance(1)
    assert len(turns.flushes) == 1


def test_nothing_is_gathered_while_somebody_goes_by_cursors(turns: Turns) -> None:
    """A later message of another topic would carry its cursor past those that wait."""
    topic = turns.topic("batched/a")
    turns.publish(topic, b"1")
    topic.audience = wanting(0, has_cursor=True)
    turns.publish(topic, b"2")
    turns.publish(topic, b"3")
    turns.publish(turns.topic("quick"), b"4")
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"1"], [b"2", b"3"], [b"4"]]]


# Those who come and go between publishing and the flush


def test_what_was_published_before_someone_comes_leaves_first(turns: Turns) -> None:
    turns.publish(turns.topic("a"), b"1")
    turns.publish(turns.topic("batched/a"), b"2")
    turns.publish(turns.topic("batched/b"), b"3")
    turns.tick.settle()
    assert [payload for flush in turns.payloads() for stretch in flush for payload in stretch] == [
        b"1",
        b"2",
        b"3",
    ]
    turns.scheduler.advance(0.02)
    assert len(turns.payloads()) == 1


def test_nothing_is_flushed_for_a_newcomer_when_nothing_waits(turns: Turns) -> None:
    turns.tick.settle()
    assert turns.flushes == []
    assert turns.scheduler.pending == 0


# A chunk that comes alone


def test_a_chunk_that_comes_alone_begins_a_turn_that_its_door_ends(turns: Turns) -> None:
    assert turns.tick.open_alone(10.0)
    assert turns.tick.is_open
    assert turns.scheduler.pending == 0
    turns.publish(turns.topic("a"), b"1")
    turns.tick.flush()
    assert turns.payloads() == [[[b"1"]]]
    assert not turns.tick.is_open


def test_chunks_that_come_close_together_share_a_flush(turns: Turns) -> None:
    assert turns.tick.open_alone(10.0)
    turns.tick.flush()
    assert not turns.tick.open_alone(10.0)
    turns.publish(turns.topic("a"), b"1")
    assert not turns.tick.open_alone(10.001)  # the turn that is open is not ended by somebody else
    turns.publish(turns.topic("a"), b"2")
    turns.scheduler.settle()
    assert len(turns.flushes) == 1


# A durable log


def wanting(qos: int, *, has_cursor: bool = False) -> Audience[Session]:
    """An audience of one who wants messages at this QoS."""
    group, encoding = Group[Session]("x"), PlainEncoding(qos=qos, has_cursor=has_cursor)
    group.join(make_session("r"), Subscription("x", Options(qos), encoding, Policy.DROP_NEWEST))
    return Audience((group,), ())


def test_with_a_durable_log_nothing_is_gathered_that_is_stored(turns: Turns) -> None:
    turns.tick.is_durable = True
    topic = turns.topic("batched/a")
    turns.publish(topic, b"0")
    turns.scheduler.turn()
    assert turns.payloads() == []
    turns.publish(topic, b"1", qos=1)
    turns.publish(topic, b"2")
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"0"], [b"1"]]]  # what was gathered before is not overtaken
    turns.scheduler.advance(0.02)
    assert turns.payloads()[1:] == [[[b"2"]]]


def test_a_turn_ends_after_its_deliveries_and_whoever_waited_for_them(turns: Turns) -> None:
    events: list[str] = []
    turns.on_deliver = lambda: events.append("delivered")
    turns.tick.on_end = lambda: events.append("ended")
    turns.publish(turns.topic("a"), b"1")
    turns.tick.after(lambda: events.append("called"))
    turns.scheduler.turn()
    assert events == ["delivered", "called", "ended"]


def test_what_is_done_while_a_turn_ends_belongs_to_it(turns: Turns) -> None:
    seen: list[bool] = []
    turns.on_deliver = lambda: seen.append(turns.tick.is_ending)
    turns.tick.on_end = lambda: seen.append(turns.tick.is_ending)
    turns.publish(turns.topic("a"), b"1")
    turns.tick.after(lambda: seen.append(turns.tick.is_ending))
    turns.scheduler.turn()
    assert seen == [True, True, False]


@pytest.mark.parametrize("where", ["delivering", "calling back"])
def test_a_turn_ends_whatever_goes_wrong_in_it(turns: Turns, where: str) -> None:
    ended: list[bool] = []

    def fail() -> None:
        raise ZeroDivisionError

    if where == "delivering":
        turns.on_deliver = fail
    else:
        turns.tick.after(fail)
    turns.tick.on_end = lambda: ended.append(turns.tick.is_ending)
    turns.publish(turns.topic("a"), b"1")
    with pytest.raises(ZeroDivisionError):
        turns.scheduler.turn()
    assert ended == [False]


def test_what_had_to_be_stored_and_could_not_be_is_not_delivered(turns: Turns) -> None:
    stored, other = turns.topic("a", wanting(1)), turns.topic("b", wanting(0))
    called: list[str] = []
    turns.publish(stored, b"0")
    turns.publish(stored, b"1", qos=1)
    turns.publish(other, b"2", qos=1)
    turns.tick.after(lambda: called.append("after"))
    turns.tick.take_back()
    assert called == ["after"]
    turns.publish(other, b"3", qos=1)
    turns.scheduler.turn()
    assert turns.payloads() == [[[b"0"], [b"2"], [b"3"]]]
    assert called == ["after"]


def test_whoever_waits_is_called_though_another_one_fails(turns: Turns) -> None:
    called: list[str] = []

    def fail() -> None:
        raise ValueError("of one")

    turns.tick.after(lambda: called.append("before"))
    turns.tick.after(fail)
    turns.tick.after(lambda: called.append("behind"))
    with pytest.raises(ValueError, match="of one"):
        turns.tick.flush()
    assert called == ["before", "behind"]


def audience_of(count: int) -> Audience[Session]:
    group: Group[Session] = Group("#")
    for number in range(count):
        group.join(
            make_session(f"c{number}"),
            Subscription("#", Options(0), PlainEncoding(qos=0), Policy.DROP_NEWEST, 0),
        )
    return Audience((group,), ())


@pytest.mark.parametrize(("subscribers", "is_flushed"), [(1, False), (100, True)])
def test_a_long_input_is_flushed_after_fewer_messages_if_they_have_many_subscribers(
    turns: Turns, subscribers: int, is_flushed: bool
) -> None:
    audiences = [audience_of(subscribers) for _ in range(50)]  # no two messages share a stretch
    for number in range(100):
        turns.publish(turns.topic(f"t/{number}", audiences[number % 50]), b"x")
    turns.tick.flush_part(100)
    assert bool(turns.flushes) is is_flushed


def test_a_flush_to_many_subscribers_that_takes_long_makes_the_next_one_smaller(turns: Turns) -> None:
    topic = turns.topic("t", audience_of(100))
    turns.on_deliver = lambda: turns.clock.advance(1.0)
    for _ in range(2):
        for _ in range(50):
            turns.publish(topic, b"x")
            turns.tick.flush_part(1)
    sizes = [sum(len(stretch.runs) for stretch in flush) for flush in turns.flushes]
    assert sizes[0] > 1
    assert set(sizes[1:]) == {1}


def test_a_part_of_a_train_is_a_stretch_whose_runs_have_their_stamps(turns: Turns) -> None:
    shape = Shape("layout", Door.MQTT, 0, retain=False, is_plain=True)
    frames = [b"1:a", b"1:bcd", b"1:e", b"1:fg"]
    ends = [3, 8, 11, 15]
    train = Train(shape, b"".join(frames), ["x", "y", "x", "z"], [2] * 4, ends)
    audience: Audience[Session] = Audience((), ())
    part = TrainPart(train, 1, "client", 41, 1_000)
    part.topics += [turns.topic("y", audience), turns.topic("x", audience)]
    part.sequences += [7, 90]
    run = turns.publish(turns.topic("x", audience), b"before")
    turns.tick.add_part(part)
    assert turns.tick.first_offset == min(run.offset, 41)
    turns.publish(turns.topic("x", audience), b"behind")
    turns.tick.flush()
    [[before, stretch, behind]] = turns.flushes
    assert [len(before), len(stretch), len(behind)] == [1, 2, 1]  # no run has joined the part
    assert (part.slab, part.longest, stretch.first_offset) == (b"1:bcd1:e", 5, 41)
    first, second = stretch.as_runs()
    assert (first.topic, first.slab, first.payload()) == ("y", b"1:bcd", b"bcd")
    assert (first.offset, first.sequence) == (41, 7)
    assert (second.topic, second.slab, second.payload()) == ("x", b"1:e", b"e")
    assert (second.offset, second.sequence) == (42, 90)
    assert {(each.client_id, each.published_at, each.shape, each.count) for each in (first, second)} == {
        ("client", 1_000, shape, 1)
    }
    assert stretch.as_runs() is stretch.as_runs()
