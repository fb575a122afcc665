"""Reasons for missing messages, each used only once, judged by their possible offsets."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.messages import Gap
from penstock.lake import DataFile, Expired, Manifest, bucket_of
from penstock.spark.jobs.audit.explain import (
    Absence,
    Excess,
    Range,
    Reasons,
    collect_reasons,
    find_excess,
    subtract,
)
from penstock.spark.jobs.audit.runs import DAMAGED, GAP, READ, Evidence, Finding, Run
from penstock.spark.jobs.audit.walk import WalkCounter, sum_findings, walk
from tests.spark.jobs.audit.lakes import ALL, run


def claim(first: int, last: int, messages: int, reason: str = "retention", bucket: int = 0) -> Finding:
    return Finding("claim", "", bucket, first, last, messages, reason)


def excess(claims: Sequence[Finding], *absences: Absence) -> list[tuple[int, int, int]]:
    return [(each.first, each.last, each.messages) for each in find_excess(claims, absences)]


def test_claims_that_find_room_leave_nothing() -> None:
    gaps = [Absence(1, 5, "retention"), Absence(9, 9, "retention")]
    assert excess([claim(1, 9, 4), claim(1, 5, 2)], *gaps) == []


def test_one_row_that_expired_does_not_explain_fifty_messages_of_fifty_topics() -> None:
    holes = [each for n in range(50) for each in _hole(f"t{n:02}", 1 + n, 900 + n)]
    for absence in (Absence(1, 999, "expired", rows=1, is_of_lake=True), Absence(500, 500, "retention")):
        counter = WalkCounter()
        found = counter.end(walk(counter.watch(holes), Reasons((absence,)), ALL, is_from_start=True), 1_000)
        _, totals = sum_findings(list(found))
        assert sum(each.messages for each in find_excess(totals.claims, [absence])) == 49


def test_room_elsewhere_is_no_room_here() -> None:
    gaps = [Absence(1, 1_000, "retention"), Absence(5_000, 5_000, "retention")]
    assert excess([claim(5_000, 5_000, 50)], *gaps) == [(5_000, 5_000, 49)]
    assert excess([claim(500, 500, 50)], *gaps) == [(500, 500, 49)]


def test_another_reason_or_another_bucket_gives_no_room() -> None:
    expired = Absence(1, 9, "expired", rows=3, bucket=1)
    assert excess([claim(1, 9, 1)], expired) == [(1, 9, 1)]
    assert excess([claim(1, 9, 1, "expired", bucket=0)], expired) == [(1, 9, 1)]
    assert excess([claim(1, 9, 3, "expired", bucket=1)], expired) == []
    assert excess([claim(1, 9, 4, "expired", bucket=1)], expired) == [(1, 9, 1)]


def test_claims_to_more_than_one_reason_take_what_the_others_leave() -> None:
    rooms = [Absence(1, 2, "retention"), Absence(3, 4, "expired", rows=2)]
    both = claim(1, 4, 2, "expired, retention")
    assert excess([both, claim(1, 2, 2)], *rooms) == []
    assert list(find_excess([both, claim(1, 2, 2), claim(3, 4, 1, "expired")], rooms)) == [
        Excess(1, 4, "expired, retention", 1)
    ]


Spans = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), max_size=5)


@given(Spans, st.sets(st.integers(1, 8)))
def test_claims_go_without_only_if_not_all_of_them_can_have_room(
    spans: list[tuple[int, int]], gone: set[int]
) -> None:
    """Compare with Hall's condition, for claims of one message each."""
    claims = [claim(first, first + more, 1) for first, more in spans]
    left = sum(each.messages for each in find_excess(claims, [Absence(at, at, "retention") for at in gone]))
    wanting = 0
    for first, last in product(range(1, 9), range(1, 16)):
        inside = sum(first <= each.first and each.last <= last for each in claims)
        wanting = max(wanting, inside - sum(first <= at <= last for at in gone))
    assert bool(left) == bool(wanting)
    assert left >= wanting


def _hole(topic: str, offset: int, before: int) -> list[Run]:
    return [run(1, 1, offset, topic=topic), run(3, 3, before, topic=topic)]


def test_between_neighbours_there_was_no_message() -> None:
    assert Reasons().reason("a", 500, 10, 11) == "skipped"


def test_without_a_reason_it_is_unexplained() -> None:
    assert Reasons().reason("a", 1, 10, 12) == "unexplained"


def test_where_the_log_was_read_and_has_it_not_it_was_never_captured() -> None:
    reasons = Reasons(log_has=((1, 5), (6, 20)))
    assert reasons.reason("a", 3, 4, 12) == "not-captured"
    assert reasons.reason("a", 3, 4, 30) == "unexplained"


