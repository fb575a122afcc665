"""Streams and the durable log: sends that are to be stored, and news for who reads the log."""

import pytest

from penstock.core.settings import CoreSettings, LogSettings
from penstock.core.streams.stream import GROUP
from penstock.model import Door
from tests.core.streams.streaming import ANYONE, Crowd
from tests.support.broker import Stage
from tests.support.disk import Disk

NOTHING_KEPT = CoreSettings(log=LogSettings(capture=()))


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def stage(disk: Disk) -> Stage:
    return Stage(NOTHING_KEPT, disk=disk)


@pytest.fixture
def crowd(stage: Stage) -> Crowd:
    return Crowd(stage)


def stored_payloads(disk: Disk) -> list[bytes]:
    return [run.payload() for run in disk.content.runs]


def test_without_a_data_directory_nothing_is_stored() -> None:
    stage = Stage()
    crowd = Crowd(stage)
    assert crowd.send(is_stored=True).code == "invalid-request"
    assert "s" not in stage.broker.topics


def test_a_stored_send_is_answered_after_its_commit_whatever_the_settings_keep(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    disk.is_stuck = True
    send = crowd.send(b"0", is_stored=True)
    stage.settle()
    assert send.is_waiting
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert send.receipt.is_stored
    assert stored_payloads(disk) == [b"0"]


def test_other_sends_are_answered_at_once_and_stored_only_where_the_settings_say_so(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    assert crowd.send(b"0").receipt.is_stored is False
    stage.settle()
    assert stored_payloads(disk) == []


def test_a_stored_send_makes_no_stream(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", is_stored=True)
    stage.settle()
    assert len(crowd.streams) == 0
    assert crowd.receive().code == "wait-timeout"


def test_a_receiver_that_waits_gets_a_stored_send_after_its_commit(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    receive = crowd.receive(wait=5.0)
    disk.is_stuck = True
    crowd.send(b"0", is_stored=True)
    stage.settle()
    assert receive.is_waiting
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert receive.payload == b"0"


def test_what_comes_behind_a_stored_send_does_not_overtake_it(stage: Stage, disk: Disk, crowd: Crowd) -> None:
    crowd.send(b"0")
    disk.is_stuck = True
    crowd.send(b"1", is_stored=True)
    crowd.send(b"2")
    stage.settle()
    assert crowd.receive().payload == b"0"
    receives = [crowd.receive(wait=5.0), crowd.receive(wait=5.0)]
    assert crowd.receive().code == "wait-timeout"
    assert all(receive.is_waiting for receive in receives)
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert [receive.payload for receive in receives] == [b"1", b"2"]


def test_a_send_that_waits_has_room_when_what_waited_for_its_commit_is_received(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    crowd.receive(wait=5.0)
    crowd.send(size=1)
    receive = crowd.receive(wait=5.0)
    disk.is_stuck = True
    crowd.send(b"stored", is_stored=True)
    blocked = crowd.send(b"next", wait=5.0)
    stage.settle()
    assert blocked.is_waiting
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert receive.payload == b"stored"
    assert blocked.receipt.sequence == 3


def test_a_receiver_finds_a_stored_send_in_a_stream_that_was_there(stage: Stage, crowd: Crowd) -> None:
    crowd.send(b"0", size=2)
    for number in range(1, 4):
        crowd.send(b"%d" % number, is_stored=True)
    stage.settle()
    assert crowd.take_all() == [b"2", b"3"]
    assert stage.losses(GROUP) == [("s", 1, 2, "outbox-full")]


def test_a_send_that_waits_for_a_receiver_is_not_passed_by_what_waits_for_its_commit(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    sync = crowd.send(b"sync", size=0, wait=5.0)
    disk.is_stuck = True
    receive = crowd.receive(wait=5.0)
    assert receive.payload == b"sync"
    assert sync.receipt.sequence == 1
    late = crowd.receive(wait=5.0)
    crowd.send(b"stored", is_stored=True)
    second = crowd.send(b"sync again", wait=5.0)
    stage.settle()
    assert late.is_waiting
    assert second.is_waiting
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert late.payload == b"stored"
    assert crowd.receive().payload == b"sync again"


def test_what_could_not_be_stored_was_never_sent(stage: Stage, disk: Disk, crowd: Crowd) -> None:
    receive = crowd.receive(wait=5.0)
    disk.is_full = True
    send = crowd.send(b"0", is_stored=True)
    stage.settle()
    assert send.code == "storage-unavailable"
    assert receive.is_waiting
    assert stage.losses(GROUP) == [("s", 1, 1, "never-stored")]
    assert crowd.send(is_stored=True).code == "storage-unavailable"
    crowd.send(b"1")
    assert receive.payload == b"1", "a stream in memory goes on"


def test_a_stored_send_that_comes_again_is_answered_as_the_first_was(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    crowd.send(b"before")
    crowd.receive()
    first = crowd.send(b"0", is_stored=True, message_id="m")
    again = crowd.send(b"0", is_stored=True, message_id="m")
    stage.settle()
    assert again.receipt.is_duplicate
    assert again.receipt.offset == first.receipt.offset
    assert crowd.take_all() == [b"0"]
    assert stored_payloads(disk) == [b"0"]
    assert crowd.streams.counters.sends == 2
    other = crowd.send(b"0", "t", is_stored=True, message_id="m")
    stage.settle()
    assert not other.receipt.is_duplicate


def test_ids_that_mean_the_same_are_one_however_they_are_written(stage: Stage, crowd: Crowd) -> None:
    first = crowd.send(message_id="ABC", known_as="abc", is_stored=True)
    second = crowd.send(message_id="abc", known_as="abc", is_stored=True)
    stage.settle()
    assert (first.receipt.message_id, second.receipt.message_id) == ("ABC", "ABC")
    assert (first.receipt.is_duplicate, second.receipt.is_duplicate) == (False, True)


def test_it_is_known_after_a_restart_which_sends_were_stored(stage: Stage, disk: Disk, crowd: Crowd) -> None:
    first = crowd.send(b"0", is_stored=True, message_id="m")
    stage.settle()
    later = Stage(NOTHING_KEPT, disk=disk, clock=stage.clock)
    again = Crowd(later).send(b"0", is_stored=True, message_id="m")
    later.settle()
    assert again.receipt.is_duplicate
    assert again.receipt.sequence == first.receipt.sequence
    assert stored_payloads(disk) == [b"0"]


async def test_what_was_stored_can_be_read_after_a_restart(stage: Stage, disk: Disk, crowd: Crowd) -> None:
    crowd.send(b"0", is_stored=True, ttl=3_600.0)
    crowd.send(b"1", is_stored=True)
    stage.settle()
    history = Stage(NOTHING_KEPT, disk=disk, clock=stage.clock).broker.history
    chunk = await history.replay(("s",), history.cursor(0)).read(10_000)
    assert [run.payload() for run in chunk.runs] == [b"0", b"1"]
    assert [run.ttl for run in chunk.runs] == [3_600.0, 0.0]


def test_who_hangs_up_is_not_told_of_the_commit_and_its_message_stays(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    send = crowd.send(b"0", is_stored=True)
    send.cancel()
    stage.settle()
    assert send.is_waiting
    assert stored_payloads(disk) == [b"0"]


def test_a_stored_send_that_is_held_back_is_told_of_its_commit_once(stage: Stage, crowd: Crowd) -> None:
    connection = stage.broker.request_sender(ANYONE, Door.STREAMS).connection
    assert connection is not None
    connection.block(is_unacknowledged=False)
    send = crowd.send(b"0", is_stored=True)
    stage.settle()
    assert send.is_waiting
    connection.unblock()
    stage.settle()
    assert send.receipt.is_stored


# News


def watch(crowd: Crowd, topic: str = "s") -> list[str]:
    woken: list[str] = []
    crowd.streams.when_published(topic, lambda: woken.append(topic))
    return woken


def test_news_of_a_topic_are_told_once_and_when_they_can_be_read(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    woken, other = watch(crowd), watch(crowd, "t")
    disk.is_stuck = True
    crowd.send(b"0", is_stored=True)
    stage.settle()
    assert woken == []
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    crowd.send(b"1", is_stored=True)
    stage.settle()
    assert (woken, other) == (["s"], [])


def test_news_of_a_topic_that_the_log_keeps_are_told_after_their_commit(disk: Disk) -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    woken = watch(Crowd(stage))
    disk.is_stuck = True
    stage.client("c").publish("s", b"0")
    stage.settle()
    assert woken == []
    disk.is_stuck = False
    disk.sync()
    stage.settle()
    assert woken == ["s"]


def test_to_wait_for_news_takes_no_messages(stage: Stage, crowd: Crowd) -> None:
    watch(crowd)
    stage.client("c").publish("s", b"0")
    stage.settle()
    assert crowd.streams.buffers.messages == 0
    assert crowd.receive().code == "wait-timeout"
    assert stage.losses(GROUP) == []


def test_news_that_could_not_be_stored_let_the_reader_look_again(
    stage: Stage, disk: Disk, crowd: Crowd
) -> None:
    disk.is_full = True
    woken = watch(crowd)
    crowd.send(is_stored=True)
    stage.settle()
    assert woken == ["s"]


@pytest.mark.parametrize("is_received", [True, False])
def test_a_topic_that_somebody_waits_for_news_of_can_have_a_stream(
    stage: Stage, crowd: Crowd, is_received: bool
) -> None:
    watch(crowd)
    receive = crowd.receive(wait=5.0) if is_received else None
    stage.client("c").publish("s", b"published")
    stage.settle()
    assert receive is None or receive.payload == b"published"
    crowd.send(b"sent")
    assert crowd.take_all() == [b"sent"]


@pytest.mark.parametrize("qos", [0, 1])
def test_news_of_other_doors_are_told_as_well(stage: Stage, crowd: Crowd, qos: int) -> None:
    woken = watch(crowd)
    stage.client("c").publish("s", b"0", qos=qos)
    assert woken == [], "nobody is called back while something is published"
    stage.settle()
    assert woken == ["s"]


def test_news_that_are_in_memory_only_are_told_at_the_end_of_the_turn() -> None:
    stage = Stage()
    crowd = Crowd(stage)
    woken = watch(crowd)
    crowd.send(b"0")
    stage.settle()
    assert woken == ["s"]


def test_who_does_not_want_to_know_any_more_is_not_told(stage: Stage, crowd: Crowd) -> None:
    woken: list[bool] = []
    early = crowd.streams.when_published("s", lambda: woken.append(True))
    late = crowd.streams.when_published("s", lambda: woken.append(True))
    early.cancel()
    crowd.send(b"0", is_stored=True)
    late.cancel()
    stage.settle()
    assert woken == []


def test_a_topic_that_nobody_waits_for_news_of_is_forgotten(stage: Stage, crowd: Crowd) -> None:
    woken = watch(crowd)
    stage.advance(1_000.0)
    assert len(crowd.streams) == 1
    stage.client("c").publish("s", b"0")
    stage.advance(1.0)
    assert (woken, len(crowd.streams)) == (["s"], 0)


def test_who_waits_for_news_of_a_topic_that_is_deleted_looks_again(stage: Stage, crowd: Crowd) -> None:
    woken = watch(crowd)
    stage.broker.declare_topic("s")
    stage.broker.delete_topic("s")
    stage.settle()
    assert woken == ["s"]
