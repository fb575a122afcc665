"""Messages with receipts: one by one or in lists, which are taken whole or not at all."""

import pytest

from penstock.core.access.identity import Identity
from penstock.core.broker import Receipt, Refused
from penstock.core.durability.records import RECEIPTS
from penstock.core.sessions.session import Session
from penstock.core.settings import CoreSettings, LogSettings, MessageIdSettings, RetainedSettings
from penstock.errors import InvalidRequest, InvalidTopic, NotAuthorized, StorageUnavailable, TooLarge
from penstock.model import Door, Properties
from penstock.runs import Run
from tests.support.broker import Stage
from tests.support.disk import Disk
from tests.support.samples import make_run
from tests.support.steps import take_all


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def disk() -> Disk:
    return Disk()


def sender_of(stage: Stage) -> Session:
    return stage.broker.request_sender(Identity(None, "c"), Door.WEB)


def message(
    message_id: str | None = "id", payload: bytes = b"x", topic: str = "a", qos: int = 1, retain: bool = False
) -> Run:
    properties = Properties(message_id=message_id)
    return make_run(topic, payload, qos=qos, retain=retain, properties=properties, door=Door.WEB)


def publish(stage: Stage, message_id: str | None = "id", payload: bytes = b"x", **more: object) -> Receipt:
    run = message(message_id, payload, **more)  # type: ignore[arg-type]
    return stage.broker.publish_once(run, sender_of(stage))


def test_a_receipt_says_where_the_message_stands_and_who_was_there(stage: Stage) -> None:
    reader = stage.client("r")
    reader.subscribe("a")
    reader.subscribe("#")
    stage.client("other").subscribe("$share/g/a")
    publish(stage, "first")
    receipt = publish(stage, "second")
    assert (receipt.topic, receipt.sequence, receipt.offset, receipt.epoch) == ("a", 2, 2, 1)
    assert (receipt.subscribers, receipt.message_id) == (2, "second")
    assert not receipt.is_stored and not receipt.is_duplicate


def publish_each(stage: Stage, runs: list[Run]) -> list[Receipt]:
    return take_all(stage.broker.publish_each(runs, sender_of(stage))).receipts


def test_several_are_published_in_order_and_each_id_once(stage: Stage) -> None:
    reader = stage.client("r")
    reader.subscribe("a")
    publish(stage, "known", b"0")
    runs = [
        message("x", b"1"),
        message("known", b"-"),
        message("x", b"-"),
        message(None, b"2"),
        message("y", b"3"),
    ]
    receipts = publish_each(stage, runs)
    stage.settle()
    assert reader.take_payloads() == [b"0", b"1", b"2", b"3"]
    assert [receipt.sequence for receipt in receipts] == [2, 1, 2, 3, 4]
    assert [receipt.is_duplicate for receipt in receipts] == [False, True, True, False, False]


def test_the_same_id_twice_at_once_is_one_message_even_if_only_one_is_remembered() -> None:
    stage = Stage(CoreSettings(message_ids=MessageIdSettings(max=1)))
    receipts = publish_each(stage, [message("x"), message("y"), message("x")])
    assert [receipt.sequence for receipt in receipts] == [1, 2, 1]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (message(topic="a/#"), InvalidTopic),
        (message(topic="$SYS/x"), NotAuthorized),
        (message(payload=b"x" * 11), TooLarge),
        (message(message_id="x" * 300), InvalidRequest),
    ],
)
def test_if_one_may_not_be_published_none_is(bad: Run, error: type[Exception]) -> None:
    stage = Stage(CoreSettings(max_payload_bytes=10))
    with pytest.raises(Refused) as caught:
        publish_each(stage, [message("good"), bad, message("good too"), bad])
    assert {index: type(each) for index, each in caught.value.errors.items()} == {1: error, 3: error}
    assert stage.broker.counters.published == 0
    assert not publish(stage, "good").is_duplicate


def test_more_topics_than_a_sender_remembers_are_published_all_the_same(stage: Stage) -> None:
    runs = [message(str(number), topic=f"t/{number}") for number in range(3_000)]
    receipts = publish_each(stage, runs)
    assert {receipt.sequence for receipt in receipts} == {1}
    assert len({receipt.offset for receipt in receipts}) == 3_000


def test_nothing_is_accepted_while_nothing_can_be_stored(disk: Disk) -> None:
    stage = Stage(CoreSettings(log=LogSettings(capture=("#",))), disk=disk)
    publish(stage, "1")
    disk.is_full = True
    stage.settle()
    with pytest.raises(StorageUnavailable):
        publish(stage, "2")
    assert not publish(stage, "3", qos=0).is_stored


def test_a_value_for_which_there_is_no_room_is_not_said_to_be_stored(disk: Disk) -> None:
    settings = CoreSettings(log=LogSettings(capture=()), retained=RetainedSettings(max_messages=1))
    stage = Stage(settings, disk=disk)
    assert publish(stage, "first", retain=True).is_stored
    refused = publish(stage, "second", topic="b", retain=True)
    assert (refused.is_stored, refused.ticket) == (False, None)
    runs = [message(str(number), payload, retain=True) for number, payload in enumerate((b"x", b"y", b""))]
    repeated = publish_each(stage, runs[:2])
    assert [receipt.is_stored for receipt in repeated] == [True, True]
    assert stage.broker.publish_once(runs[2], sender_of(stage)).is_stored  # that there is none any more
    stage.settle()
    assert [str(name).partition("\0")[0] for name in disk.content.tables[RECEIPTS]] == ["a"] * 4
