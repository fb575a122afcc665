"""Durable mark: it may be one write old, or missing, and is never wrong."""

from pathlib import Path
from random import Random

from penstock.storage.disk.commit.durable_mark import DurableMark, MarkValue
from penstock.storage.disk.rocksdb.layout import MARK_FILE
from tests.storage.disk.damage import append, cut


def write(path: Path, *values: tuple[int, int], epoch: int = 1) -> None:
    mark = DurableMark.open(path)
    mark.epoch = epoch
    for offset, commit in values:
        mark.write(offset, commit)
    mark.close()


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    write(tmp_path, (10, 1), (20, 2), (30, 3), epoch=7)
    assert DurableMark.read(tmp_path) == MarkValue(30, 3, 7)


def test_there_is_no_value_before_the_first_is_written(tmp_path: Path) -> None:
    assert DurableMark.read(tmp_path) is None
    mark = DurableMark.open(tmp_path)
    assert mark.value is None
    assert DurableMark.read(tmp_path) is None
    mark.close()


def test_writing_continues_after_the_value_of_the_last_process(tmp_path: Path) -> None:
    for commit in range(1, 6):
        write(tmp_path, (commit * 10, commit))
        assert DurableMark.read(tmp_path) == MarkValue(commit * 10, commit, 1)


def test_the_epoch_of_the_last_process_stays_until_it_is_set(tmp_path: Path) -> None:
    write(tmp_path, (10, 1), epoch=4)
    mark = DurableMark.open(tmp_path)
    mark.write(20, 2)
    mark.close()
    assert DurableMark.read(tmp_path) == MarkValue(20, 2, 4)


def test_an_offset_may_stay_while_commits_rise(tmp_path: Path) -> None:
    write(tmp_path, (10, 1), (10, 2), (10, 3))
    assert DurableMark.read(tmp_path) == MarkValue(10, 3, 1)


def test_any_flipped_bit_leaves_one_of_the_last_two_values(tmp_path: Path) -> None:
    write(tmp_path, (10, 1), (20, 2), (30, 3))
    file = tmp_path / MARK_FILE
    good = file.read_bytes()
    values = set()
    used = [place for place in range(len(good)) if place % 512 < 40]
    for place in used:
        for bit in range(8):
            damaged = bytearray(good)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            values.add(DurableMark.read(tmp_path))
    assert values == {MarkValue(20, 2, 1), MarkValue(30, 3, 1)}


def test_a_mark_cut_anywhere_is_read_or_is_none(tmp_path: Path) -> None:
    write(tmp_path, (10, 1), (20, 2))
    file = tmp_path / MARK_FILE
    good = file.read_bytes()
    values = set()
    for length in range(0, len(good), 4):
        file.write_bytes(good[:length])
        values.add(DurableMark.read(tmp_path))
    assert values == {None, MarkValue(20, 2, 1)}


def test_a_cut_mark_can_be_written_again(tmp_path: Path) -> None:
    write(tmp_path, (10, 1), (20, 2))
    cut(tmp_path / MARK_FILE, Random(1))
    append(tmp_path / MARK_FILE, Random(1))
    write(tmp_path, (30, 3))
    assert DurableMark.read(tmp_path) == MarkValue(30, 3, 1)
