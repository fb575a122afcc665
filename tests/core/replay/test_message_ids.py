"""Ids and cursors of messages: the same at every door, and a way back from an id."""

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.cursor import Cursor, Position
from penstock.core.replay.message_ids import EpochIds, MessageIds
from penstock.model import Door, Properties
from penstock.runs import Run, bare_shape
from penstock.storage.memory import MemoryLog

LOG_ID = "00ff10e2c3a4b5f6"
SHAPE = bare_shape(Door.WEB, 1, retain=False)
OFFSETS = st.integers(0, 2**62 - 1) | st.integers(2**48 - 5, 2**48 + 5)


class OldLog(MemoryLog):
    """A log in its third epoch, whose second ended with offset 40."""

    def __init__(self) -> None:
        super().__init__(1_000)
        self.epoch = 3

    def epochs(self) -> tuple[int, ...]:
        return 1, 2, 3

    def end_of(self, epoch: int) -> int | None:
        return {1: 10, 2: 40}.get(epoch)


def run_at(offset: int, count: int = 1, properties: Properties | None = None) -> Run:
    return Run("a", b"x" * count, 0, 1, count, SHAPE, properties, sequence=7, offset=offset)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**62 - 1))
def test_the_cursor_is_that_of_every_other_door(epoch: int, offset: int) -> None:
    text = EpochIds(LOG_ID, epoch).cursor(offset).decode()
    assert text == Cursor((Position(LOG_ID, epoch, offset),)).encode()


@given(OFFSETS)
def test_the_id_is_a_uuid_of_version_4(offset: int) -> None:
    text = EpochIds(LOG_ID, 3).message_id(offset).decode()
    assert str(UUID(text)) == text
    assert (UUID(text).version, UUID(text).variant) == (4, RFC_4122)


def test_an_id_never_changes_from_one_release_to_the_next() -> None:
    marks = EpochIds(LOG_ID, 3)
    assert marks.message_id(40) == b"7b20940b-5d54-4aac-8000-000000000028"
    assert marks.message_id(2**48 + 40) == b"7b20940b-5d54-4aac-8001-000000000028"


def test_ids_differ_by_log_epoch_and_offset() -> None:
    marks = [EpochIds(LOG_ID, 3), EpochIds(LOG_ID, 4), EpochIds("00ff10e2c3a4b5f7", 3)]
    assert len({each.message_id(offset) for each in marks for offset in (1, 2, 2**40)}) == 9


@given(OFFSETS, st.integers(1, 12))
def test_messages_that_follow_one_another_have_the_ids_that_each_has_alone(offset: int, count: int) -> None:
    marks = EpochIds(LOG_ID, 3)
    assert marks.message_ids(offset, count) == [marks.message_id(offset + index) for index in range(count)]


def test_the_ids_of_a_run_are_of_the_epochs_its_messages_were_published_in() -> None:
    log = OldLog()
    earlier, now = EpochIds(log.log_id, 2), EpochIds(log.log_id, 3)
    assert MessageIds(log).ids_of(run_at(39, 4)) == [
        earlier.message_id(39),
        earlier.message_id(40),
        now.message_id(41),
        now.message_id(42),
    ]


def test_an_id_that_the_publisher_gave_is_kept() -> None:
    marks = MessageIds(OldLog())
    assert marks.ids_of(run_at(41, 1, Properties(message_id="ü-1"))) == ["ü-1".encode()]
    own = MessageIds(OldLog()).at(41).message_id(41)
    assert len(own) == 36 and own != "ü-1".encode()


@pytest.mark.parametrize(("offset", "epoch"), [(1, 1), (10, 1), (11, 2), (40, 2), (41, 3), (1_000, 3)])
def test_each_offset_has_the_epoch_it_was_given_in(offset: int, epoch: int) -> None:
    log = OldLog()
    marks = MessageIds(log)
    assert marks.epoch_of(offset) == epoch
    assert Cursor.decode(marks.cursor(offset).decode()).positions == (Position(log.log_id, epoch, offset),)


@given(st.integers(1, 3), OFFSETS)
def test_an_id_of_ours_leads_back_to_where_its_message_stood(epoch: int, offset: int) -> None:
    log = OldLog()
    message_id = EpochIds(log.log_id, epoch).message_id(offset).decode()
    assert MessageIds(log).position_of(message_id) == Position(log.log_id, epoch, offset)


def test_an_id_that_is_not_of_this_log_leads_nowhere() -> None:
    log = OldLog()
    marks = MessageIds(log)
    ours = marks.at(41).message_id(41).decode()
    foreign = [
        "",
        "order-17",
        ours[:-1],
        ours + "0",
        ours.upper(),
        ours.replace("-8000-", "-0000-"),
        ours.replace("-8000-", "-80001"),
        ours[:-1] + "g",
        ours[:-1] + "\u0661",  # a digit, and not one of ours
        EpochIds(log.log_id, 4).message_id(41).decode(),  # an epoch that has not begun
        EpochIds(LOG_ID, 3).message_id(41).decode(),
    ]
    assert [marks.position_of(each) for each in foreign] == [None] * len(foreign)
    assert marks.position_of(ours) == Position(log.log_id, 3, 41)


class SparseLog(OldLog):
    """The same, restored from a backup: a copy begins an epoch with a number far ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 29_000_000

    def epochs(self) -> tuple[int, ...]:
        return 1, 2, self.epoch

    def end_of(self, epoch: int) -> int | None:
        return 10 if epoch == 1 else 40


def test_epochs_are_found_where_numbers_are_left_out() -> None:
    log = SparseLog()
    marks = MessageIds(log)
    assert [marks.epoch_of(offset) for offset in (10, 11, 40, 41)] == [1, 2, 2, log.epoch]
    assert marks.position_of(marks.at(40).message_id(40).decode()) == Position(log.log_id, 2, 40)
    assert marks.position_of(EpochIds(log.log_id, 3).message_id(41).decode()) is None  # of the original
