"""What a door can warn of: losses since it last asked, what waits, and for how long."""

from penstock.core.diagnostics.slow_consumers import LossReport
from penstock.core.publishing.outcome import Outcome
from penstock.core.settings import CoreSettings, OutboxSettings
from penstock.model import Policy
from penstock.runs import Run
from tests.core.replay.followers import numbers, publish
from tests.support.broker import Client, Stage


def stalled(
    outbox_messages: int | None = None, policy: Policy = Policy.DROP_OLDEST
) -> tuple[Stage, Client, Client]:
    """A reader whose socket is full, on a stage where five messages may wait."""
    stage = Stage(CoreSettings(outbox=OutboxSettings(messages=5)))
    reader, sender = stage.client("r"), stage.client("s")
    reader.session.outbox_messages = outbox_messages
    reader.subscribe("a", policy=policy)
    reader.pause()
    return stage, reader, sender


def test_who_has_lost_nothing_is_not_strained() -> None:
    stage, reader, sender = stalled()
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    assert stage.broker.take_loss_report(reader.session) is None


def test_each_loss_is_told_once() -> None:
    stage, reader, sender = stalled()
    publish(sender, "a", numbers(1, 8))
    stage.settle()
    stage.scheduler.advance(2.0)
    assert stage.broker.take_loss_report(reader.session) == LossReport(3, 0, 5, 5, 2.0)
    assert stage.broker.take_loss_report(reader.session) is None
    publish(sender, "a", numbers(9, 9))
    stage.settle()
    assert stage.broker.take_loss_report(reader.session) == LossReport(1, 0, 5, 5, 2.0)


def test_what_expired_is_counted_by_itself() -> None:
    stage, reader, sender = stalled()
    publish(sender, "a", numbers(1, 2), ttl=1.0)
    publish(sender, "a", numbers(3, 3))
    stage.settle()
    stage.advance(3.0)
    assert stage.broker.take_loss_report(reader.session) == LossReport(0, 2, 1, 5, 3.0)


def test_what_expires_before_anybody_looks_is_counted_when_it_would_have_left() -> None:
    stage, reader, sender = stalled()
    publish(sender, "a", numbers(1, 2), ttl=1.0)
    stage.settle()
    stage.scheduler.advance(2.0)
    reader.unpause()
    assert stage.broker.take_loss_report(reader.session) == LossReport(0, 2, 0, 5, 0.0)


def test_a_session_may_have_a_lower_limit() -> None:
    stage, reader, sender = stalled(outbox_messages=2)
    publish(sender, "a", numbers(1, 5))
    stage.settle()
    strain = stage.broker.take_loss_report(reader.session)
    assert strain is not None
    assert (strain.dropped, strain.waiting, strain.limit) == (3, 2, 2)
    reader.unpause()
    assert reader.take_payloads() == numbers(4, 5)


def test_a_session_cannot_have_a_higher_limit() -> None:
    stage, reader, sender = stalled(outbox_messages=1_000)
    publish(sender, "a", numbers(1, 6))
    stage.settle()
    strain = stage.broker.take_loss_report(reader.session)
    assert strain is not None
    assert (strain.dropped, strain.limit) == (1, 5)


# What a publisher is told


def note_outcome(stage: Stage, run: Run, told: list[Outcome]) -> None:
    """Add what becomes of a run when it is flushed."""
    stage.broker.when_flushed(lambda: told.append(stage.broker.outcome_of(run)))


def test_a_publisher_learns_after_the_flush_for_whom_its_message_was_dropped() -> None:
    stage, _, sender = stalled(outbox_messages=1, policy=Policy.DROP_NEWEST)
    told: list[Outcome] = []
    for payload in numbers(1, 3):
        run = sender.publish("a", payload).run
        note_outcome(stage, run, told)
    assert told == []
    stage.settle()
    assert told == [Outcome(0, 0), Outcome(1, 0), Outcome(1, 0)]


def test_a_publisher_learns_who_makes_it_wait() -> None:
    stage, _, sender = stalled(outbox_messages=1, policy=Policy.BLOCK)
    told: list[Outcome] = []
    for payload in numbers(1, 2):
        note_outcome(stage, sender.publish("a", payload).run, told)
    stage.settle()
    assert told == [Outcome(0, 0), Outcome(0, 1)]


def test_a_flush_that_comes_early_is_the_one_that_counts() -> None:
    stage, _, sender = stalled(outbox_messages=1, policy=Policy.DROP_NEWEST)
    told: list[Outcome] = []
    publish(sender, "a", numbers(1, 1))
    note_outcome(stage, sender.publish("a", b"002").run, told)
    stage.client("new").subscribe("a")  # what was published before leaves first
    assert told == [Outcome(1, 0)]
    publish(sender, "a", numbers(3, 3))
    stage.settle()
    assert told == [Outcome(1, 0)]
