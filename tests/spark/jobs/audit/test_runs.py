"""Rows as runs: consecutive messages of a topic, and those that stand where they should not."""

from itertools import chain

import pyarrow as pa
import pytest

from penstock.spark.jobs.audit.runs import OffsetRange, Run, ScannedRows
from tests.spark.jobs.audit.lakes import ALL, RangeEnd, batch, run


def runs_of(*rows: RangeEnd, audited: OffsetRange = ALL) -> list[Run]:
    return list(ScannedRows([batch(rows)], "f", audited).runs())


def behind_in(*rows: RangeEnd) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in ScannedRows([batch(rows)], "f", ALL).behind()]


def test_interleaved_topics_are_one_run_each() -> None:
    rows = chain.from_iterable((("a", 1, n, 2 * n), ("b", 1, n, 2 * n + 1)) for n in range(1, 101))
    assert runs_of(*rows) == [
        run(1, 100, 2, last_offset=200),
        run(1, 100, 3, last_offset=201, topic="b"),
    ]


def test_a_topic_does_not_go_on_with_the_next_one() -> None:
    rows = [("a", 1, 1, 1), ("a", 1, 2, 2), ("b", 1, 3, 3)]
    assert [(each.topic, each.first, each.last) for each in runs_of(*rows)] == [("a", 1, 2), ("b", 3, 3)]


def test_a_hole_a_repetition_a_step_back_and_an_epoch_each_begin_a_run() -> None:
    rows = [
        ("a", 1, 1, 1),
        ("a", 1, 3, 3),
        ("a", 1, 3, 3),
        ("a", 1, 2, 2),
        ("a", 2, 3, 9),
        ("a", 2, 4, 8),
    ]
    assert [(each.epoch, each.first, each.last) for each in runs_of(*rows)] == [
        (1, 1, 1),
        (1, 3, 3),
        (1, 3, 3),
        (1, 2, 2),
        (2, 3, 3),
        (2, 4, 4),
    ]


def test_a_run_ends_where_what_is_audited_ends() -> None:
    rows = [("a", 1, n, n * 10) for n in range(1, 7)]
    found = runs_of(*rows, audited=OffsetRange(20, 40))
    assert [(each.first, each.last, each.is_inside) for each in found] == [
        (1, 2, False),
        (3, 4, True),
        (5, 6, False),
    ]


def test_batches_with_dictionaries_of_their_own_are_joined() -> None:
    def encoded(*rows: RangeEnd) -> pa.RecordBatch:
        plain = batch(rows)
        names = plain.column("topic").dictionary_encode()
        return plain.set_column(1, "topic", names)

    first = encoded(("a", 1, 1, 1), ("b", 1, 1, 2))
    second = encoded(("b", 1, 2, 3), ("a", 1, 2, 4))
    assert list(ScannedRows([first, second], "f", ALL).runs()) == [
        run(1, 2, 1, last_offset=4),
        run(1, 2, 2, last_offset=3, topic="b"),
    ]


def test_nothing_has_no_runs() -> None:
    rows = ScannedRows([], "f", ALL)
    assert (list(rows.runs()), list(rows.behind()), rows.offsets, len(rows)) == ([], [], None, 0)


def test_rows_without_their_numbers_are_refused() -> None:
    data = batch([("a", 1, 1, 1)])
    data = data.set_column(2, "sequence", pa.array([None], pa.int64()))
    with pytest.raises(ValueError, match="no topic, epoch, sequence or offset"):
        ScannedRows([data], "f", ALL)


def test_rows_behind_later_ones_of_their_topic_are_found() -> None:
    assert behind_in(("a", 1, 1, 1), ("a", 1, 4, 4), ("a", 1, 2, 2), ("a", 1, 3, 3), ("a", 1, 5, 5)) == [
        (2, 3)
    ]


def test_an_older_epoch_behind_a_newer_one_is_out_of_order() -> None:
    assert behind_in(("a", 2, 1, 9), ("a", 1, 7, 7)) == [(7, 7)]


def test_topics_may_stand_in_any_order() -> None:
    assert behind_in(("b", 1, 1, 7), ("b", 1, 2, 8), ("a", 1, 1, 1), ("a", 1, 2, 2)) == []


def test_a_repeated_row_is_not_out_of_order_as_well() -> None:
    assert behind_in(("a", 1, 1, 1), ("a", 1, 2, 2), ("a", 1, 3, 3), ("a", 1, 2, 2)) == []
