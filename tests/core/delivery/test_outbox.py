"""What waits for one subscriber, compared with a plain list of single messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from penstock.core.delivery.outbox import Outbox
from penstock.core.delivery.policy import Decision, Limits
from penstock.model import Policy
from penstock.runs import NEVER, Run
from tests.support.encodings import PlainEncoding
from tests.support.examples import examples
from tests.support.samples import make_run, payloads_of

FORM = PlainEncoding()
WIDE = Limits(1_000, 1_000_000)


class Message(Struct, frozen=True):
    """One message, as the model knows it."""

    sequence: int
    payload: bytes
    expires_at: float = NEVER


def messages_of(run: Run) -> list[Message]:
    """A run taken apart."""
    return [
        Message(run.sequence + index, payload, run.expires_at)
        for index, payload in enumerate(payloads_of(run))
    ]


class ListOutbox:
    """The model: single messages in a list, looked at one by one."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: list[Message] = []

    @property
    def bytes(self) -> int:
        return sum(len(message.payload) for message in self.waiting)

    def is_over(self) -> bool:
        return len(self.waiting) > self.limits.messages or self.bytes > self.limits.bytes

    def fits(self, messages: list[Message]) -> bool:
        size = sum(len(message.payload) for message in messages)
        count = len(self.waiting) + len(messages)
        return count <= self.limits.messages and self.bytes + size <= self.limits.bytes

    def add(self, messages: list[Message], policy: Policy) -> list[Message]:
        """Take messages one after the other; answer those that were dropped."""
        if policy is Policy.DISCONNECT and not self.fits(messages):
            return messages
        dropped: list[Message] = []
        for message in messages:
            if policy is Policy.DROP_NEWEST and not self.fits([message]):
                dropped.append(message)
                continue
            self.waiting.append(message)
            if policy is Policy.DROP_OLDEST:
                dropped += self.shrink()
        return dropped

    def shrink(self) -> list[Message]:
        dropped = []
        while self.is_over():
            dropped.append(self.waiting.pop(0))
        return dropped

    def remove_expired(self, now: float) -> list[Message]:
        gone = [message for message in self.waiting if NEVER < message.expires_at <= now]
        self.waiting = [message for message in self.waiting if message not in gone]
        return gone


class Add(Struct, frozen=True):
    count: int
    size: int
    policy: Policy
    lifetime: int


class Offer(Struct, frozen=True):
    count: int
    size: int
    lifetime: int


class AddFirst(Struct, frozen=True):
    count: int
    size: int


class Take(Struct, frozen=True):
    limit_bytes: int


class Shrink(Struct, frozen=True):
    pass


class Wait(Struct, frozen=True):
    seconds: int


Step = Add | Offer | AddFirst | Take | Shrink | Wait
counts, sizes, lifetimes = st.integers(1, 5), st.integers(0, 4), st.sampled_from((0, 0, 0, 1, 2, 5))
steps = st.one_of(
    st.builds(Add, counts, sizes, st.sampled_from(Policy), lifetimes),
    st.builds(Add, counts, sizes, st.sampled_from(Policy), lifetimes),
    st.builds(Offer, counts, sizes, lifetimes),
    st.builds(AddFirst, counts, sizes),
    st.builds(Take, st.integers(0, 12)),
    st.just(Shrink()),
    st.builds(Wait, st.integers(1, 3)),
)
stories = st.lists(steps, max_size=8) | st.lists(steps, min_size=15, max_size=40)


class Pair:
    """An outbox and its model, given the same steps."""

    def __init__(self, limits: Limits) -> None:
        self.outbox = Outbox(limits)
        self.model = ListOutbox(limits)
        self.sequence = 1
        self.now = 100.0

    def make(self, count: int, size: int, lifetime: int = 0) -> Run:
        first, self.sequence = self.sequence, self.sequence + count
        payloads = [bytes([number % 256]) * size for number in range(first, first + count)]
        expires_at = self.now + lifetime if lifetime else NEVER
        return make_run("a", *payloads, sequence=first, expires_at=expires_at)

    def do(self, step: Step) -> None:
        match step:
            case Add():
                self.add(step)
            case Offer():
                self.offer(step)
            case AddFirst():
                run = self.make(step.count, step.size)
                self.outbox.add_first(run, FORM)
                self.model.waiting[:0] = messages_of(run)
            case Take():
                self.take(step.limit_bytes)
            case Shrink():
                assert flatten(self.outbox.shrink()) == self.model.shrink()
            case Wait():
                self.now += step.seconds
                gone = flatten(self.outbox.remove_expired(self.now))
                assert gone == self.model.remove_expired(self.now)

    def add(self, step: Add) -> None:
        run = self.make(step.count, step.size, step.lifetime)
        fits = self.model.fits(messages_of(run))
        assert self.outbox.has_room(run) == fits
        decision, dropped = self.outbox.add(run, FORM, step.policy)
        assert flatten(dropped) == self.model.add(messages_of(run), step.policy)
        assert decision.block == (step.policy is Policy.BLOCK and not fits)
        assert decision.close == (step.policy is Policy.DISCONNECT and not fits)

    def offer(self, step: Offer) -> None:
        run = self.make(step.count, step.size, step.lifetime)
        can_take = self.model.fits(messages_of(run)) and not step.lifetime
        assert self.outbox.offer(run, FORM) == can_take
        if can_take:
            self.model.waiting += messages_of(run)

    def take(self, limit_bytes: int) -> None:
        taken = [run for run, encoding in self.outbox.take(limit_bytes) if encoding is FORM]
        messages = flatten(taken)
        assert messages == self.model.waiting[: len(messages)]
        assert bool(messages) == bool(self.model.waiting)
        assert sum(len(run.slab) for run in taken[:-1]) < max(limit_bytes, 1)  # the last one may exceed it
        del self.model.waiting[: len(messages)]

    def check(self) -> None:
        assert self.outbox.messages == len(self.outbox) == len(self.model.waiting)
        assert self.outbox.bytes == self.model.bytes
        assert self.outbox.is_over == self.model.is_over()