def test_only_what_the_log_does_not_have_any_more_needs_another_reason() -> None:
    reasons = Reasons((Absence(1, 3, "retention"),), log_has=((4, 20),))
    assert reasons.reason("a", 3, 0, 10) == "retention"
    assert reasons.reason("a", 4, 0, 10) == "unexplained"


def test_topics_that_are_not_captured_have_holes() -> None:
    reasons = Reasons(captured=("plant/#",))
    assert reasons.reason("office/door", 1, 10, 20) == "not-captured"
    assert reasons.reason("plant/pump", 1, 10, 20) == "unexplained"


def test_the_news_of_the_server_are_captured_by_default() -> None:
    assert Reasons().reason("$penstock/drops", 1, 10, 20) == "unexplained"
    assert Reasons().reason("$other", 1, 10, 20) == "not-captured"


def test_reasons_that_explain_it_only_together_are_both_told() -> None:
    reasons = Reasons((Absence(1, 2, "retention"), Absence(5, 6, "damaged")))
    assert reasons.reason("a", 4, 0, 10) == "damaged, retention"
    assert reasons.reason("a", 5, 0, 10) == "unexplained"


def test_a_reason_explains_no_more_than_there_were_rows() -> None:
    reasons = Reasons((Absence(1, 100, "expired", rows=3),))
    assert reasons.reason("a", 3, 0, 100) == "expired"
    assert reasons.reason("a", 4, 0, 100) == "unexplained"


def test_of_two_reasons_that_may_be_true_the_worse_is_told() -> None:
    reasons = Reasons((Absence(1, 9, "expired", rows=9), Absence(5, 9, "damaged-file", rows=3)))
    assert reasons.reason("a", 2, 0, 10) == "damaged-file"


def test_what_expired_in_one_bucket_explains_nothing_in_another() -> None:
    own = bucket_of("a", 8)
    there = Reasons((Absence(1, 9, "expired", bucket=own),), buckets=8)
    elsewhere = Reasons((Absence(1, 9, "expired", bucket=(own + 1) % 8),), buckets=8)
    assert there.reason("a", 1, 0, 10) == "expired"
    assert elsewhere.reason("a", 1, 0, 10) == "unexplained"


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ([], [(1, 10)]),
        ([(1, 10)], []),
        ([(0, 3)], [(4, 10)]),
        ([(8, 20)], [(1, 7)]),
        ([(5, 6), (3, 3)], [(1, 2), (4, 4), (7, 10)]),
        ([(2, 5), (4, 6)], [(1, 1), (7, 10)]),
        ([(11, 12), (-3, 0)], [(1, 10)]),
    ],
)
def test_what_is_left_of_a_range(ranges: list[Range], left: list[Range]) -> None:
    assert list(subtract((1, 10), ranges)) == left


FILE = DataFile(
    path="x",
    rows=3,
    bytes=9,
    partition={"date": "2026-01-01", "bucket": "01"},
    first_offset=20,
    last_offset=25,
)


def test_everything_that_is_known_is_taken_together() -> None:
    manifest = Manifest(
        files={"x": FILE},
        buckets=2,
        gaps=(Gap(1, 4, "retention"), Gap(60, 70, "lost-uncommitted")),
        expired=(
            Expired(
                partition={"date": "2026-01-01", "bucket": "00"},
                rows=2,
                bytes=1,
                first_offset=5,
                last_offset=9,
                at=0,
            ),
        ),
    )
    seen = [
        Evidence(DAMAGED, "x", text="its checksums are wrong"),
        Evidence(READ, "", first=7, first_offset=30, last_offset=50),
        Evidence(GAP, "", first_offset=35, last_offset=36, text="never-stored"),
        Evidence(GAP, "", first_offset=40, last_offset=40, text="damaged"),
        Evidence(GAP, "", first_offset=51, last_offset=60, text="lost-uncommitted"),
    ]
    reasons = collect_reasons(manifest, seen, ("#",))
    assert reasons.absences == (
        Absence(5, 9, "expired", 2, 0, True),
        Absence(1, 4, "retention"),
        Absence(20, 25, "damaged-file", 3, 1, True),
        Absence(35, 36, "never-stored"),
    )
    assert reasons.log_has == ((30, 34), (37, 39), (41, 50))


def test_a_file_that_disagrees_with_the_manifest_and_can_be_read_explains_nothing() -> None:
    seen = [Evidence(DAMAGED, "x", text="it has 2 rows"), Evidence(READ, "x", first=2)]
    assert collect_reasons(Manifest(files={"x": FILE}), seen, ("#",)).absences == ()
