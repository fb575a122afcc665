"""Message ids: what is sent again is published once, before and after a crash, and never lost by it."""

from typing import Any

import pytest

from penstock.core.access.access import OpenAccess
from penstock.core.access.identity import Identity
from penstock.core.broker import Receipt
from penstock.core.durability.records import RECEIPTS
from penstock.core.publishing.properties import MAX_ID_BYTES
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings, LogSettings, MessageIdSettings
from penstock.errors import InvalidRequest, NotAuthorized, StorageUnavailable
from penstock.model import Door, Properties
from penstock.runs import Run
from tests.support.broker import Stage
from tests.support.clock import ManualClock
from tests.support.disk import Disk
from tests.support.samples import make_run

KEEPING = LogSettings(capture=("#",))
WINDOW = 600.0


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def memory(**ids: Any) -> Stage:
    return Stage(CoreSettings(message_ids=MessageIdSettings(**ids)))


def stored(
    disk: Disk, clock: ManualClock | None = None, capture: tuple[str, ...] = ("#",), **ids: Any
) -> Stage:
    """A server on a disk. The disk may have been used by another before, which crashed."""
    settings = CoreSettings(log=LogSettings(capture=capture), message_ids=MessageIdSettings(**ids))
    return Stage(settings, disk=disk, clock=clock)


def sender_of(stage: Stage, client_id: str = "c", user: str | None = None) -> Session:
    return stage.broker.request_sender(Identity(user, client_id), Door.WEB)


def message(
    message_id: str | None = "id", payload: bytes = b"x", topic: str = "a", qos: int = 1, retain: bool = False
) -> Run:
    properties = Properties(message_id=message_id)
    return make_run(topic, payload, qos=qos, retain=retain, properties=properties, door=Door.WEB)


def publish(stage: Stage, message_id: str | None = "id", payload: bytes = b"x", **more: object) -> Receipt:
    run = message(message_id, payload, **more)  # type: ignore[arg-type]
    return stage.broker.publish_once(run, sender_of(stage))


def fate(stage: Stage, receipt: Receipt) -> list[Exception | None]:
    """Gets what the publisher is told, when it is told."""
    told: list[Exception | None] = []
    stage.broker.when_committed(receipt.ticket, told.append)
    return told


def sequence_of(stage: Stage, topic: str = "a") -> int:
    return stage.broker.topics[topic].sequence


def payloads(disk: Disk) -> list[bytes]:
    return [run.payload() for run in disk.content.runs]


# Once


def test_the_same_id_is_published_once_and_gets_the_same_receipt() -> None:
    stage = memory()
    reader = stage.client("r")
    reader.subscribe("a")
    first, second = publish(stage, payload=b"1"), publish(stage, payload=b"2")
    stage.settle()
    assert reader.take_payloads() == [b"1"]
    assert second.is_duplicate and not first.is_duplicate
    assert (second.sequence, second.offset, second.subscribers) == (first.sequence, first.offset, 1)


def test_it_does_not_matter_which_client_of_a_user_sends_it_again() -> None:
    stage = memory()
    publish(stage)
    assert stage.broker.publish_once(message(), sender_of(stage, "other")).is_duplicate


def test_another_user_has_ids_of_its_own() -> None:
    stage = memory()
    reader = stage.client("r")
    reader.subscribe("a")
    for user in (None, "", "ada", "bob", "ada"):
        stage.broker.publish_once(message(payload=f"{user}".encode()), sender_of(stage, "c", user))
    stage.settle()
    assert reader.take_payloads() == [b"None", b"", b"ada", b"bob"]


def test_ids_of_users_are_told_apart_after_a_restart(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock)
    senders = [(None, "1\0ab"), (None, "ab"), ("", "ab"), ("a", "b"), ("ab", "x"), ("1", "\0ab")]
    for user, message_id in senders:
        receipt = before.broker.publish_once(message(message_id), sender_of(before, "c", user))
        assert not receipt.is_duplicate
    before.settle()
    assert len(disk.content.tables[RECEIPTS]) == len(senders)
    disk.crash()
    after = stored(disk, clock)
    for place, (user, message_id) in enumerate(senders):
        receipt = after.broker.publish_once(message(message_id), sender_of(after, "c", user))
        assert (receipt.is_duplicate, receipt.sequence) == (True, place + 1)
    assert not after.broker.publish_once(message("x"), sender_of(after, "c", "a")).is_duplicate


def test_another_topic_has_ids_of_its_own() -> None:
    stage = memory()
    publish(stage, topic="a")
    assert not publish(stage, topic="b").is_duplicate


def test_messages_without_an_id_are_all_published() -> None:
    stage = memory()
    assert [publish(stage, None).sequence for _ in range(2)] == [1, 2]


