"""Times in buckets: where they go, what they add up to, and what share of them is known."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.histogram import BOUNDS, BUCKETS, WINDOW, Histogram, Recent, bucket_of


def recent_of(*times: float) -> Recent:
    recent = Recent()
    for seconds in times:
        recent.add(bucket_of(seconds), seconds, 1)
    return recent


@given(st.floats(0, 1e6))
def test_a_time_is_in_the_first_bucket_that_is_long_enough(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert bucket == BUCKETS - 1 or seconds <= BOUNDS[bucket]
    assert bucket == 0 or seconds > BOUNDS[bucket - 1]


def test_four_buckets_make_a_power_of_two() -> None:
    assert [BOUNDS[index + 4] / BOUNDS[index] for index in range(len(BOUNDS) - 4)] == pytest.approx(
        [2.0] * (len(BOUNDS) - 4)
    )
    assert BOUNDS[0] == 2.0**-20
    assert BOUNDS[-1] == 2.0**7


def test_a_histogram_tells_how_many_took_at_most_each_power_of_two() -> None:
    times = Histogram()
    for seconds, count in ((0.0, 1), (0.25, 2), (0.26, 3), (1000.0, 4)):
        times.add(bucket_of(seconds), seconds, count)
    told = dict(times.octaves())
    assert (told[0.125], told[0.25], told[0.5], told[128.0], told[float("inf")]) == (1, 3, 6, 6, 10)
    assert list(told) == [2.0**power for power in range(-20, 8)] + [float("inf")]
    assert times.count == 10


def test_the_sum_of_a_histogram_is_exact() -> None:
    times = Histogram()
    for seconds in (0.001, 0.002, 0.003):
        times.add(bucket_of(seconds), seconds, 2)
    assert times.seconds == pytest.approx(0.012, abs=1e-15)


def test_a_histogram_never_overflows() -> None:
    times = Histogram()
    times.add(3, 1e-6, 2**64)
    times.add(3, 1e-6, 2**64)
    assert times.count == 2**65


def test_nothing_is_told_of_no_entries() -> None:
    recent = Recent()
    assert (recent.mean_s, recent.mean_messages, recent.share_s(0.5, 0.99)) == (0.0, 0.0, [0.0, 0.0])


def test_shares_are_known_to_within_a_fifth() -> None:
    random = Random(5)
    times = sorted(random.lognormvariate(-7, 1) for _ in range(WINDOW))
    recent = recent_of(*times)
    for share, told in zip((0.5, 0.95, 0.99), recent.share_s(0.5, 0.95, 0.99), strict=True):
        assert told == pytest.approx(times[int(share * WINDOW) - 1], rel=0.2)


def test_the_share_of_what_takes_too_long_to_count_is_the_longest_that_is_counted() -> None:
    assert recent_of(1e6).share_s(0.5) == [BOUNDS[-1]]


def test_averages_are_exact() -> None:
    recent = Recent()
    for seconds, messages in ((0.1, 4), (0.2, 5), (0.6, 6)):
        recent.add(bucket_of(seconds), seconds, messages)
    assert recent.mean_s == pytest.approx(0.3)
    assert recent.mean_messages == 5


def test_what_happened_long_ago_is_forgotten() -> None:
    recent = recent_of(*[1.0] * WINDOW)
    for _ in range(WINDOW):
        recent.add(bucket_of(0.001), 0.001, 3)
    assert recent.mean_messages == 2, "the last two windows count"
    assert recent.share_s(0.9)[0] > 0.5
    for _ in range(WINDOW):
        recent.add(bucket_of(0.001), 0.001, 3)
    assert recent.mean_messages == 3
    assert recent.mean_s == pytest.approx(0.001)
    assert recent.share_s(0.99)[0] == pytest.approx(0.001, rel=0.2)
