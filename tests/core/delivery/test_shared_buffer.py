"""Outboxes borrow for a burst: fairly, within a budget, and only beyond what each has of its own."""

import gc
import random

import pytest

from penstock.core.delivery.outbox import Outbox
from penstock.core.delivery.shared_buffer import (
    ENTRY_BYTES,
    OWN_BYTES,
    OWN_MESSAGES,
    STEP_BYTES,
    SharedBuffer,
)
from penstock.model import Policy
from tests.support.broker import Stage
from tests.support.encodings import PlainEncoding
from tests.support.samples import make_run

MIB = 1024 * 1024
FORM = PlainEncoding()
CHUNK = bytes(STEP_BYTES)
MANY = 10**9


def fill(outbox: Outbox, payload: bytes = CHUNK) -> int:
    """Add single messages until one is dropped; return how many fit."""
    count = 0
    while not outbox.add(make_run("a", payload, sequence=count), FORM, Policy.DROP_NEWEST)[1]:
        count += 1
    return count


def drain(outbox: Outbox, size: int) -> None:
    """Take this many bytes for good."""
    outbox.take(size)
    outbox.settle()


def test_outbox_has_its_own_part_without_a_budget() -> None:
    outbox = Outbox(SharedBuffer(MANY, MANY, 0).allow())
    assert fill(outbox) == OWN_BYTES // STEP_BYTES
    outbox = Outbox(SharedBuffer(MANY, MANY, 0).allow())
    assert fill(outbox, b"") == OWN_MESSAGES


def test_one_outbox_gets_half_of_the_budget_two_get_a_third_each() -> None:
    buffer = SharedBuffer(MANY, MANY, 60 * MIB)
    assert fill(Outbox(buffer.allow())) == (OWN_BYTES + 30 * MIB) // MIB
    outboxes = [Outbox(buffer.allow()) for _ in range(2)]
    for _ in range(60):
        for outbox in outboxes:
            outbox.add(make_run("a", CHUNK), FORM, Policy.DROP_NEWEST)
    assert [outbox.bytes - OWN_BYTES for outbox in outboxes] == [20 * MIB, 20 * MIB]


def test_small_messages_pay_for_their_entries_and_runs_only_once() -> None:
    budget = 2 * 8_000 * ENTRY_BYTES
    buffer = SharedBuffer(MANY, MANY, budget)
    single = fill(Outbox(buffer.allow()), b"")
    assert OWN_MESSAGES < single <= OWN_MESSAGES + 8_000
    runs = Outbox(buffer.allow())
    for _ in range(50):
        assert runs.add(make_run("a", *[b""] * 1_000), FORM, Policy.DROP_NEWEST)[1] == []
    assert buffer.free == budget


def test_limits_below_the_own_part_hold_exactly_and_borrow_nothing() -> None:
    buffer = SharedBuffer(3, MANY, 60 * MIB)
    assert fill(Outbox(buffer.allow()), b"x") == 3
    buffer = SharedBuffer(MANY, 2 * MIB, 60 * MIB)
    assert fill(Outbox(buffer.allow())) == 2
    assert buffer.free == 60 * MIB


def test_limits_beyond_the_own_part_are_never_exceeded() -> None:
    buffer = SharedBuffer(MANY, 11 * MIB, 60 * MIB)
    assert fill(Outbox(buffer.allow())) == 11
    buffer = SharedBuffer(12_345, MANY, 60 * MIB)
    assert fill(Outbox(buffer.allow()), b"") == 12_345
    assert fill(Outbox(buffer.allow(7)), b"") == 7


def test_drained_outbox_returns_what_it_borrowed_step_by_step() -> None:
    buffer = SharedBuffer(MANY, MANY, 60 * MIB)
    outbox = Outbox(buffer.allow())
    fill(outbox)
    assert buffer.free == 30 * MIB
    drain(outbox, 10 * MIB)
    assert buffer.free == 40 * MIB
    drain(outbox, MANY)
    assert buffer.free == 60 * MIB


def test_removed_entries_and_forgotten_outboxes_return_theirs_too() -> None:
    buffer = SharedBuffer(MANY, MANY, 60 * MIB)
    outbox = Outbox(buffer.allow())
    fill(outbox)
    outbox.remove(lambda run: True)
    assert buffer.free == 60 * MIB
    fill(outbox)
    del outbox
    assert buffer.free == 60 * MIB


