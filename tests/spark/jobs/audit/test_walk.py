"""Proof by epoch and sequence over the runs of topics, and the totals of tasks."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.audit.explain import Absence, Reasons
from penstock.spark.jobs.audit.runs import Finding, OffsetRange, Run, ScannedRows
from penstock.spark.jobs.audit.walk import WalkCounter, WalkTotals, sum_findings, walk
from tests.spark.jobs.audit.lakes import ALL, batch, run

SOMETHING = Finding("missing", "a", 1, 1, 1, 1)


def test_topics_and_epochs_of_all_tasks_are_added_up() -> None:
    one, other = WalkCounter(), WalkCounter()
    list(one.watch([run(1, 2), run(3, 4, epoch=2), run(1, 1, topic="b")]))
    list(other.watch([run(1, 2, topic="c", epoch=2), run(1, 2, topic="d", is_inside=False)]))
    findings = [*one.end(iter([SOMETHING]), 5), *other.end(iter([]), 5)]
    assert sum_findings(findings) == ([SOMETHING], WalkTotals(3, 2, 9, is_all=True, claims=[]))


def test_more_findings_than_one_task_brings_home_are_told() -> None:
    found, totals = sum_findings(list(WalkCounter().end(iter([SOMETHING] * 7), 5)))
    assert (len(found), totals.is_all) == (5, False)


def test_what_is_known_never_stands_in_the_way_of_what_is_wrong() -> None:
    known = Finding("known", "k", 1, 2, 3, 2, "expired")
    claim = Finding("claim", "", 0, 5, 9, 2, "expired")
    tasks = [WalkCounter().end([known, claim] * 7 + [SOMETHING], 5) for _ in range(2)]
    found, totals = sum_findings([each for task in tasks for each in task])
    assert (found.count(known), found.count(SOMETHING)) == (10, 2)
    assert (totals.is_all, totals.known) == (True, {"expired": 28})
    assert totals.claims == [claim._replace(messages=28)]


LOG = ""

Told = tuple[str, int, int, int, str]
"""Kind, epoch, first and last sequence, reason."""


def found(
    *runs: Run,
    reasons: Reasons | None = None,
    audited: OffsetRange = ALL,
    is_from_start: bool = True,
) -> list[Finding]:
    return [
        each
        for each in walked(*runs, reasons=reasons, audited=audited, is_from_start=is_from_start)
        if each.kind != "claim"
    ]


def walked(
    *runs: Run,
    reasons: Reasons | None = None,
    audited: OffsetRange = ALL,
    is_from_start: bool = True,
) -> list[Finding]:
    ordered = sorted(runs, key=lambda each: each.order)
    return list(walk(ordered, reasons or Reasons(), audited, is_from_start=is_from_start))


def told(*runs: Run, **how: object) -> list[Told]:
    return [(each.kind, each.epoch, each.first, each.last, each.reason) for each in found(*runs, **how)]  # type: ignore[arg-type]


def missing(first: int, last: int, reason: str = "unexplained", epoch: int = 1) -> Told:
    return ("missing", epoch, first, last, reason)


def test_a_topic_that_is_there_once_from_its_first_message_on_is_clean() -> None:
    assert told(run(1, 10), run(11, 20, path="g"), run(1, 5, 30, topic="b")) == []


def test_files_may_hold_any_part_of_a_topic() -> None:
    assert told(run(5, 6), run(1, 1), run(7, 20, path="g"), run(2, 4, path="h")) == []


def test_the_first_messages_are_missing() -> None:
    assert told(run(4, 10)) == [missing(1, 3)]


def test_what_was_before_the_lake_began_is_not_missing() -> None:
    assert told(run(4, 10), is_from_start=False) == []


def test_messages_in_the_middle_are_missing() -> None:
    (one,) = found(run(1, 3), run(7, 9, path="g"))
    assert one == Finding("missing", "a", 1, 4, 6, 3, "unexplained", after=3, before=7)


def test_the_last_messages_are_missing_as_soon_as_the_log_says_so() -> None:
    assert told(run(1, 3)) == []
    assert told(run(1, 3), run(1, 5, path=LOG)) == [("only-in-log", 1, 4, 5, "unexplained")]


def test_the_last_messages_of_an_epoch_are_missing_when_the_next_goes_on_behind_them() -> None:
    assert told(run(1, 3), run(6, 8, epoch=2)) == [missing(4, 5, epoch=2)]


def test_an_epoch_that_goes_on_where_the_last_one_ended_is_clean() -> None:
    assert told(run(1, 3), run(4, 8, epoch=2), run(9, 9, epoch=5)) == []


def test_an_epoch_that_gives_sequences_again_is_clean() -> None:
    assert told(run(1, 9), run(4, 12, 20, epoch=2)) == []


def test_the_same_sequence_of_two_epochs_is_two_messages() -> None:
    assert told(run(1, 9), run(9, 9, 20, epoch=2)) == []


def test_what_is_missing_behind_sequences_that_were_given_again_is_found() -> None:
    assert told(run(1, 9), run(4, 5, 20, epoch=2), run(8, 9, 25, epoch=2)) == [missing(6, 7, epoch=2)]


def test_a_message_twice_in_one_file_is_double() -> None:
    (one,) = found(run(1, 5), run(3, 3), run(6, 9))
    assert one == Finding("double", "a", 1, 3, 3, 1, path="f", other="f")


def test_messages_in_two_files_are_double_where_they_overlap() -> None:
    (one,) = found(run(1, 5), run(4, 9, path="g"))
    assert one == Finding("double", "a", 1, 4, 5, 2, path="g", other="f")


def test_a_run_inside_another_is_double_and_hides_nothing_behind_it() -> None:
    assert told(run(1, 9), run(2, 3, path="g"), run(5, 6, path="g"), run(12, 13)) == [
        ("double", 1, 2, 3, ""),
        ("double", 1, 5, 6, ""),
        missing(10, 11),
    ]


def test_messages_three_times_are_told_twice() -> None:
    copies = [run(1, 4, path=path) for path in "fgh"]
    assert [each.kind for each in found(*copies)] == ["double", "double"]


def test_offsets_that_fall_while_sequences_rise_are_out_of_order() -> None:
    (one,) = found(run(1, 3, 10), run(4, 6, 5, path="g"))
    assert (one.kind, one.first, one.last, one.path) == ("out-of-order", 4, 6, "g")


def test_offsets_may_fall_when_an_epoch_begins() -> None:
    assert told(run(1, 3, 10), run(2, 4, 5, epoch=2)) == []


def test_the_lake_need_not_have_what_the_log_has_not() -> None:
    assert told(run(1, 9), run(3, 5, path=LOG)) == []


def test_what_only_the_log_has_is_told_wherever_it_is() -> None:
    runs = [run(1, 20, path=LOG), run(3, 4), run(7, 8, path="g"), run(9, 9), run(12, 12)]
    assert told(*runs) == [
        ("only-in-log", 1, 1, 2, "unexplained"),
        ("only-in-log", 1, 5, 6, "unexplained"),
        ("only-in-log", 1, 10, 11, "unexplained"),
        ("only-in-log", 1, 13, 20, "unexplained"),
    ]


def test_the_log_of_an_older_epoch_is_not_covered_by_a_newer_one() -> None:
    assert told(run(1, 5, path=LOG), run(1, 3), run(4, 9, epoch=2)) == [
        ("only-in-log", 1, 4, 5, "unexplained")
    ]


def test_the_log_of_a_newer_epoch_is_not_covered_by_an_older_one() -> None:
    assert told(run(1, 9), run(4, 7, 20, epoch=2, path=LOG)) == [("only-in-log", 2, 4, 7, "unexplained")]


def test_sequences_that_are_given_again_do_not_hide_what_only_the_log_has() -> None:
    assert told(run(1, 5, path=LOG), run(1, 3), run(2, 9, 20, epoch=2)) == [
        ("only-in-log", 1, 4, 5, "unexplained")
    ]


def test_a_topic_of_which_the_lake_has_nothing_is_told_by_the_log() -> None:
    assert told(run(1, 5, path=LOG)) == [("only-in-log", 1, 1, 5, "unexplained")]


def test_rows_of_the_log_make_a_hole_smaller() -> None:
    rows = [run(1, 2, 1), run(5, 5, 50, path=LOG), run(9, 9, 90)]
    assert told(*rows) == [
        missing(3, 4),
        ("only-in-log", 1, 5, 5, "unexplained"),
        missing(6, 8),
    ]


def test_topics_do_not_explain_or_hide_each_other() -> None:
    assert [(each.topic, each.first) for each in found(run(1, 1), run(3, 3), run(2, 5, topic="b"))] == [
        ("a", 2),
        ("b", 1),
    ]


def test_a_declared_gap_makes_a_hole_known() -> None:
    declared = Reasons((Absence(4, 6, "retention"),))
    assert told(run(1, 3), run(7, 9), reasons=declared) == [("known", 1, 4, 6, "retention")]


def test_known_holes_of_a_topic_are_summed_up() -> None:
    declared = Reasons((Absence(4, 6, "retention"), Absence(10, 10, "retention")))
    (one,) = found(run(1, 3), run(7, 9), run(11, 12), reasons=declared)
    assert (one.kind, one.first, one.last, one.messages) == ("known", 4, 10, 4)


def test_a_gap_explains_no_more_messages_than_it_has_offsets() -> None:
    declared = Reasons((Absence(4, 5, "retention"),))
    assert told(run(1, 3), run(7, 9), reasons=declared) == [missing(4, 6)]


def test_rows_that_expired_in_the_lake_and_are_in_the_log_are_known() -> None:
    expired = Reasons((Absence(1, 5, "expired", rows=5, is_of_lake=True),))
    assert told(run(1, 9, path=LOG), run(6, 9), reasons=expired) == [("known", 1, 1, 5, "expired")]


def test_a_gap_that_the_log_can_fill_by_now_is_told() -> None:
    declared = Reasons((Absence(1, 5, "damaged"),))
    assert told(run(1, 9, path=LOG), run(6, 9), reasons=declared) == [("only-in-log", 1, 1, 5, "unexplained")]


def test_what_was_in_a_damaged_file_is_missing_for_that_reason() -> None:
    damaged = Reasons((Absence(4, 6, "damaged-file", rows=3, is_of_lake=True),))
    assert told(run(1, 3), run(7, 9), reasons=damaged) == [missing(4, 6, "damaged-file")]


def test_holes_outside_of_what_is_audited_are_left_out() -> None:
    outside = {"is_inside": False}
    runs = [run(1, 2, **outside), run(5, 6, **outside), run(11, 12), run(20, 21, **outside)]  # type: ignore[arg-type]
    assert told(*runs, run(30, 30, is_inside=False), audited=OffsetRange(8, 15)) == [
        missing(7, 10),
        missing(13, 19),
    ]


def test_doubles_outside_of_what_is_audited_are_left_out() -> None:
    twice = [run(1, 5, is_inside=False), run(4, 5, path="g", is_inside=False)]
    assert told(*twice, run(6, 9), audited=OffsetRange(5, 9)) == []
    assert [each.kind for each in found(run(1, 5), run(4, 5, path="g", is_inside=False))] == ["double"]


def test_sequences_between_neighbours_were_never_given() -> None:
    assert told(run(1, 3, 10), run(1001, 1003, 13)) == [("known", 1, 4, 1000, "skipped")]


def test_between_neighbours_of_two_epochs_there_may_have_been_messages() -> None:
    """The log may have lost its end, and given the offset before the second one again."""
    assert told(run(1, 3, 10), run(6, 8, 13, epoch=2)) == [missing(4, 5, epoch=2)]
    of_log = [run(1, 3, 10, path=LOG), run(6, 8, 13, epoch=2, path=LOG)]
    rows = [run(1, 3, 10), run(6, 8, 13, epoch=2)]
    assert told(*of_log, *rows) == [("known", 2, 4, 5, "skipped")]


def test_offsets_that_go_back_do_not_make_a_hole_look_skipped() -> None:
    assert told(run(1, 9, 122), run(15, 16, 75, epoch=2)) == [missing(10, 14, epoch=2)]


def test_the_log_says_nothing_of_offsets_that_it_has_given_again() -> None:
    """Two messages of epoch 1 are missing where the log, which lost its end, has others by now."""
    read = Reasons(log_has=((1, 200),))
    lake = [run(1, 5, 91), run(8, 9, 98), run(4, 6, 71, epoch=2)]
    assert told(*lake, run(1, 3, 1, path=LOG), run(4, 6, 71, epoch=2, path=LOG), reasons=read) == [
        missing(6, 7)
    ]
    of_log = [run(1, 5, 91, path=LOG), run(8, 9, 98, path=LOG)]
    assert told(*lake[:2], *of_log, reasons=read) == [("known", 1, 6, 7, "not-captured")]


def test_a_topic_that_was_not_read_in_the_log_is_not_excused_by_it() -> None:
    for read in ((1, 20), (3, 20), (1, 8)):  # around both neighbours, the second or the first
        assert told(run(1, 2, 1), run(5, 6, 9), reasons=Reasons(log_has=(read,))) == [missing(3, 4)]
    declared = Reasons((Absence(4, 5, "retention"),), log_has=((1, 20),))
    assert told(run(1, 2, 1), run(5, 6, 9), reasons=declared) == [("known", 1, 3, 4, "retention")]


def test_what_only_the_log_has_is_explained_by_the_offsets_it_can_have_only() -> None:
    expired = Reasons((Absence(18, 19, "expired", rows=2, is_of_lake=True),))
    log = run(1, 20, path=LOG)
    assert told(log, run(3, 20), reasons=expired) == [("only-in-log", 1, 1, 2, "unexplained")]
    assert told(log, run(1, 17), run(20, 20), reasons=expired) == [("known", 1, 18, 19, "expired")]
    early = Reasons((Absence(1, 2, "expired", rows=2, is_of_lake=True),))
    assert told(log, run(1, 17), run(20, 20), reasons=early) == [("only-in-log", 1, 18, 19, "unexplained")]


def test_whatever_has_a_reason_lays_claim_to_it() -> None:
    declared = Reasons((Absence(4, 6, "retention"), Absence(9, 9, "damaged")))
    found = walked(run(1, 3), run(7, 8), run(10, 11), reasons=declared)
    claims = [(each.first, each.last, each.messages, each.reason) for each in found if each.kind == "claim"]
    assert claims == [(4, 6, 3, "retention"), (9, 9, 1, "damaged")]


def test_holes_that_need_no_room_lay_no_claim() -> None:
    reasons = Reasons((Absence(4, 6, "retention"),), captured=("b",))
    runs = [run(1, 3, 10), run(9, 9, 13), run(1, 3, 1, topic="c"), run(7, 9, topic="c")]
    assert {each.kind for each in walked(*runs, reasons=reasons)} == {"known"}


Numbers = st.lists(st.integers(1, 30), max_size=40)


@given(Numbers, st.integers(1, 5))
def test_every_lost_and_every_repeated_row_is_counted_whatever_files_they_are_in(
    numbers: list[int], files: int
) -> None:
    """Compare with counting, for rows of one topic that were thrown into files at random."""
    rows: dict[str, list[int]] = {}
    for position, number in enumerate(numbers):
        rows.setdefault(str(position * 7 % files), []).append(number)
    runs = _runs_in(rows)
    findings = found(*runs)
    lost = {number for number in range(1, max(numbers, default=0)) if number not in numbers}
    assert _sequences(findings, "missing") == sorted(lost)
    assert len(_sequences(findings, "double")) == len(numbers) - len(set(numbers))


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_what_the_log_has_and_the_lake_has_not_is_found_exactly(lake: set[int], log: set[int]) -> None:
    findings = found(*_runs_in({"f": sorted(lake), LOG: sorted(log)}))
    assert _sequences(findings, "only-in-log") == sorted(log - lake)
    known = lake | log
    assert _sequences(findings, "missing") == sorted(set(range(1, max(known, default=0))) - known)


def _runs_in(rows: dict[str, list[int]]) -> list[Run]:
    return [
        each
        for path, numbers in rows.items()
        for each in ScannedRows(
            [batch(("a", 1, number, number * 10) for number in numbers)], path, ALL
        ).runs()
    ]


def _sequences(findings: Iterable[Finding], kind: str) -> list[int]:
    chosen = (each for each in findings if each.kind == kind)
    return sorted(number for each in chosen for number in range(each.first, each.last + 1))
