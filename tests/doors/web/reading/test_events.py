"""Messages as events: one line each, with marks that never change."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.cursor import Cursor, Position
from penstock.core.replay.message_ids import EpochIds
from penstock.doors.web.reading.events import EventTexts
from penstock.model import Door, Properties
from penstock.runs import Run, bare_shape
from penstock.storage.memory import MemoryLog

SHAPE = bare_shape(Door.WEB, 1, retain=False)


def run_of(topic: str, *payloads: bytes, properties: Properties | None = None) -> Run:
    """A run of messages of the same size."""
    stride = len(payloads[0])
    return Run(topic, b"".join(payloads), 0, stride, len(payloads), SHAPE, properties, sequence=7, offset=40)


@given(st.text(min_size=1), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_topic_and_data_are_what_they_were(topic: str, data: Any) -> None:
    try:
        payload = json.dumps(data).encode()
        topic.encode()
    except UnicodeEncodeError:
        return
    if b"\\ud" in payload or (isinstance(data, int) and abs(data) >= 2**63):
        return  # what is no JSON for us is bytes
    (text,) = EventTexts(MemoryLog(1_000)).of(run_of(topic, payload))
    said = json.loads(text)
    assert (said["type"], said["topic"], said["data"]) == ("event", topic, data)
    assert b"\n" not in text


def test_each_message_of_a_run_has_its_own_marks() -> None:
    log = MemoryLog(1_000)
    texts = [json.loads(text) for text in EventTexts(log).of(run_of("a", b"10", b"11", b"xx"))]
    assert [text["data"] for text in texts] == [10, 11, "xx"]
    assert [text["sequence"] for text in texts] == [7, 8, 9]
    positions = [Cursor.decode(text["cursor"]).positions[0] for text in texts]
    assert positions == [Position(log.log_id, log.epoch, offset) for offset in (40, 41, 42)]
    assert len({text["message_id"] for text in texts}) == 3


@pytest.mark.parametrize("message_id", ["a", 'with "quotes"', "ü"])
def test_an_id_of_its_own_is_kept(message_id: str) -> None:
    run = run_of("a", b"1", properties=Properties(message_id=message_id))
    (text,) = EventTexts(MemoryLog(1_000)).of(run)
    assert json.loads(text)["message_id"] == message_id


class OldLog(MemoryLog):
    """A log in its third epoch, whose second ended with offset 40."""

    def __init__(self) -> None:
        super().__init__(1_000)
        self.epoch = 3

    def epochs(self) -> tuple[int, ...]:
        return 1, 2, 3

    def end_of(self, epoch: int) -> int | None:
        return {1: 10, 2: 40}.get(epoch)


def test_a_message_keeps_the_marks_of_the_epoch_it_was_published_in() -> None:
    log = OldLog()
    texts = [json.loads(text) for text in EventTexts(log).of(run_of("a", b"1", b"2"))]
    positions = [Cursor.decode(text["cursor"]).positions[0] for text in texts]
    assert [position.epoch for position in positions] == [2, 3]
    assert texts[0]["message_id"] == EpochIds(log.log_id, 2).message_id(40).decode()
