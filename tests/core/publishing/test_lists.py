"""Long lists: checked as a whole, published in parts between other work, with one result at the end."""

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import ListReceipt, Refused
from penstock.core.publishing.idempotent import PART_MESSAGES
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings, LogSettings
from penstock.errors import NotAuthorized, StorageUnavailable
from penstock.model import Door, Properties
from penstock.runs import Run
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk
from tests.support.samples import make_run

LENGTH = 3 * PART_MESSAGES


class Rules(OpenAccess):
    """Rights that a test takes away."""

    is_closed = False

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return not self.is_closed


class Sending:
    """A list on its way."""

    def __init__(self, stage: Stage, runs: list[Run]) -> None:
        self.result: ListReceipt | None = None
        self.error: Exception | None = None
        self.sender = sender_of(stage)
        steps = stage.broker.publish_each(runs, self.sender)
        stage.broker.run_steps(steps, self._end, self._fail)

    def _end(self, result: ListReceipt) -> None:
        self.result = result

    def _fail(self, error: Exception) -> None:
        self.error = error


def sender_of(stage: Stage) -> Session:
    return stage.broker.request_sender(Identity(None, "c"), Door.WEB)


def make_list(length: int = LENGTH, *, topics: int = LENGTH, message_ids: bool = False) -> list[Run]:
    return [
        make_run(
            f"t/{number % topics}",
            b"%d" % number,
            qos=1,
            door=Door.WEB,
            properties=Properties(message_id=f"id-{number}") if message_ids else None,
        )
        for number in range(length)
    ]


class SlowClock(ManualClock):
    """Time of a slow machine: each turn of the loop has time for one step."""

    def monotonic(self) -> float:
        self.advance(0.005)
        return super().monotonic()


def step_until_published(stage: Stage, count: int) -> None:
    while stage.broker.counters.published < count:
        stage.scheduler.turn()
    assert stage.broker.counters.published == count


def test_list_is_published_in_order_with_one_result() -> None:
    stage = Stage(clock=SlowClock())
    reader = stage.client("r")
    reader.subscribe("t/#")
    sending = Sending(stage, make_list(topics=7))
    stage.settle()
    assert sending.result is not None
    assert [receipt.offset for receipt in sending.result.receipts] == list(range(1, LENGTH + 1))
    assert reader.take_payloads() == [b"%d" % number for number in range(LENGTH)]


def test_short_list_is_published_within_the_call() -> None:
    stage = Stage(clock=SlowClock())
    assert Sending(stage, make_list(PART_MESSAGES)).result is not None


def test_nothing_is_published_if_the_last_message_is_refused() -> None:
    stage = Stage(clock=SlowClock())
    sending = Sending(stage, [*make_list(), make_run("$SYS/x", b"", qos=1, door=Door.WEB)])
    stage.settle()
    assert isinstance(sending.error, Refused)
    assert list(sending.error.errors) == [LENGTH]
    assert stage.broker.counters.published == 0


def test_others_publish_between_the_parts() -> None:
    stage = Stage(clock=SlowClock())
    reader = stage.client("r")
    reader.subscribe("#")
    Sending(stage, make_list())
    step_until_published(stage, PART_MESSAGES)
    stage.client("p").publish("other", b"between")
    stage.settle()
    got = reader.take_payloads()
    assert 0 < got.index(b"between") < LENGTH
    assert [each for each in got if each != b"between"] == [b"%d" % number for number in range(LENGTH)]


def test_change_of_rights_does_not_leave_a_list_half_done_and_is_not_bypassed_later() -> None:
    rules = Rules()
    stage = Stage(access=rules, clock=SlowClock())
    sending = Sending(stage, make_list())
    step_until_published(stage, PART_MESSAGES)
    rules.is_closed = True
    stage.broker.recheck_rights()
    stage.settle()
    assert sending.result is not None
    assert stage.broker.counters.published == LENGTH
    with pytest.raises(NotAuthorized):
        stage.broker.publish_once(make_run(f"t/{LENGTH - 1}", b"", qos=1, door=Door.WEB), sending.sender)


def test_topic_that_is_deleted_meanwhile_is_made_again() -> None:
    stage = Stage(clock=SlowClock())
    sending = Sending(stage, make_list(topics=1))
    step_until_published(stage, PART_MESSAGES)
    assert stage.broker.delete_topic("t/0")
    stage.settle()
    assert sending.result is not None
    assert [receipt.sequence for receipt in sending.result.receipts] == list(range(1, LENGTH + 1))
    assert stage.broker.topics["t/0"].sequence == LENGTH


def test_list_that_has_begun_is_finished_when_the_server_stops() -> None:
    stage = Stage(clock=SlowClock())
    sending = Sending(stage, make_list())
    step_until_published(stage, PART_MESSAGES)
    stage.broker.stop()
    assert sending.result is not None
    assert stage.broker.counters.published == LENGTH


def test_same_list_at_the_same_time_is_published_once() -> None:
    stage = Stage(clock=SlowClock())
    reader = stage.client("r")
    reader.subscribe("t/#")
    runs = make_list(message_ids=True)
    first = Sending(stage, runs)
    step_until_published(stage, PART_MESSAGES)
    second = Sending(stage, make_list(message_ids=True))
    stage.settle()
    assert first.result is not None
    assert second.result is not None
    assert sorted(reader.take_payloads()) == sorted(b"%d" % number for number in range(LENGTH))
    pairs = zip(first.result.receipts, second.result.receipts, strict=True)
    assert all(one.offset == other.offset and one.is_duplicate != other.is_duplicate for one, other in pairs)


def test_disk_that_fills_up_ends_a_list_with_an_error() -> None:
    disk = Disk()
    stage = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk, clock=SlowClock())
    sending = Sending(stage, make_list())
    step_until_published(stage, PART_MESSAGES)
    disk.is_full = True
    stage.broker.flush()
    disk.sync()
    assert stage.log.failure is not None
    while sending.error is None:
        stage.scheduler.turn()
    assert isinstance(sending.error, StorageUnavailable)
    assert "the rest of the list was not published" in str(sending.error)


def test_failed_commit_of_a_part_is_not_hidden_by_the_last_commit() -> None:
    published = ListReceipt()
    failure = StorageUnavailable("the disk is full")
    published.note_commit(failure)
    published.note_commit(None)
    assert published.failure is failure
