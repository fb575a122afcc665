"""No reason is used up twice, however many topics have holes."""

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.jobs.audit.accounting import Excess, excess_of
from penstock.pipeline.jobs.audit.explaining import Absence, Explaining
from penstock.pipeline.jobs.audit.findings import Finding
from penstock.pipeline.jobs.audit.runs import Run
from penstock.pipeline.jobs.audit.tally import Tally, add_up
from penstock.pipeline.jobs.audit.walking import walk
from tests.pipeline.jobs.auditing import ALL, run


def claim(first: int, last: int, messages: int, reason: str = "retention", bucket: int = 0) -> Finding:
    return Finding("claim", "", bucket, first, last, messages, reason)


def excess(claims: Sequence[Finding], *absences: Absence) -> list[tuple[int, int, int]]:
    return [(each.first, each.last, each.messages) for each in excess_of(claims, absences)]


def test_claims_that_find_room_leave_nothing() -> None:
    gaps = [Absence(1, 5, "retention"), Absence(9, 9, "retention")]
    assert excess([claim(1, 9, 4), claim(1, 5, 2)], *gaps) == []


def test_one_row_that_expired_does_not_explain_fifty_messages_of_fifty_topics() -> None:
    holes = [each for n in range(50) for each in _hole(f"t{n:02}", 1 + n, 900 + n)]
    for absence in (Absence(1, 999, "expired", rows=1, is_of_lake=True), Absence(500, 500, "retention")):
        tally = Tally()
        found = tally.end(walk(tally.watch(holes), Explaining((absence,)), ALL, is_from_start=True), 1_000)
        _, counted = add_up(list(found))
        assert sum(each.messages for each in excess_of(counted.claims, [absence])) == 49


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
    assert list(excess_of([both, claim(1, 2, 2), claim(3, 4, 1, "expired")], rooms)) == [
        Excess(1, 4, "expired, retention", 1)
    ]


Spans = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), max_size=5)


@given(Spans, st.sets(st.integers(1, 8)))
def test_claims_go_without_only_if_not_all_of_them_can_have_room(
    spans: list[tuple[int, int]], gone: set[int]
) -> None:
    """Compare with Hall's condition, for claims of one message each."""
    claims = [claim(first, first + more, 1) for first, more in spans]
    left = sum(each.messages for each in excess_of(claims, [Absence(at, at, "retention") for at in gone]))
    wanting = 0
    for first, last in product(range(1, 9), range(1, 16)):
        inside = sum(first <= each.first and each.last <= last for each in claims)
        wanting = max(wanting, inside - sum(first <= at <= last for at in gone))
    assert bool(left) == bool(wanting)
    assert left >= wanting


def _hole(topic: str, offset: int, before: int) -> list[Run]:
    return [run(1, 1, offset, topic=topic), run(3, 3, before, topic=topic)]