@pytest.mark.parametrize("end", ["disconnect", "drop"])
def test_outbox_of_a_session_that_ends_returns_what_it_borrowed(end: str) -> None:
    stage = Stage()
    buffer = stage.broker._node.queues.shared_buffer
    reader, writer = stage.client("reader"), stage.client("writer")
    before = buffer.free
    reader.subscribe("burst")
    reader.pause()
    for _ in range(12):
        writer.publish("burst", CHUNK, CHUNK)
        stage.settle()
    assert buffer.free < before
    gc.disable()  # the budget must not wait for it
    try:
        getattr(reader, end)()
        stage.settle()
        assert buffer.free == before
    finally:
        gc.enable()


def test_what_stays_keeps_its_room_where_some_is_removed_or_put_back() -> None:
    buffer = SharedBuffer(MANY, MANY, 60 * MIB)
    outbox, other = Outbox(buffer.allow()), Outbox(buffer.allow())
    fill(outbox)
    fill(other)  # there is nothing left to borrow
    outbox.remove(lambda run: run.sequence == 0)
    assert not outbox.is_over
    for run, encoding in reversed(outbox.take(10 * MIB)):
        outbox.add_first(run, encoding)
    assert not outbox.is_over
    _, dropped = outbox.add(make_run("a", CHUNK), FORM, Policy.DROP_OLDEST)
    assert [run.sequence for run in dropped] == [1]


def test_fill_level_is_that_of_what_could_wait() -> None:
    buffer = SharedBuffer(MANY, MANY, 16 * MIB)
    outbox = Outbox(buffer.allow())
    for _ in range(8):
        outbox.add(make_run("a", CHUNK), FORM, Policy.DROP_NEWEST)
    assert outbox.saturation == pytest.approx(0.5)
    fill(outbox)
    assert outbox.saturation == 1.0


def test_changed_limits_reach_outboxes_that_are_there() -> None:
    buffer = SharedBuffer(MANY, MANY, 60 * MIB)
    outbox, other = Outbox(buffer.allow()), Outbox(buffer.allow())
    fill(outbox)
    buffer.configure(MANY, MANY, 20 * MIB)
    assert not outbox.is_over
    assert fill(other) == OWN_BYTES // STEP_BYTES  # more is lent than there is
    drain(outbox, MANY)
    assert buffer.free == 20 * MIB
    buffer.configure(5, MANY, 20 * MIB)
    assert other.is_over
    assert fill(outbox, b"x") == 5
    buffer.configure(MANY, MANY, 60 * MIB)
    drain(outbox, MANY)
    assert fill(outbox) == (OWN_BYTES + 30 * MIB) // MIB


@pytest.mark.parametrize("seed", range(3))
def test_budget_holds_whatever_comes_and_goes(seed: int) -> None:
    chance = random.Random(seed)
    buffer = SharedBuffer(MANY, MANY, 40 * MIB)
    outboxes = [Outbox(buffer.allow()) for _ in range(6)]
    for _ in range(300):
        outbox = chance.choice(outboxes)
        if chance.random() < 0.8:
            size = chance.choice((0, 1_000, MIB, 3 * MIB))
            outbox.add(make_run("a", *[bytes(size)] * chance.choice((1, 3))), FORM, Policy.DROP_NEWEST)
        else:
            drain(outbox, chance.choice((1, 4 * MIB, MANY)))
        beyond = sum(max(outbox.bytes - OWN_BYTES, 0) for outbox in outboxes)
        assert beyond <= 40 * MIB - buffer.free
        assert buffer.free >= 0
    for outbox in outboxes:
        drain(outbox, MANY)
    assert buffer.free == 40 * MIB


def test_subscriber_that_pauses_during_a_burst_gets_all_of_it() -> None:
    stage = Stage()
    reader, writer = stage.client("reader"), stage.client("writer")
    reader.subscribe("burst")
    reader.pause()
    sent = [b"%05d" % number for number in range(OWN_MESSAGES + 3_000)]
    for first in range(0, len(sent), 1_000):
        writer.publish("burst", *sent[first : first + 1_000])
        stage.settle()
    assert reader.take_payloads() == []
    reader.unpause()
    stage.settle()
    assert reader.take_payloads() == sent
    assert stage.losses() == []


def test_single_messages_of_a_burst_borrow_too() -> None:
    stage = Stage()
    sender, reader = stage.client("s"), stage.client("r")
    reader.subscribe("a", policy=Policy.DROP_NEWEST)
    reader.pause()
    sent = [b"%04d" % number + bytes(32 * 1024) for number in range(OWN_BYTES // (32 * 1024) + 20)]
    for payload in sent:
        sender.publish("a", payload)
        stage.broker.flush()
    reader.unpause()
    stage.settle()
    assert reader.take_payloads() == sent