def test_an_id_is_free_again_after_its_time() -> None:
    stage = memory(window_s=10.0)
    publish(stage)
    stage.clock.advance(9.9)
    assert publish(stage).is_duplicate
    stage.clock.advance(0.2)
    assert not publish(stage).is_duplicate
    stage.clock.advance(9.9)
    assert publish(stage).is_duplicate


def test_setting_the_clock_changes_nothing_while_the_server_runs() -> None:
    stage = memory(window_s=10.0)
    publish(stage)
    stage.clock.jump(3_600)
    assert publish(stage).is_duplicate


def test_the_oldest_ids_go_when_there_are_too_many() -> None:
    stage = memory(max=2)
    for message_id in "123":
        publish(stage, message_id)
    assert len(stage.node.dedup) == 2
    assert publish(stage, "2").is_duplicate
    assert not publish(stage, "1").is_duplicate


@pytest.mark.parametrize("off", [{"max": 0}, {"window_s": 0.0}])
def test_it_can_be_switched_off(off: dict[str, float]) -> None:
    stage = memory(**off)
    assert [publish(stage).sequence for _ in range(2)] == [1, 2]
    assert publish(stage).message_id == "id"
    assert len(stage.node.dedup) == 0


def test_old_ids_are_forgotten_even_if_none_come() -> None:
    stage = memory(window_s=10.0)
    for number in range(100):
        publish(stage, str(number))
    stage.advance(11.0)
    assert len(stage.node.dedup) == 0