def flatten(runs: list[Run]) -> list[Message]:
    return [message for run in runs for message in messages_of(run)]


@examples(50)
@given(st.builds(Limits, st.integers(1, 8), st.integers(1, 16)), stories)
def test_an_outbox_behaves_like_a_list_of_single_messages(limits: Limits, todo: list[Step]) -> None:
    pair = Pair(limits)
    for step in todo:
        pair.do(step)
        pair.check()
    pair.take(1_000_000)
    assert not pair.outbox


def test_drop_oldest_keeps_the_end_of_a_run_that_is_larger_than_the_outbox() -> None:
    outbox = Outbox(Limits(2, 100))
    decision, dropped = outbox.add(make_run("a", b"1", b"2", b"3", sequence=1), FORM, Policy.DROP_OLDEST)
    assert decision == Decision(3, evict=True)
    assert [message.sequence for message in flatten(dropped)] == [1]
    assert [run.sequence for run, _ in outbox.take(100)] == [2]


def test_shrinking_gets_past_empty_messages_to_the_bytes_behind_them() -> None:
    outbox = Outbox(Limits(10, 3))
    outbox.add(make_run("a", b"", b"", sequence=1), FORM, Policy.BLOCK)
    outbox.add(make_run("a", b"12345", sequence=3), FORM, Policy.BLOCK)
    outbox.add(make_run("a", b"6", sequence=4), FORM, Policy.BLOCK)
    assert [message.sequence for message in flatten(outbox.shrink())] == [1, 2, 3]
    assert (outbox.messages, outbox.bytes) == (1, 1)


def test_block_takes_what_was_read_and_shrinking_gives_back_only_what_is_too_much() -> None:
    outbox = Outbox(Limits(3, 100))
    outbox.add(make_run("a", b"1", b"2", sequence=1), FORM, Policy.BLOCK)
    decision, dropped = outbox.add(make_run("a", b"3", b"4", b"5", sequence=3), FORM, Policy.BLOCK)
    assert decision.block
    assert not dropped
    assert outbox.is_over
    assert [message.payload for message in flatten(outbox.shrink())] == [b"1", b"2"]
    assert not outbox.is_over


def test_what_is_put_back_leaves_first_even_from_a_full_outbox() -> None:
    outbox = Outbox(Limits(1, 100))
    outbox.add(make_run("a", b"2", sequence=2), FORM, Policy.DROP_NEWEST)
    outbox.add_first(make_run("a", b"1", sequence=1), FORM)
    assert [run.sequence for run, _ in outbox.take(100)] == [1, 2]


def test_a_form_given_to_waiting_entries_is_the_form_they_leave_in() -> None:
    outbox = Outbox(WIDE)
    outbox.add(make_run("a", b"1"), PlainEncoding(qos=1), Policy.BLOCK)
    outbox.reencode(lambda encoding: PlainEncoding(qos=encoding.qos, limit_bytes=7))
    assert [encoding for _, encoding in outbox.take(100)] == [PlainEncoding(qos=1, limit_bytes=7)]


def test_only_the_expired_leave_early_and_from_anywhere_in_the_queue() -> None:
    outbox = Outbox(WIDE)
    for sequence, expires_at in enumerate((NEVER, 5.0, 9.0, 5.0, NEVER), 1):
        outbox.add(make_run("a", b"x", sequence=sequence, expires_at=expires_at), FORM, Policy.BLOCK)
    assert outbox.remove_expired(4.9) == []
    assert [run.sequence for run in outbox.remove_expired(5.0)] == [2, 4]
    assert [run.sequence for run, _ in outbox.take(100)] == [1, 3, 5]


@pytest.mark.parametrize("policy", [Policy.DROP_NEWEST, Policy.DROP_OLDEST, Policy.DISCONNECT])
def test_the_high_watermark_never_exceeds_the_limit_unless_publishers_are_held(policy: Policy) -> None:
    outbox = Outbox(Limits(3, 100))
    for number in range(5):
        outbox.add(make_run("a", b"x", sequence=number), FORM, policy)
    assert outbox.high_watermark == 3
    outbox.take(100)
    assert outbox.high_watermark == 3
