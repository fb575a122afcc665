"""What is missing: an error that names it, or rows of a side table."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.client import Gap
from penstock.common.cursor import Cursor, Position
from penstock.spark.errors import DataLoss
from penstock.spark.source.data_loss import LossPolicy, subtract_ranges


def cursor(offset: int) -> str:
    return Cursor((Position("ab" * 8, 1, offset),)).encode()


AFTER, UNTIL = cursor(0), cursor(2000)


def ranges_in(folder: Path) -> list[tuple[int, int, str]]:
    rows = pq.read_table(folder).sort_by("first_offset").to_pylist()
    return [(row["first_offset"], row["last_offset"], row["reason"]) for row in rows]


def test_a_loss_is_an_error_that_names_the_range_and_the_reason() -> None:
    with pytest.raises(DataLoss) as caught:
        LossPolicy().declare([Gap(1, 800, "retention")], AFTER, UNTIL)
    assert str(caught.value).startswith(
        "offsets 1 to 800 left the log before this query read them (retention)"
    )
    assert caught.value.code == "data-loss"


def test_several_losses_are_counted() -> None:
    with pytest.raises(DataLoss, match=r"offset 7 were never stored \(never-stored\), and 2 more ranges"):
        LossPolicy().declare(
            [Gap(7, 7, "never-stored"), Gap(9, 9, "damaged"), Gap(11, 12, "new")], AFTER, UNTIL
        )


def test_nothing_missing_is_no_loss(tmp_path: Path) -> None:
    LossPolicy().declare([], AFTER, UNTIL)
    LossPolicy(False, str(tmp_path)).declare([], AFTER, UNTIL)
    assert list(tmp_path.iterdir()) == []


def test_an_accepted_loss_becomes_a_row_of_the_side_table(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "missing"
    LossPolicy(False, str(folder)).declare([Gap(1, 800, "retention"), Gap(900, 900, "damaged")], AFTER, UNTIL)
    assert ranges_in(folder) == [(1, 800, "retention"), (900, 900, "damaged")]
    row = pq.read_table(folder).to_pylist()[0]
    assert (row["log_id"], row["after"], row["until"]) == ("ab" * 8, AFTER, UNTIL)
    assert row["noticed_at"].tzinfo is not None


def test_the_same_loss_is_told_once_and_more_of_it_is_added(tmp_path: Path) -> None:
    losses = LossPolicy(False, str(tmp_path))
    for _ in range(2):
        losses.declare([Gap(1, 800, "retention")], AFTER, UNTIL)
    losses.declare([Gap(1, 1000, "retention")], AFTER, UNTIL)
    losses.declare([Gap(500, 600, "damaged")], AFTER, UNTIL)
    assert ranges_in(tmp_path) == [(1, 800, "retention"), (801, 1000, "retention")]


def test_the_losses_of_another_log_are_others(tmp_path: Path) -> None:
    losses = LossPolicy(False, str(tmp_path))
    losses.declare([Gap(1, 8, "retention")], AFTER, UNTIL)
    losses.declare([Gap(1, 8, "retention")], AFTER, Cursor((Position("cd" * 8, 1, 9),)).encode())
    assert len(ranges_in(tmp_path)) == 2


def test_offsets_that_are_given_again_may_be_lost_again(tmp_path: Path) -> None:
    losses, later = LossPolicy(False, str(tmp_path)), Cursor((Position("ab" * 8, 2, 95),)).encode()
    for _ in range(2):
        losses.declare([Gap(71, 130, "lost-uncommitted")], AFTER, UNTIL)
        losses.declare([Gap(100, 110, "retention")], AFTER, UNTIL)
        losses.declare([Gap(90, 95, "lost-uncommitted")], later, UNTIL)
    assert ranges_in(tmp_path) == [
        (71, 130, "lost-uncommitted"),
        (90, 95, "lost-uncommitted"),
        (100, 110, "retention"),
    ]


def test_the_side_table_can_be_read_before_anything_is_missing(tmp_path: Path) -> None:
    LossPolicy(False, str(tmp_path / "missing")).prepare()
    assert ranges_in(tmp_path / "missing") == []


def test_ranges_are_cut_out_of_gaps() -> None:
    gap = Gap(10, 20, "retention")
    assert subtract_ranges([gap], [(1, 9), (21, 30)]) == [gap]
    assert subtract_ranges([gap], [(1, 12), (15, 16), (20, 25)]) == [
        Gap(13, 14, "retention"),
        Gap(17, 19, "retention"),
    ]
    assert subtract_ranges([gap], [(1, 30)]) == []