@pytest.mark.parametrize("message_id", ["", "x" * (MAX_ID_BYTES + 1), "ë" * (MAX_ID_BYTES // 2 + 1)])
def test_an_id_that_is_empty_or_too_long_is_refused(message_id: str) -> None:
    stage = memory()
    with pytest.raises(InvalidRequest, match="message id"):
        publish(stage, message_id)
    assert sequence_of(stage) == 0


def test_an_id_that_cannot_be_written_is_refused(disk: Disk) -> None:
    stage = stored(disk)
    with pytest.raises(InvalidRequest, match="message id"):
        publish(stage, "\ud800")
    assert sequence_of(stage) == 0


def test_who_may_not_publish_gets_no_receipt_of_others() -> None:
    class Rules(OpenAccess):
        def may_publish(self, identity: Identity, topic: str) -> bool:
            return identity.client_id == "c"

    stage = Stage(access=Rules())
    publish(stage)
    with pytest.raises(NotAuthorized):
        stage.broker.publish_once(message(), sender_of(stage, "stranger"))


# Stored


def test_a_stored_message_says_so_and_waits_for_its_commit(disk: Disk) -> None:
    stage = stored(disk)
    receipt = publish(stage)
    told = fate(stage, receipt)
    assert receipt.is_stored
    assert told == []
    stage.settle()
    assert told == [None]


def test_the_second_waits_for_the_commit_of_the_first(disk: Disk) -> None:
    stage = stored(disk)
    disk.is_stuck = True
    first = publish(stage)
    stage.settle()
    told = fate(stage, publish(stage))
    stage.settle()
    assert told == []
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert told == [None]
    assert first.ticket is not None


def test_an_id_and_its_message_outlive_a_crash_together(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock)
    first = publish(before)
    before.settle()
    disk.crash()
    after = stored(disk, clock)
    second = publish(after)
    assert second.is_duplicate and second.is_stored
    assert (second.sequence, second.offset, second.epoch) == (first.sequence, first.offset, 1)
    assert second.published_at == first.published_at
    assert payloads(disk) == [b"x"]


def test_an_id_and_its_message_are_lost_together_in_a_crash(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock)
    disk.is_stuck = True
    publish(before)
    before.settle()
    disk.crash()
    disk.is_stuck = False
    after = stored(disk, clock)
    assert not publish(after).is_duplicate
    after.settle()
    assert payloads(disk) == [b"x"]


@pytest.mark.parametrize("step", range(6))
def test_whenever_it_crashes_the_message_is_there_exactly_once_after_it_was_sent_again(
    disk: Disk, clock: ManualClock, step: int
) -> None:
    before = stored(disk, clock)
    publish(before)
    for _ in range(step):
        before.scheduler.turn()
    disk.crash()
    after = stored(disk, clock)
    publish(after)
    after.settle()
    assert payloads(disk) == [b"x"]


def test_a_failed_commit_tells_both_and_the_id_is_free_again(disk: Disk) -> None:
    stage = stored(disk)
    first, second = publish(stage), publish(stage)
    told = [fate(stage, first), fate(stage, second)]
    disk.is_full = True
    stage.settle()
    disk.is_full = False
    assert [[type(failure) for failure in each] for each in told] == [[StorageUnavailable]] * 2
    stage.advance(1.0)
    again = publish(stage)
    stage.settle()
    assert not again.is_duplicate
    assert payloads(disk) == [b"x"]


def test_an_id_of_a_failed_commit_is_free_after_a_restart_too(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock)
    publish(before)
    disk.is_full = True
    before.settle()
    disk.is_full = False
    before.advance(1.0)  # now the changes of the state are stored, without the messages
    disk.crash()
    after = stored(disk, clock)
    assert not publish(after).is_duplicate
    after.settle()
    assert payloads(disk) == [b"x"]


def test_an_id_whose_message_could_not_be_stored_is_not_believed_at_start(
    disk: Disk, clock: ManualClock
) -> None:
    before = stored(disk, clock)
    receipt = publish(before)
    before.settle()
    disk.crash()
    disk.content.runs.clear()  # as if the server had stopped before it could take the id back
    disk.content.holes.add(receipt.offset)
    assert not publish(stored(disk, clock)).is_duplicate


def test_what_was_stored_before_a_commit_that_failed_is_still_known(disk: Disk) -> None:
    stage = stored(disk)
    publish(stage, "kept")
    stage.settle()
    publish(stage, "lost")
    disk.is_full = True
    stage.settle()
    disk.is_full = False
    stage.advance(1.0)
    assert publish(stage, "kept").is_duplicate
    assert not publish(stage, "lost").is_duplicate


def test_an_id_is_remembered_as_long_after_a_restart_as_before(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock, window_s=10.0)
    publish(before)
    before.settle()
    disk.crash()
    clock.advance(9.0)
    after = stored(disk, clock, window_s=10.0)
    assert publish(after).is_duplicate
    clock.advance(1.1)
    assert not publish(after).is_duplicate


def test_a_clock_that_was_set_back_keeps_no_id_longer(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock, window_s=10.0)
    publish(before)
    before.settle()
    disk.crash()
    clock.jump(-3_600)
    after = stored(disk, clock, window_s=10.0)
    clock.advance(10.1)
    assert not publish(after).is_duplicate


def test_old_ids_leave_the_disk(disk: Disk, clock: ManualClock) -> None:
    stage = stored(disk, clock, window_s=10.0)
    for number in range(20):
        publish(stage, str(number))
    stage.settle()
    assert len(disk.content.tables[RECEIPTS]) == 20
    stage.advance(11.0)
    assert disk.content.tables[RECEIPTS] == {}


def test_old_ids_leave_the_disk_at_start(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock, window_s=10.0)
    publish(before, "old")
    before.advance(9.0)
    publish(before, "young")
    before.settle()
    disk.crash()
    clock.advance(2.0)
    after = stored(disk, clock, window_s=10.0)
    after.settle()
    assert list(disk.content.tables[RECEIPTS]) == ["a\0\0young"]
    assert publish(after, "young").is_duplicate


def test_of_too_many_ids_the_latest_are_known_after_a_restart(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock)
    for message_id in ("z", "y", "x"):
        publish(before, message_id)
    before.settle()
    disk.crash()
    after = stored(disk, clock, max=2)
    assert [publish(after, message_id).is_duplicate for message_id in ("x", "y", "z")] == [True, True, False]
    after.settle()
    assert len(disk.content.tables[RECEIPTS]) == 2


def test_an_id_is_not_stored_if_its_message_is_not(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock, capture=())
    receipt = publish(before, qos=0)
    before.settle()
    assert not receipt.is_stored
    assert publish(before, qos=0).is_duplicate
    disk.crash()
    assert not publish(stored(disk, clock, capture=()), qos=0).is_duplicate


def test_an_id_is_stored_with_a_value_that_is_all_that_is_kept(disk: Disk, clock: ManualClock) -> None:
    before = stored(disk, clock, capture=())
    receipt = publish(before, retain=True)
    before.settle()
    assert receipt.is_stored
    disk.crash()
    assert publish(stored(disk, clock, capture=()), retain=True).is_duplicate


def test_an_id_is_stored_if_somebody_is_to_get_its_message_later(disk: Disk) -> None:
    stage = stored(disk, capture=())
    stage.client("away", clean=False, expiry=3_600.0).subscribe("a", 1)
    assert publish(stage).is_stored
    assert not publish(stage, "other", qos=0).is_stored


def test_ids_that_are_too_many_by_new_settings_go_in_steps() -> None:
    stage = memory(max=1_000)
    for number in range(600):
        publish(stage, str(number))
    dedup = stage.node.dedup
    dedup.configure(MessageIdSettings(max=100))
    publish(stage, "new")
    assert len(dedup) > 590  # whoever comes next does not wait for all of them
    while dedup.shed():
        pass
    assert len(dedup) == 100
    assert publish(stage, "new").is_duplicate
    assert not publish(stage, "0").is_duplicate
