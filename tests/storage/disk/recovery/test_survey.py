"""Survey at start: finds the end of the log and every missing offset."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.statement import Gap
from penstock.model import Reason
from penstock.storage.disk.commit.durable_mark import MarkValue
from penstock.storage.disk.pieces.piece import Piece
from penstock.storage.disk.recovery.survey import Survey, survey
from penstock.storage.disk.rocksdb.errors import DamagedData
from penstock.storage.disk.rocksdb.layout import FIRST_OFFSET_KEY, INDEX, LOG, ROWS, STATE, offset_key
from penstock.storage.disk.rocksdb.store import Changes
from tests.storage.disk.damage import flip_byte, table_of
from tests.storage.disk.written_log import WrittenLog, payload, read_piece


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    log = WrittenLog(tmp_path)
    yield log
    log.close()


def look(log: WrittenLog) -> Survey:
    return survey(log.store, log.mark.value)


def damaged(first: int, last: int) -> tuple[Gap, ...]:
    return (Gap(first, last, Reason.DAMAGED),)


def delete(log: WrittenLog, family: str, first: int) -> None:
    changes = Changes()
    changes.delete(family, offset_key(first))
    log.store.write(changes, sync=False)


def pieces(found: Survey) -> list[Piece]:
    return found.index.after(0)


def test_a_new_log_has_nothing_and_misses_nothing(log: WrittenLog) -> None:
    found = survey(log.store, None)
    assert (found.last_offset, found.rows, found.sequences, found.damage) == (0, 0, {}, ())
    assert not pieces(found)


def test_batches_and_rows_are_found_in_order(log: WrittenLog) -> None:
    for _ in range(4):
        log.commit(5)
    log.seal()
    log.commit(5)
    log.commit(1)
    found = look(log)
    assert [(piece.first, piece.last, piece.count, piece.is_sealed) for piece in pieces(found)] == [
        (1, 20, 20, True),
        (21, 25, 5, False),
        (26, 26, 1, False),
    ]
    assert (found.last_offset, found.rows, found.damage) == (26, 6, ())
    assert found.last_commit == log.commits
    assert not found.is_state_behind


def test_only_what_is_not_sealed_tells_last_sequences(log: WrittenLog) -> None:
    log.commit(5)
    log.seal()
    assert look(log).sequences == {}
    log.commit(5)
    log.commit(3)
    assert look(log).sequences == {"a/b": 13}


def test_what_could_not_be_stored_is_a_hole_and_no_damage(log: WrittenLog) -> None:
    log.commit(5, holes=[(2, 3)])
    found = look(log)
    assert pieces(found)[0].holes == ((2, 3),)
    assert found.damage == ()


@pytest.mark.parametrize(("missing", "gap"), [(1, (1, 5)), (6, (6, 10))])
def test_a_missing_frame_is_reported(log: WrittenLog, missing: int, gap: tuple[int, int]) -> None:
    for _ in range(3):
        log.commit(5)
    delete(log, ROWS, missing)
    found = look(log)
    assert found.damage == damaged(*gap)
    assert found.last_offset == 15


def test_an_undecodable_frame_is_reported(log: WrittenLog) -> None:
    for _ in range(3):
        log.commit(5)
    changes = Changes()
    changes.put(ROWS, offset_key(6), b"nonsense")
    log.store.write(changes, sync=False)
    assert look(log).damage == damaged(6, 10)


def test_a_log_that_ends_before_its_mark_has_lost_its_end(log: WrittenLog) -> None:
    for _ in range(3):
        log.commit(5)
    delete(log, ROWS, 11)
    found = look(log)
    assert found.damage == damaged(11, 15)
    assert found.last_offset == 15  # so that no new message gets the number of a lost one
    assert found.index.last_offset == 10


def test_a_lost_end_stays_visible_when_the_log_has_gone_on(log: WrittenLog) -> None:
    for _ in range(3):
        log.commit(5)
    delete(log, ROWS, 11)
    log.commit(5)
    found = look(log)
    assert found.damage == damaged(11, 15)
    assert found.last_offset == 20


def test_everything_up_to_the_mark_is_lost_if_there_is_nothing_else(log: WrittenLog) -> None:
    found = survey(log.store, MarkValue(1_000, 50, 3))
    assert found.damage == damaged(1, 1_000)
    assert (found.last_offset, found.last_commit, found.epoch) == (1_000, 50, 3)
    assert found.is_state_behind


def test_what_retention_removed_is_not_missed(log: WrittenLog) -> None:
    for _ in range(3):
        log.commit(5)
    changes = Changes()
    changes.delete_range(ROWS, offset_key(0), offset_key(6))
    changes.put(STATE, FIRST_OFFSET_KEY, offset_key(6))
    log.store.write(changes, sync=False)
    found = look(log)
    assert found.damage == ()
    assert found.index.first_offset == 6
    delete(log, ROWS, 6)
    assert look(log).damage == damaged(6, 10)


def test_rows_that_a_batch_has_too_count_once(log: WrittenLog) -> None:
    frames = [log.commit(5) for _ in range(3)]
    rows = dict(log.store.scan(ROWS))
    log.seal()
    changes = Changes()
    for frame in frames:
        changes.put(ROWS, offset_key(frame.first), rows[offset_key(frame.first)])
    log.store.write(changes, sync=False)
    found = look(log)
    assert [(piece.first, piece.last, piece.is_sealed) for piece in pieces(found)] == [(1, 15, True)]
    assert found.rows == 0


def test_the_epoch_is_the_highest_that_anyone_knows_of(log: WrittenLog) -> None:
    log.commit()
    assert survey(log.store, None).epoch == 1
    log.epoch = 5
    log.commit()
    assert survey(log.store, None).epoch == 5
    log.put_state("epochs", "7", b"")
    assert survey(log.store, None).epoch == 7
    assert survey(log.store, MarkValue(0, 0, 9)).epoch == 9


def test_a_sealed_batch_tells_its_epoch(log: WrittenLog) -> None:
    log.epoch = 5
    log.commit()
    log.seal()
    assert survey(log.store, None).epoch == 5


def test_lost_commits_are_reported_although_no_message_is_missing(log: WrittenLog) -> None:
    log.commit()
    log.mark.write(5, log.commits + 1)
    found = look(log)
    assert found.is_state_behind
    assert found.damage == ()


def test_batches_that_the_index_forgot_are_found_again(log: WrittenLog) -> None:
    for _ in range(3):
        log.commit(5)
        log.commit(5)
        log.seal()
    whole = pieces(look(log))
    for piece in whole[:2]:
        delete(log, INDEX, piece.first)
    found = look(log)
    assert pieces(found) == whole
    assert found.damage == ()
    assert found.epoch == 1


def test_a_missing_batch_is_reported(log: WrittenLog) -> None:
    for _ in range(3):
        log.commit(5)
        log.seal()
    delete(log, INDEX, 6)
    delete(log, LOG, 6)
    assert look(log).damage == damaged(6, 10)


def test_a_damaged_block_of_the_index_hides_no_batch(log: WrittenLog) -> None:
    for _ in range(20):
        log.commit(5)
        log.seal()
    log.settle()
    flip_byte(table_of(log.path, INDEX), 200)
    log.settle()
    with pytest.raises(DamagedData):
        list(log.store.scan(INDEX))
    found = look(log)
    assert found.damage == ()
    assert {key: value for piece in pieces(found) for key, value in read_piece(log.store, piece).items()} == {
        offset: payload(offset) for offset in range(1, 101)
    }


def test_a_damaged_block_of_rows_hides_only_what_is_in_it(log: WrittenLog) -> None:
    for _ in range(200):
        log.commit(5)
    log.settle()
    rows = table_of(log.path, ROWS)
    flip_byte(rows, rows.read_bytes().index(payload(500)))
    log.settle()
    found = look(log)
    (gap,) = found.damage
    assert gap.first <= 500 <= gap.last
    assert gap.last - gap.first < 100
    assert sum(piece.count for piece in found.index.after(0)) + gap.last - gap.first + 1 == 1_000
