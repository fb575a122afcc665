"""Why a message is not there, judged by the offsets that it may have had."""

import pytest

from penstock.client.answers import Gap
from penstock.pipeline.jobs.audit.evidence import DAMAGED, GAP, READ, Evidence
from penstock.pipeline.jobs.audit.explaining import Absence, Explaining, Range, subtract
from penstock.pipeline.jobs.audit.known import explaining_with
from penstock.pipeline.lake import DataFile, Expired, Manifest, bucket_of


def test_between_neighbours_there_was_no_message() -> None:
    assert Explaining().reason("a", 500, 10, 11) == "skipped"


def test_without_a_reason_it_is_unexplained() -> None:
    assert Explaining().reason("a", 1, 10, 12) == "unexplained"


def test_where_the_log_was_read_and_has_it_not_it_was_never_captured() -> None:
    explaining = Explaining(log_has=((1, 5), (6, 20)))
    assert explaining.reason("a", 3, 4, 12) == "not-captured"
    assert explaining.reason("a", 3, 4, 30) == "unexplained"


def test_only_what_the_log_does_not_have_any_more_needs_another_reason() -> None:
    explaining = Explaining((Absence(1, 3, "retention"),), log_has=((4, 20),))
    assert explaining.reason("a", 3, 0, 10) == "retention"
    assert explaining.reason("a", 4, 0, 10) == "unexplained"


def test_topics_that_are_not_captured_have_holes() -> None:
    explaining = Explaining(captured=("plant/#",))
    assert explaining.reason("office/door", 1, 10, 20) == "not-captured"
    assert explaining.reason("plant/pump", 1, 10, 20) == "unexplained"


def test_the_news_of_the_server_are_captured_by_default() -> None:
    assert Explaining().reason("$penstock/drops", 1, 10, 20) == "unexplained"
    assert Explaining().reason("$other", 1, 10, 20) == "not-captured"


def test_reasons_that_explain_it_only_together_are_both_told() -> None:
    explaining = Explaining((Absence(1, 2, "retention"), Absence(5, 6, "damaged")))
    assert explaining.reason("a", 4, 0, 10) == "damaged, retention"
    assert explaining.reason("a", 5, 0, 10) == "unexplained"


def test_a_reason_explains_no_more_than_there_were_rows() -> None:
    explaining = Explaining((Absence(1, 100, "expired", rows=3),))
    assert explaining.reason("a", 3, 0, 100) == "expired"
    assert explaining.reason("a", 4, 0, 100) == "unexplained"


def test_of_two_reasons_that_may_be_true_the_worse_is_told() -> None:
    explaining = Explaining((Absence(1, 9, "expired", rows=9), Absence(5, 9, "damaged-file", rows=3)))
    assert explaining.reason("a", 2, 0, 10) == "damaged-file"


def test_what_expired_in_one_bucket_explains_nothing_in_another() -> None:
    own = bucket_of("a", 8)
    there = Explaining((Absence(1, 9, "expired", bucket=own),), buckets=8)
    elsewhere = Explaining((Absence(1, 9, "expired", bucket=(own + 1) % 8),), buckets=8)
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
    explaining = explaining_with(manifest, seen, ("#",))
    assert explaining.absences == (
        Absence(5, 9, "expired", 2, 0, True),
        Absence(1, 4, "retention"),
        Absence(20, 25, "damaged-file", 3, 1, True),
        Absence(35, 36, "never-stored"),
    )
    assert explaining.log_has == ((30, 34), (37, 39), (41, 50))


def test_a_file_that_disagrees_with_the_manifest_and_can_be_read_explains_nothing() -> None:
    seen = [Evidence(DAMAGED, "x", text="it has 2 rows"), Evidence(READ, "x", first=2)]
    assert explaining_with(Manifest(files={"x": FILE}), seen, ("#",)).absences == ()
